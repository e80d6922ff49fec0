"""Derivatives of a solution."""
