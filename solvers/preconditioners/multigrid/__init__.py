"""Geometric multigrid on structured grids, from the couplings of neighbours."""
