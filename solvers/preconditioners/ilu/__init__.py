"""Incomplete factorisations and SSOR: two triangular factors and a diagonal, applied one after the other."""

from .ilu import ic, ilu, serving_ilu, ssor

__all__ = ["ic", "ilu", "serving_ilu", "ssor"]
