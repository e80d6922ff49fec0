"""Structured multigrid on grids that are cut over a device mesh."""
