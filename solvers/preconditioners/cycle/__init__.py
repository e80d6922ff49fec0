"""Multigrid cycles: levels, smoothers and the coarsest solve."""
