"""Singular matrices: detection from factors or constants, null vectors, and inconsistent systems."""
