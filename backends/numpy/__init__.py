"""NumPy and SciPy."""
