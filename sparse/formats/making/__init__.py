"""Matrices from entries, diagonals, boxes, files and other libraries."""
