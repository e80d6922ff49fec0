"""Multigrid on grids: coarser grids, and what goes between them, made of the couplings of neighbours."""
