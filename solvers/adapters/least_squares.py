"""Normal equations of least-squares problems, and their results in terms of the given problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout, NormalOperator, Operator, UnsupportedOperation
from ..results.result import SolveResult, changed

_UNDERDETERMINED = (
    "A has {m} rows and {n} columns, so x is the solution of least norm, which {method} finds, but its derivatives are "
    "not those of the normal equations. Give damp > 0, as in LSMR(damp=1e-3); or, where A has full rank, solve A A^H y "
    "= b for y, and x = A^H y: linear_solve(lambda y: A @ (A.T @ y), b, method='CG') where A is real."
)


@dataclass(frozen=True)
class LeastSquaresProblem:
    """The problem as the user stated it: least squares with A `(m, n)` and rows b `(systems, m)`."""

    A: Operator
    b: Array
    layout: Layout
    damp: float

    def equations(self) -> tuple[Operator, Array]:
        """`A^H A + damp^2 I` and `A^H b`. Costs 1 product.

        Raises:
            UnsupportedOperation: A has no transposed product.
        """
        try:
            operator = NormalOperator(self.A, self.damp)
        except TypeError as error:
            raise UnsupportedOperation(f"Least squares need products with the transpose. {error}") from error
        with np.errstate(all="ignore"):  # `bk.errstate` would record no derivatives
            return operator, operator.adjoint_inner.apply(self.b)

    def restore(self, bk: Backend, result: SolveResult, rows: Array, known_null_space: bool) -> SolveResult:
        """The result of the normal equations as that of the given problem. Costs 1 product.

        Args:
            rows: x, `(systems, n)`, with a first axis for checkpoints or without.
            known_null_space: is the part of x in the null space of A fixed, independent of A?
        """
        m, n = self.A.shape
        lead = tuple(rows.shape)[:-2]
        with bk.errstate():
            parts = [self.b - self.A.apply(rows[i]) for i in range(lead[0])] if lead else [self.b - self.A.apply(rows)]
        residual = self.layout.unflatten(bk, bk.stack(parts) if lead else parts[0], lead)
        x: Any = result.x
        if m < n and not self.damp and not known_null_space:
            leaves, structure = bk.leaves(x)
            why = _UNDERDETERMINED.format(m=m, n=n, method=result.method)
            x = bk.unleaves(structure, [bk.refuse_derivatives(leaf, why) for leaf in leaves])
        products = result._record.array("function_evaluations") + 2  # A^H b, and A x
        return changed(result, x, residual=residual, function_evaluations=products)
