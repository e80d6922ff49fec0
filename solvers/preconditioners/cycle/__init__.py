"""One multigrid cycle: its levels, smoothers and the inverse of the coarsest matrix."""
