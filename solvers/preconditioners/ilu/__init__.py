"""Incomplete factorisations and SSOR: two triangular factors and a diagonal, applied one after the other."""

from .ilu import ic, ilu, serving_ilu, ssor
from .runtime_choice import ilu_or_jacobi

__all__ = ["ic", "ilu", "ilu_or_jacobi", "serving_ilu", "ssor"]
