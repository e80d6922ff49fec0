"""Incomplete factorisations and SSOR: two triangular factors and a diagonal, applied one after the other."""

from .kinds import ic, ilu, serving_ilu
from .ssor import ssor

__all__ = ["ic", "ilu", "serving_ilu", "ssor"]
