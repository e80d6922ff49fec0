"""Lanczos' recurrence, bounds of the largest eigenvalue (from below by it, from above by row sums), indefiniteness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ..formats import Matrix
from ..operator import Operator


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


# --- Bounds of the largest eigenvalue ---

_BISECTIONS = 24
_POWER_STEPS = 15
_SAFETY = 1.1  # the largest eigenvalue over what the power method finds of it


class _Bisection(NamedTuple):
    count: Any
    low: Array  # (batch, 1)
    width: Array  # (batch, 1)


def largest_eigenvalue(bk: Backend, apply: Callable[[Array], Array], start: Array, steps: int = 10) -> Array:
    """`(batch, 1)`: Lanczos estimate of the largest eigenvalue of a Hermitian operator.

    A lower bound up to rounding, usually a few per cent below. For another operator it is about its norm.

    Args:
        bk: the library.
        apply: `(batch, n)` -> `(batch, n)`.
        start: `(batch, n)`, not zero and without a pattern, as a smooth one has nothing of the largest eigenvalue.
        steps: products with the operator, at most n of which are made.

    Source: Saad, Numerical Methods for Large Eigenvalue Problems, 2nd ed., algorithm 6.5.
    """
    with bk.errstate():
        found = lanczos(bk, apply, bk.times(1 / bk.norm(start), start), min(steps, bk.unknowns(start)))
        return _largest_of_tridiagonal(bk, found.alphas, found.betas)


def _largest_of_tridiagonal(bk: Backend, alphas: Array, betas: Array) -> Array:
    """`(batch, 1)`: the largest eigenvalue of symmetric tridiagonal matrices, by bisection.

    x is above it where all pivots of `x I - T` are positive.
    """
    steps = int(alphas.shape[1])
    diagonal = [alphas[:, j : j + 1] for j in range(steps)]
    beside = [betas[:, j : j + 1] for j in range(steps)]
    low = diagonal[0]
    for alpha in diagonal[1:]:
        low = bk.maximum(low, alpha)
    widest = 0 * low
    for beta in beside:
        widest = bk.maximum(widest, beta)

    def halved(s: _Bisection) -> _Bisection:
        width = s.width / 2
        pivot = s.low + width - diagonal[0]
        above = pivot > 0
        for alpha, beta in zip(diagonal[1:], beside[1:], strict=True):
            pivot = s.low + width - alpha - beta * bk.safe_divide(beta, pivot)
            above = above & (pivot > 0)
        return _Bisection(s.count + 1, bk.where(above, s.low, s.low + width), width)

    first = _Bisection(0, low, 2 * widest)
    found = bk.while_loop(lambda s: s.count < _BISECTIONS, halved, first)
    return found.low + found.width


def bounded_eigenvalue(bk: Backend, A: Operator, row_sums: Array) -> Array:
    """`(systems or 1,)`: a bound of the eigenvalues of A from above, by the power method, with `_SAFETY`.

    Args:
        row_sums: bounds that hold, the largest sums of |entries| in a row of some D⁻¹ A D, `(systems or 1,)`.

    From a vector without a pattern: that of a smooth one finds the wrong eigenvalue on grids. Cost: 15 products.
    """
    n, rows = A.shape[1], A.systems or 1
    example = A.diagonals()
    start = bk.scatter_numbers(n, np.dtype(bk.dtype(bk.real(example))), example)
    v = bk.astype(bk.broadcast_to(start[None], (rows, n)), A.dtype)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """One step of the power method."""
        v, size, count = state
        v = bk.materialize(A.apply(bk.times(1 / bk.where(size > 0, size, 1), v)))
        return v, bk.norm(v), count + 1

    count = bk.asarray(np.int32(0), like=example)
    _, size, _ = bk.while_loop(lambda state: state[2] < _POWER_STEPS, step, (v, bk.norm(v), count))
    found = _SAFETY * size[:, 0]
    return bk.where(found < row_sums, found, row_sums)


def largest_row_sum(A: Matrix, factors: Array) -> Array:
    """`(systems, 1)`, or `(1, 1)`: the largest sum of `|factor_i a_ij|` over a row, with factors `(1, n)` or one row
    per system. By Gershgorin no eigenvalue of the scaled matrix is larger.
    """
    bk = A.bk
    sums = absolute_row_sums(A)
    return bk.max_abs(sums * bk.abs(factors))


def absolute_row_sums(A: Matrix) -> Array:
    """`(1, n)`, or `(systems, n)`: the sums of |a_ij| over each row."""
    bk, values = A.bk, A.values  # type: ignore[attr-defined]
    sizes = tuple(map(bk.abs, values)) if isinstance(values, tuple) else bk.abs(values)
    sums = A.with_values(sizes).sum(1)
    return sums if A.systems is not None else sums[None]


# --- Indefiniteness ---

_STEPS = 40
_NEGATIVE = 1e-10  # of the largest eigenvalue: semi-definite matrices have rounding errors below zero


def is_seen_indefinite(A: sp.csr_array) -> bool:
    """Has a Hermitian matrix with a positive diagonal, scaled to a diagonal of ones, a clearly negative eigenvalue?

    Lanczos' method sees those at the end of the spectrum after a few steps: what it sees is there, but eigenvalues just
    below zero may be missed. Cost: at most 40 products.
    """
    diagonal = np.abs(A.diagonal().real)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))  # rows of zeros stay
    v = np.random.default_rng(7).standard_normal(A.shape[0]).astype(A.dtype)[None]
    bk = get_backend("numpy")  # whose sums are not spread over threads, which would wait for each other
    with np.errstate(all="ignore"):
        found = lanczos(bk, lambda x: (scale * (A @ (scale * x[0])))[None], v / bk.norm(v), min(_STEPS, A.shape[0]))
    alphas, betas = found.alphas[0], found.betas[0]
    if not (np.isfinite(alphas).all() and np.isfinite(betas).all()):
        return False  # which the solve will find out
    ritz = scipy.linalg.eigvalsh_tridiagonal(alphas, betas[1:])
    return bool(ritz[0] < -max(_NEGATIVE, 100 * np.finfo(A.dtype).eps) * ritz[-1])
