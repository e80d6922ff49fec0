"""Singular matrices: seen in factors or by constants, their null vectors, and what a solution leaves out."""
