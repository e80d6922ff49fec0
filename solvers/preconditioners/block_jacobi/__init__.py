"""Block Jacobi."""
