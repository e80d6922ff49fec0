"""Base class of least-squares methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import NormalOperator, Operator
from ..method import Method


@dataclass(frozen=True)
class LeastSquares(Method):
    """A method for `min |b - A x|^2 + damp^2 |x|^2`; what `init` and `step` get as M is the adjoint of A.

    A square system without damping is handed over as it is. Otherwise the operator is the `NormalOperator` of A, and
    the residual that of the normal equations; products go through its two factors.
    """

    damp: float = 0.0

    keeps_grids = True
    least_squares = True
    needs_transpose = True
    takes_preconditioner = False
    minimises_residual = True
    products_per_step = 2

    def __post_init__(self) -> None:
        number = isinstance(self.damp, (int, float, np.integer, np.floating)) and not isinstance(self.damp, bool)
        if not number or not np.isfinite(self.damp) or self.damp < 0:
            raise ValueError(f"{self.name} needs a finite number damp >= 0; got {self.damp!r}.")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator:
        return A.adjoint_inner if isinstance(A, NormalOperator) else A.H


def of_normal(A: Operator) -> Operator:
    """The matrix of a normal operator."""
    return A.inner if isinstance(A, NormalOperator) else A


def damp_of(A: Operator) -> float:
    """The damping of a normal operator."""
    return A.damp if isinstance(A, NormalOperator) else 0.0


def length(bk: Backend, v: Array, more: Any = ()) -> Array:
    """The 2-norm of rows `(batch, m)`, optionally with a second block."""
    square = bk.square_norm(v)
    return bk.sqrt(square if isinstance(more, tuple) else square + bk.square_norm(more))


def safe_reciprocal(bk: Backend, x: Array) -> Array:
    """`1 / x`, and 0 where x is 0."""
    return bk.safe_divide(bk.full_like(x, 1), x)
