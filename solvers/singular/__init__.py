"""Null vectors that are given or found as constants, and the projections that remove them."""
