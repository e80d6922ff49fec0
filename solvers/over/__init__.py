"""Solves whose vectors are cut over the members of a communicator (`linear_solve(over=...)`)."""
