"""Smoother and cycle type of multigrid on grids."""

from __future__ import annotations

from typing import NamedTuple

from ....backends import Array
from ....sparse import Operator
from .cycle import VISITS, PolynomialSmoother, polynomial


class Smoothing(NamedTuple):
    """Smoother and cycle type of all levels but the coarsest."""

    smoother: str = "chebyshev"
    degree: int = 2
    visits: int = VISITS["V"]
    precision: str | None = None
    as_grids: bool = False  # are NumPy's matrices made of shifted grids, as those of all other libraries?

    def smoother_of(self, A: Operator, bound: Array, hermitian: bool) -> PolynomialSmoother:
        """Of a matrix of unit row sums, with bounds `(systems or 1,)` of its eigenvalues."""
        coefficients = polynomial(A.bk, self.smoother, bound, self.degree)
        alphas, weights = (A.bk.astype(each, A.dtype) for each in coefficients)
        return PolynomialSmoother(A, alphas, weights[:, :, None], hermitian)
