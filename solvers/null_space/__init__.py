"""Null vectors of A: given or found, and taken off right-hand sides, solutions and what preconditioners return."""
