"""Preconditioners of matrices whose rows are cut: made and applied part by part."""

from .kinds import BY_PARTS

__all__ = ["BY_PARTS"]
