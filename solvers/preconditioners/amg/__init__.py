"""Algebraic multigrid: hierarchies of pyamg, or of patterns, and cycles of matrices of the library."""
