"""Matrices from entries, diagonals, boxes, other matrices and other libraries."""
