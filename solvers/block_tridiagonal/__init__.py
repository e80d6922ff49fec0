"""Block tridiagonal matrices: bands of few diagonals, and planes of a grid; their elimination."""
