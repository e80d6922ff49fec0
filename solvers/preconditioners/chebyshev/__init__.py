"""Chebyshev polynomials of a matrix, and the bounds of its spectrum that they need."""
