"""Approximate inverses: M with M r close to the solution of A z = r."""

from ..diagonal import DiagonalOperator
from .amg.components import rigid_motions
from .build import PRECONDITIONERS, UPDATES, preconditioner, to_preconditioner
from .chebyshev import chebyshev
from .composed import multiplicative, operator_multiple, operator_sum
from .ilu import ic, ilu, ssor
from .jacobi import block_jacobi, jacobi
from .operators import Preconditioner
from .pipeline import of_operator
from .two_level import cluster, coarse_correction

__all__ = [
    "PRECONDITIONERS",
    "UPDATES",
    "DiagonalOperator",
    "Preconditioner",
    "block_jacobi",
    "chebyshev",
    "cluster",
    "coarse_correction",
    "ic",
    "ilu",
    "jacobi",
    "multiplicative",
    "of_operator",
    "operator_multiple",
    "operator_sum",
    "preconditioner",
    "rigid_motions",
    "ssor",
    "to_preconditioner",
]
