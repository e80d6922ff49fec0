"""Solvers that know the grid which the unknowns lie on."""
