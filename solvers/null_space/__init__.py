"""Null vectors of A: given or found, and projected out of right-hand sides, solutions and preconditioned residuals."""
