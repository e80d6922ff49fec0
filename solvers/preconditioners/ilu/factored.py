"""Two triangles and a diagonal between them as a preconditioner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Composed, Matrix, Operator, SparseMatrix
from ....sparse.formats import from_entries
from ...triangular.by_superlu import inverse_of_unit
from ..diagonal import DiagonalOperator
from ..known import anchor, from_host
from .scaled import Scaled


@dataclass(eq=False, repr=False)
class Factored(Composed):
    """`upper inverse lower`, where `lower` and `upper` are inverses of unit triangles, or stand for them."""

    parts = ("lower", "inverse", "upper")

    lower: Operator
    inverse: DiagonalOperator
    upper: Operator

    def transpose(self) -> Factored:
        return Factored(self.upper.transpose(), self.inverse, self.lower.transpose())

    def apply(self, x: Array) -> Array:
        return self.upper.apply(self.inverse.apply(self.lower.apply(x)))


@dataclass(eq=False, repr=False)
class TriangleSweeps(Composed):
    """Sweeps of Jacobi's method for `(I + S) y = r` from y = r: `I - S + S^2 - ...`. Costs one product with S each.

    Always finite, and exact after as many sweeps as there are levels. The factors of a Hermitian matrix get polynomials
    that are the adjoint of each other, so that with positive pivots M is positive definite after any number.

    Source: Anzt, Chow and Dongarra, Iterative sparse triangular solves for preconditioning (2015).
    """

    parts = ("strict",)

    strict: SparseMatrix
    sweeps: int

    def transpose(self) -> TriangleSweeps:
        return replace(self, strict=self.strict.transpose())

    def apply(self, x: Array) -> Array:
        y = x
        for _ in range(self.sweeps if self.strict.structure.nnz else 0):
            y = x - self.strict.apply(y)
        return y


def factored(A: Scaled, factors: Array, pivots: Array, sweeps: int | None, scale: float = 1.0) -> Factored:
    """M = scale x the inverse of `(L + D) D^-1 (D + U)`.

    Args:
        factors: L and U in the places of A's pattern, `(nnz,)` or `(systems, nnz)`, in rows divided by A's units.
        pivots: D, likewise, `(n,)` or `(systems, n)`.
        sweeps: of Jacobi's method for each triangle; None: solve with them.
    """
    host, pattern, last = A.host, A.pattern, A.last
    lower, upper = pattern.lower, pattern.upper
    above = _divided(A, factors, upper, pivots)
    if A.hermitian:
        back = np.empty(len(pattern.rows), np.int32)
        back[upper] = np.arange(len(upper), dtype=np.int32)
        below = host.conj(host.take(above, back[pattern.mirror[lower]], last))
    else:
        units = host.take(A.units, pattern.rows[lower], last) / host.take(A.units, pattern.cols[lower], last)
        below = host.take(factors, lower, last) * units / host.take(pivots, pattern.cols[lower], last)
    inverse = diagonal_of(A.matrix, host, host.reshape(scale / (pivots * A.units), (-1, pattern.n)))
    triangles = [_strict(A, places, values) for places, values in ((lower, below), (upper, above))]
    applied = [inverse_of_unit(S) if sweeps is None else TriangleSweeps(S, sweeps) for S in triangles]
    return Factored(applied[0], inverse, applied[1])


def diagonal_of(matrix: Matrix, host: Backend, values: Array) -> DiagonalOperator:
    """In the library of a matrix, on its device."""
    found: Any = DiagonalOperator(host, values)
    return found if host is matrix.bk else from_host(found, matrix)


def _divided(A: Scaled, factors: Array, places: np.ndarray, pivots: Array) -> Array:
    host = A.host
    return host.take(factors, places, A.last) / host.take(pivots, A.pattern.rows[places], A.last)


def _strict(A: Scaled, places: np.ndarray, values: Array) -> SparseMatrix:
    pattern = A.pattern
    return from_entries(
        A.matrix.bk, pattern.rows[places], pattern.cols[places], values, (pattern.n, pattern.n), prune=False,
        like=anchor(A.matrix), sum_duplicates=False,
    )  # fmt: skip
