"""Fast diagonalisation of a nearby separable operator."""
