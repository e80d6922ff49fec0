"""Incomplete factors: of known values level by level, of traced ones by sweeps, and as an operator.

The factors L + D and D + U are one array on the pattern of a `UnitDiagonalMatrix`, and the pivots D another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....backends import Array
from ....sparse import Composed, Operator, SparseMatrix, storable
from ....sparse.formats.entries.integers import rows_first
from ...diagonal import DiagonalOperator
from ...triangular.inverse import HostSolve, LevelSolve
from ..checks import MOST_STEPS, check_integer
from ..operators import TripleProduct
from .unit_diagonal import Pattern, UnitDiagonalMatrix

_LEAST_PIVOT = 0.01  # of the diagonal
_SHIFTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


# --- of known values, by NumPy ---


def incomplete_factors(
    A: UnitDiagonalMatrix, shift: float | str, definite: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Zero-fill factors in one array, the pivots, and the largest shift that was needed.

    Pivots must be at least 1 % of the diagonal in size, and those of Hermitian matrices must keep its sign, because CG
    needs it. Otherwise the diagonal is multiplied by 1 + shift, for each system on its own. If no shift keeps the
    signs, the matrix is indefinite, and they may change.

    Args:
        shift: a number, or "auto" for the smallest of a list that suffices.
        definite: accept only pivots of the sign of the diagonal.

    Raises:
        ValueError: there is no such shift.

    Source: Manteuffel, An incomplete factorization technique for positive definite linear systems (1980).
    """
    systems, given = A.systems, A.values.reshape(A.systems, -1)
    factors, shifts = np.empty_like(given), np.zeros(systems)
    left, symmetric = np.arange(systems), np.broadcast_to(A.symmetric if A.symmetric is not None else False, systems)
    for keep_sign in (True, False) if symmetric.any() and not definite else (True,):
        for alpha in _SHIFTS if shift == "auto" else (float(shift),):
            shifted = given[left]
            shifted[:, A.pattern.diagonal] += alpha
            factors[left] = zero_fill(A.pattern, shifted[0] if len(left) == 1 else shifted)
            shifts[left] = alpha
            left = left[~_are_good(A, factors[left], given[left], symmetric[left] if keep_sign else False)]
            if not len(left):
                factors = factors.reshape(A.values.shape)
                return factors, A.diagonal(factors), float(shifts.max(initial=0))
    tried = f"The shift {shift}" if shift != "auto" else f"No shift up to {_SHIFTS[-1]:g}"
    raise ValueError(
        f"{tried} of the diagonal makes pivots that are at least {_LEAST_PIVOT:.0%} of the diagonal"
        f"{' and of its sign. Is the matrix positive definite?' if definite else '.'} Use 'jacobi', or 'ilu' with "
        "drop_tolerance=1e-3, which exchanges rows."
    )


def _are_good(
    A: UnitDiagonalMatrix, factors: np.ndarray, values: np.ndarray, keep_sign: np.ndarray | bool
) -> np.ndarray:
    """bool `(systems,)`: are pivots large enough, and of the sign of the diagonal where `keep_sign`?"""
    pivots = factors[:, A.pattern.diagonal]
    signed = np.broadcast_to(keep_sign, len(factors))[:, None] & (values[:, A.pattern.diagonal] != 0)
    size = np.where(signed, pivots.real, np.abs(pivots))
    return (size >= _LEAST_PIVOT).all(axis=1) & np.isfinite(factors).all(axis=1)


def zero_fill(pattern: Pattern, values: np.ndarray) -> np.ndarray:
    """F = L + D + U on the pattern such that `(L + D) D^-1 (D + U)` equals A in the entries of the pattern.

    Values and F are `(nnz,)` or `(systems, nnz)`. f_ij = a_ij - sum of f_ik f_kj / f_kk over k < min(i, j), for all
    entries of a level of min(i, j) at once. F is not finite where a pivot is 0. Cost: a few calls of NumPy per level,
    and one pass over the products.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.3.2.
    """
    factors, pairs, levels = values.copy(), pattern.pairs, pattern.levels
    count = int(levels.max(initial=0)) + 1
    when = levels[np.minimum(pattern.rows[pairs.target], pattern.cols[pairs.target])]
    order = rows_first(when, count)
    first, second, target, pivot = (index[order].astype(np.intp) for index in pairs)  # the index type of NumPy
    bounds = np.searchsorted(when[order], np.arange(count + 1))
    new = np.flatnonzero(np.diff(target, prepend=-1) | np.diff(when[order], prepend=-1))  # where a target begins
    bounds_new = np.searchsorted(new, bounds)
    by_level = np.argsort(levels, kind="stable")
    starts = np.searchsorted(levels[by_level], np.arange(count + 1))
    inverse = np.empty((*values.shape[:-1], pattern.n), values.dtype)
    with np.errstate(all="ignore"):
        for level in range(count):
            lo, hi = bounds[level], bounds[level + 1]
            if lo < hi:
                here = slice(lo, hi)
                products = factors[..., first[here]] * inverse[..., pivot[here]] * factors[..., second[here]]
                begins = new[bounds_new[level] : bounds_new[level + 1]]
                factors[..., target[begins]] -= np.add.reduceat(products, begins - lo, axis=-1)
            rows = by_level[starts[level] : starts[level + 1]]
            inverse[..., rows] = 1 / factors[..., pattern.diagonal[rows]]
    return factors


# --- of traced values, by fixed-point sweeps ---


def factors_by_sweeps(A: UnitDiagonalMatrix, sweeps: int) -> tuple[Array, Array]:
    """Zero-fill factors in one array, and the pivots, by fixed-point sweeps over all entries at once.

    f_ij <- a_ij - sum of f_ik f_kj / f_kk over k < min(i, j), from F = A. Every sweep preserves the symmetry of A and
    commutes with transposition. With one sweep fewer than there are levels of rows the factors are exact. A pivot below
    1 % of the diagonal, or of the other sign, is replaced by the diagonal.

    Source: a symmetric form of Chow and Patel, Fine-grained parallel incomplete LU factorization, SISC 37 (2015).
    """
    if A.pattern.is_triangle_free:
        return A.values, _pivots_by_sweeps(A, sweeps)
    bk, pairs, count = A.host, A.pattern.pairs, len(A.pattern.rows)
    factors, pivots = A.values, _usable(A, A.diagonal())
    for _ in range(sweeps if len(pairs.target) else 0):
        left = A.take(factors, pairs.first) / A.take(pivots, pairs.pivot)
        products = left * A.take(factors, pairs.second)
        factors = A.values - bk.sum_entries(products, pairs.target, count, sorted=True)
        pivots = _usable(A, A.diagonal(factors))
    return factors, pivots


def _pivots_by_sweeps(A: UnitDiagonalMatrix, sweeps: int) -> Array:
    """d_i <- a_ii - sum of a_ik a_ki / d_k over k < i, as one sparse product per sweep."""
    bk, pattern = A.host, A.pattern
    lower, diagonal = pattern.lower, A.diagonal()
    pivots = _usable(A, diagonal)
    if not len(lower):
        return pivots
    both = A.take(A.values, lower) * A.take(A.values, pattern.mirror[lower])
    C = A.part(bk, lower, both)
    for _ in range(sweeps):
        sums = C.apply(bk.reshape(1 / pivots, (-1, pattern.n)))
        pivots = _usable(A, diagonal - bk.reshape(sums, tuple(diagonal.shape)))
    return pivots


def _usable(A: UnitDiagonalMatrix, pivots: Array) -> Array:
    """The pivots, where too small ones and those of the wrong sign are replaced by the diagonal, 1."""
    bk, size = A.host, A.host.real(pivots)
    if A.hermitian:
        pivots = bk.astype(size, bk.dtype(pivots))
    missing = A.diagonal() == 0
    size = bk.where(missing, bk.abs(pivots), size)
    return bk.where((size >= _LEAST_PIVOT) & bk.isfinite(size), pivots, bk.full_like(pivots, 1))


# --- as an operator ---


def factored(
    A: UnitDiagonalMatrix, factors: Array, pivots: Array, sweeps: int | None, scale: float = 1.0
) -> tuple[TripleProduct, str | None]:
    """M, `scale` times the inverse of `(L + D) D^-1 (D + U)`, and a note.

    Args:
        factors: L and U on A's pattern, `(nnz,)` or `(systems, nnz)`, in rows divided by A's units.
        pivots: D, likewise, `(n,)` or `(systems, n)`.
        sweeps: Jacobi sweeps for each triangle, damped where they would grow; None: exact solves.
    """
    host, pattern, note = A.host, A.pattern, None
    lower, upper = pattern.lower, pattern.upper
    # D^-1 U and, in rows of A itself, L D^-1
    above = A.take(factors, upper) / A.take(pivots, pattern.rows[upper])
    if A.hermitian:
        back = np.empty(len(pattern.rows), np.int32)
        back[upper] = np.arange(len(upper), dtype=np.int32)
        below = host.conj(A.take(above, back[pattern.mirror[lower]]))
    else:
        units = A.take(A.units, pattern.rows[lower]) / A.take(A.units, pattern.cols[lower])
        below = A.take(factors, lower) * units / A.take(pivots, pattern.cols[lower])
    if sweeps is not None:
        damping = _damping(A, below, above, sweeps)
        below, above = damping * below, damping * above
        if A.known and damping.min() < 1:
            note = (
                f"triangles damped by {damping.min():.2g} because sweeps would grow: apply='exact' may be much stronger"
            )
    target = A.target
    inverse = DiagonalOperator(target.bk, target.placed(host.reshape(scale / (pivots * A.units), (-1, pattern.n))))
    left, right = A.part(target.bk, upper, above), A.part(target.bk, lower, below)
    return TripleProduct(triangle_solve(left, sweeps), inverse, triangle_solve(right, sweeps)), note


def _damping(A: UnitDiagonalMatrix, below: Array, above: Array, sweeps: int) -> Array:
    """`(1,)` or `(systems, 1)`: t <= 1 such that sweeps with t S do not increase the error, for both triangles S.

    The error is measured as |t S|^(sweeps + 1) times ones, in the root mean square. M stays positive definite, and is
    that of Jacobi at worst. Iterations of CG with 2 sweeps for the squared Laplace operator with 900 unknowns: 370 with
    damping, above 4000 without, 500 without a preconditioner.
    """
    host, shape = A.host, (1,) if A.last == 0 else (A.systems, 1)
    damping = host.full(shape, 1, np.empty(0, host.dtype(A.values)).real.dtype, A.values)
    for entries, values in ((A.pattern.lower, below), (A.pattern.upper, above)):
        if not len(entries):
            continue
        S = A.part(host, entries, host.abs(values))
        v = host.full((A.systems, A.pattern.n), 1, host.dtype(damping), A.values)
        for _ in range(sweeps + 1):
            v = S.apply(v)
        growth = host.reshape(host.norm(v), shape) / float(np.sqrt(A.pattern.n))
        t = host.maximum(growth, host.full_like(growth, 1)) ** (-1 / (sweeps + 1))
        t = host.where(host.isfinite(growth), t, host.zeros_like(t))
        damping = host.where(t < damping, t, damping)
    return host.astype(damping, host.dtype(A.values))


def triangle_solve(S: SparseMatrix, sweeps: int | None) -> Operator:
    """Inverse of I + S for a strictly triangular S, approximate by sweeps, or exact if `sweeps` is None."""
    if sweeps is not None:
        return TriangleSweeps(S, sweeps)
    return HostSolve(S) if S.bk.on_host else LevelSolve.of(S)


@storable("sweeps over a triangle")
@dataclass(eq=False, repr=False)
class TriangleSweeps(Composed):
    """Jacobi sweeps (a truncated Neumann series) for `(I + S) y = r`: `I - S + S^2 - ...`; one product with S each.

    The result is always finite, and exact after as many sweeps as there are levels. The factors of a Hermitian matrix
    get polynomials that are adjoint to each other, so that with positive pivots M is always positive definite.

    Source: Anzt, Chow and Dongarra, Iterative sparse triangular solves for preconditioning (2015).
    """

    parts = ("strict",)

    strict: SparseMatrix
    sweeps: int

    def __post_init__(self) -> None:
        check_integer("sweeps", self.sweeps, 1, MOST_STEPS)
        super().__post_init__()

    def transpose(self) -> TriangleSweeps:
        return replace(self, strict=self.strict.transpose())

    def apply(self, x: Array) -> Array:
        y = x
        for _ in range(self.sweeps if self.strict.structure.nnz else 0):
            y = self.bk.materialize(x - self.strict.apply(y))
        return y
