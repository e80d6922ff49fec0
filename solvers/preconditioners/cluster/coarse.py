"""Coarse-grid corrections: the exact solution in a subspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Composed, Dense, Matrix, Operator, as_operator, storable
from ....sparse.operators.concrete import kept
from ..base import Preconditioner
from ..block_jacobi.inverses import all_hermitian, are_hermitian, inverses
from ..pipeline import constant_linear_part, of_operator
from ..target import Target

_LARGEST = 4096  # most columns: their matrix is inverted as a dense one


@storable("through a coarse space")
@dataclass(eq=False, repr=False)
class CoarseGridCorrection(Composed):
    """`left inner right`: prolongation, inverse of the coarse matrix, restriction."""

    parts = ("left", "inner", "right")

    left: Operator
    inner: Operator
    right: Operator

    def _settle(self) -> None:
        super()._settle()
        self.shape = (self.left.shape[0], self.right.shape[1])

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.right.in_shape

    def apply(self, x: Array) -> Array:
        return self.left.apply(self.inner.apply(self.right.apply(x)))

    def transpose(self) -> CoarseGridCorrection:
        return CoarseGridCorrection(self.right.transpose(), self.inner.transpose(), self.left.transpose())


def coarse_correction(A: Any, P: Any, *, like: Any = None) -> Preconditioner:
    """`P (P^H A P)^-1 P^H`: the solution in the space of the columns of P, for a residual r, and nothing outside.

    By itself it is no preconditioner, as it is singular. Add one, `M + coarse_correction(A, P)`, or apply both one
    after the other, `multiplicative(A, Q, M, Q)`.

    Args:
        A: a matrix, or a function that can be traced.
        P: a matrix of NumPy or SciPy, `(n, m)` with m << n, whose columns are near to what M leaves: null vectors of A
            without its boundary conditions, cut to parts of the domain.
        like: an array of the shape and dtype that a function A takes.

    Raises:
        ValueError: P has another shape, or too many columns.
        UnsupportedOperation: A does not show its entries.

    Stores the entries of P and m^2 numbers, and costs two products with P and m^2 multiplications.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, section 2.1.
    """
    return _coarse_correction(constant_linear_part(as_operator(A, like)), spread=as_operator(P))


@of_operator()
def _coarse_correction(own: Any, target: Target, *, spread: Any) -> Preconditioner:
    if spread.shape[0] != own.shape[0] or not 0 < spread.shape[1] <= _LARGEST or spread.systems is not None:
        raise ValueError(f"P has the shape {spread.shape}; expected ({own.shape[0]}, m) with m from 1 to {_LARGEST}.")
    dtype = np.result_type(own.dtype, spread.dtype) if spread.dtype.kind == "c" else own.dtype
    spread = kept(spread).astype(dtype)
    # P^H (A P), in a form in which what may be traced stands on the left
    bk, blocks = own.bk, ((own @ spread).T @ spread.conj()).T.dense()
    inverse, hermitian, singular = coarse_inverse(bk, blocks if own.systems is not None else blocks[None])
    inner = Dense(bk, *(inverse if own.systems is not None else inverse[0],) * (2 if bk.on_host else 1))
    operator = CoarseGridCorrection(target.moved(spread), target.moved(inner), target.moved(spread.H))
    columns = spread.nnz if isinstance(spread, Matrix) else 0
    cost, settings = columns + inner.nnz, (("columns", spread.shape[1]),)
    note = "the coarse matrix is singular" if singular else None
    return Preconditioner(operator, "coarse", hermitian, cost, cost + columns, own.nnz, settings, note)


def coarse_inverse(bk: Backend, blocks: Array) -> tuple[Array, bool | None, bool]:
    """Inverses of `(systems, m, m)`, whether they are Hermitian, and whether one is singular.

    For known values a singular one gets its pseudo-inverse. Else it is tried again with a multiple of the matrix of
    ones, since constants are the usual null vectors; if that is singular too, there is no correction.
    """
    found, singular = inverses(bk, blocks)
    if bk.on_host:
        wrong = np.flatnonzero(singular.reshape(-1) & np.isfinite(blocks).all(axis=(1, 2)))
        for i in wrong:
            eps = np.finfo(blocks.dtype).eps
            found[i] = np.linalg.pinv(
                blocks[i], rcond=np.sqrt(eps), hermitian=bool(are_hermitian(bk, blocks[i : i + 1]))
            )
        return found, all_hermitian(found), bool(len(wrong))
    sizes = bk.sum(bk.abs(bk.diagonal(blocks)), 1)[:, None, None] / int(blocks.shape[1]) ** 2
    shifted, still = inverses(bk, blocks + bk.astype(sizes, bk.dtype(blocks)))
    found = bk.where(singular, bk.where(still, bk.zeros_like(found), shifted), found)
    return found, None, False
