"""Deflation with piecewise constant coarse spaces."""
