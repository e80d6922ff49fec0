"""Integer arrays and values behind a matrix: order, positions, bounds."""
