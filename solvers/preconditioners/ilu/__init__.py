"""Incomplete factorisations and SSOR: two triangular factors and a diagonal, applied one after the other."""

from .kinds import ic, ilu, serving_ilu
from .runtime_choice import ilu_or_jacobi
from .ssor import ssor

__all__ = ["ic", "ilu", "ilu_or_jacobi", "serving_ilu", "ssor"]
