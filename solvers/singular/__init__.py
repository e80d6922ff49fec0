"""Singular matrices: detection from factors or constants, null vectors, and projections that remove them."""
