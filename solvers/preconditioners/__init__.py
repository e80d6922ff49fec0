"""Approximate inverses: M with M r close to the solution of A z = r."""

from .amg.rigid_motions import rigid_motions
from .base import Preconditioner
from .build import PRECONDITIONERS, UPDATES, preconditioner, to_preconditioner
from .diagonal import DiagonalOperator
from .jacobi import jacobi

__all__ = [
    "PRECONDITIONERS",
    "UPDATES",
    "DiagonalOperator",
    "Preconditioner",
    "jacobi",
    "preconditioner",
    "rigid_motions",
    "to_preconditioner",
]
