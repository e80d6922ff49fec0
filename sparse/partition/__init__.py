"""Partitions of the rows of a sparse matrix, and what the parts then exchange."""
