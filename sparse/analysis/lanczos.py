"""Lanczos' three-term recurrence in the loop of any library: tridiagonal matrices of Hermitian operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend


class LanczosState(NamedTuple):
    """State of the recurrence; vectors are (batch, n), scalars (batch, 1).

    Attributes:
        step: a number, or counted by the library's loop.
        old: the basis vector before `v`.
        v: the basis vector of this step.
        beta: entry beside the diagonal of T between these two.
        alphas: `(batch, steps)`, the diagonal of T.
        betas: likewise; `betas[:, j]` stands beside `alphas[:, j - 1]` and `alphas[:, j]`.
        basis: `(batch, steps, n)`, or ().
    """

    step: Any
    old: Array
    v: Array
    beta: Array
    alphas: Array
    betas: Array
    basis: Any


def lanczos(
    bk: Backend,
    apply: Callable[[Array], Array],
    v: Array,
    steps: int,
    keep_basis: bool = False,
    positive: bool = False,
) -> LanczosState:
    """Lanczos' method from unit rows v `(batch, n)`, without orthogonalising anew.

    Args:
        bk: the library.
        apply: `(batch, n)` -> `(batch, n)`, Hermitian.
        v: the start, of norm 1.
        steps: products with the operator.
        keep_basis: the basis vectors, too.
        positive: after a breakdown, with v = 0, T gets its first diagonal entry again instead of 0, which has no weight
            and keeps T positive definite.

    Source: Golub and Meurant, Matrices, Moments and Quadrature with Applications (2010), chapter 4; Saad, Numerical
    Methods for Large Eigenvalue Problems, 2nd ed., algorithm 6.5.
    """
    batch = int(v.shape[0])
    zero = bk.zeros((batch, steps), bk.dtype(bk.real(v)), v)
    columns = bk.asarray(np.arange(steps, dtype=np.int32), like=v)
    rows = bk.asarray(np.zeros((batch, 1), np.int32), like=v) if keep_basis else None

    def one(s: LanczosState) -> LanczosState:
        here = columns == s.step
        basis = bk.put_row(s.basis, rows + s.step, s.v) if keep_basis else ()
        w = apply(s.v)
        alpha = bk.real(bk.dot(s.v, w))
        if positive:
            first = bk.where(s.alphas[:, :1] > 0, s.alphas[:, :1], 1)
            alpha = bk.where(bk.max_abs(s.v) > 0, alpha, first)
        w = w - bk.times(alpha, s.v) - bk.times(s.beta, s.old)
        beta = bk.norm(w)
        v = bk.times(bk.safe_divide(0 * beta + 1, beta), w)
        alphas, betas = bk.where(here, alpha, s.alphas), bk.where(here, s.beta, s.betas)
        return LanczosState(s.step + 1, s.v, v, beta, alphas, betas, basis)

    basis = bk.room_for(v, steps) if keep_basis else ()
    first = LanczosState(0, bk.zeros_like(v), v, zero[:, :1], zero, zero, basis)
    return bk.while_loop(lambda s: s.step < steps, one, first)
