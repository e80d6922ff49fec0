"""Solvers for matrices on structured grids."""
