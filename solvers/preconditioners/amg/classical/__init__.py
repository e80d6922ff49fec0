"""Classical AMG of known values: strength, splitting and interpolation by masks and products of sparse matrices."""
