"""Sparse factors by several libraries behind one protocol: analyse, factor, refactor, solve, solve transposed."""
