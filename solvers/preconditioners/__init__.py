"""Approximate inverses: M with M r close to the solution of A z = r."""

from .base import Preconditioner
from .build import PRECONDITIONERS, preconditioner, to_preconditioner
from .diagonal import DiagonalOperator
from .jacobi import jacobi

__all__ = ["PRECONDITIONERS", "DiagonalOperator", "Preconditioner", "jacobi", "preconditioner", "to_preconditioner"]
