"""Log determinants, entries of the inverse, and samples of Gaussian fields, of one matrix."""
