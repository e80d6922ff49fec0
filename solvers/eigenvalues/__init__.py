"""Eigenvalues at both ends of a spectrum, for diagnosis."""
