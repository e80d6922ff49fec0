"""Operators and matrices of other packages, read as what krylix takes."""
