"""Products with known arrays: sums of products over axes, convolutions, Fourier transforms, whole matrices."""
