"""NumPy rules for operands that are known."""
