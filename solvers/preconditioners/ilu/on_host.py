"""Zero-fill incomplete factors of known matrices, by NumPy."""

from __future__ import annotations

import numpy as np

from ....sparse.formats.entries.order import rows_first
from .pattern import Pattern
from .scaled import UnitDiagonalMatrix

LEAST_PIVOT = 0.01  # of the diagonal
_SHIFTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def incomplete_factors(
    A: UnitDiagonalMatrix, shift: float | str, definite: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Zero-fill factors in one array, the pivots, and the largest shift that was needed.

    The pivots of Hermitian matrices must keep the sign of the diagonal, as CG needs it, those of others be no smaller
    than 1 % of it; else the diagonal is multiplied by 1 + shift, of each system on its own. Where no shift keeps the
    signs the matrix is indefinite, and they may change.

    Args:
        shift: a number, or "auto" for the smallest of a list.
        definite: accept no other sign than that of the diagonal.

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
        f"{tried} of the diagonal makes pivots that are at least {LEAST_PIVOT:.0%} of the diagonal"
        f"{' and of its sign. Is the matrix positive definite?' if definite else '.'} Use 'jacobi', or 'ilu' with "
        "drop_tolerance=1e-3, which exchanges rows."
    )


def _are_good(
    A: UnitDiagonalMatrix, factors: np.ndarray, values: np.ndarray, keep_sign: np.ndarray | bool
) -> np.ndarray:
    """bool `(systems,)`: are pivots large enough, and where `keep_sign` of the sign of the diagonal?"""
    pivots, size = factors[:, A.pattern.diagonal], np.abs(factors[:, A.pattern.diagonal])
    signed = np.broadcast_to(keep_sign, len(factors))[:, None] & (values[:, A.pattern.diagonal] != 0)
    size = np.where(signed, pivots.real, size)
    return (size >= LEAST_PIVOT).all(axis=1) & np.isfinite(factors).all(axis=1)


def zero_fill(pattern: Pattern, values: np.ndarray) -> np.ndarray:
    """F with A = (L + D) D^-1 (D + U) in all places of the pattern, L + D + U = F.

    Values and F are `(nnz,)` or `(systems, nnz)`. f_ij = a_ij - sum of f_ik f_kj / f_kk over k < min(i, j), for all
    entries of a level of min(i, j) at once. Not finite where a pivot is 0. Cost: a few calls of NumPy per level, and
    one pass over the products.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.3.2.
    """
    factors, pairs, levels = values.copy(), pattern.pairs, pattern.levels
    count = int(levels.max(initial=0)) + 1
    when = levels[np.minimum(pattern.rows[pairs.target], pattern.cols[pairs.target])]
    order = rows_first(when, count)
    first, second, target, pivot = (index[order].astype(np.intp) for index in pairs)  # as NumPy indexes with
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
