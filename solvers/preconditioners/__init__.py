"""Approximate inverses: M with M r close to the solution of A z = r."""

from .base import Preconditioner
from .build import PRECONDITIONERS, preconditioner, to_preconditioner
from .diagonal import DiagonalOperator
from .ilu import ic, ilu, ssor
from .jacobi import jacobi

__all__ = [
    "PRECONDITIONERS",
    "DiagonalOperator",
    "Preconditioner",
    "ic",
    "ilu",
    "jacobi",
    "preconditioner",
    "ssor",
    "to_preconditioner",
]
