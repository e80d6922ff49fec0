"""Composed preconditioners."""
