"""Chebyshev polynomials of a matrix, and the spectral bounds that they need."""
