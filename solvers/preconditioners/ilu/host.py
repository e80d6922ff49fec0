"""Incomplete factors of known matrices on the host: zero-fill ones by NumPy, those with a drop tolerance by SciPy."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spilu

from ....sparse import Matrix, UnsupportedOperation
from ....sparse.analysis.symmetry import CHOSEN
from ....sparse.formats import from_csr
from ....sparse.formats.entries.order import rows_first
from ....sparse.operators.concrete import in_scipy
from ...diagonal import DiagonalOperator
from ..checks import check_number
from ..operators import Preconditioner, TripleProduct, reordered
from ..pipeline import Target
from .apply import triangle_solve
from .pattern import Pattern, UnitDiagonalMatrix, check_finite_rows

LEAST_PIVOT = 0.01  # of the diagonal
_SHIFTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


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
        f"{tried} of the diagonal makes pivots that are at least {LEAST_PIVOT:.0%} of the diagonal"
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
    return (size >= LEAST_PIVOT).all(axis=1) & np.isfinite(factors).all(axis=1)


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


def ilu_with_dropping(
    own: Matrix, target: Target, apply: str, sweeps: int | None, tolerance: float, fill_factor: float
) -> Preconditioner:
    """ILU with a drop tolerance and row exchanges.

    Source: Li and Shao, A supernodal approach to incomplete LU factorization with partial pivoting, TOMS 37 (2011).
    """
    check_number("fill_factor", fill_factor, 0)
    if tolerance != 0:
        check_number("drop_tolerance", tolerance, 0)
    A = in_scipy(own)
    if A is None or isinstance(A, tuple):
        got = "of a matrix whose values are not known yet" if A is None else f"of {len(A)} systems"
        raise UnsupportedOperation(
            f"A drop tolerance was given for a factorisation {got}; expected one matrix whose values are known, "
            "because the pattern of the factors depends on them. Leave drop_tolerance out for the pattern of A."
        )
    check_finite_rows(A.data, np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)))  # SuperLU would not terminate.
    try:
        factors = spilu(sp.csc_array(A), drop_tol=float(tolerance), fill_factor=float(fill_factor))
    except RuntimeError as error:
        raise ValueError(
            "SciPy's spilu found the matrix singular, or its factors too large. Use 'jacobi', or shift A's diagonal."
        ) from error
    upper = sp.csr_array(factors.U)
    pivots = upper.diagonal()
    if not (pivots != 0).all() or not np.isfinite(upper.data).all():
        raise ValueError("SciPy's spilu made a pivot of zero: the matrix is singular. Use 'jacobi'.")
    unit = (sp.csr_array(sp.tril(factors.L, -1)), sp.csr_array(sp.diags_array(1 / pivots) @ sp.triu(upper, 1)))
    triangles = [from_csr(target.bk, S.astype(own.dtype), prune=False, like=target.like) for S in unit]
    inverse = DiagonalOperator(target.bk, target.array((1 / pivots)[None]))
    lower, upper_unit = (triangle_solve(S, sweeps) for S in triangles)
    inner = TripleProduct(upper_unit, inverse, lower)
    v = np.random.default_rng(3).standard_normal(A.shape[0]).astype(upper.dtype)
    forward, backward = factors.solve(v), factors.solve(v, "H")
    seems_hermitian = np.linalg.norm(forward - backward) <= CHOSEN * np.linalg.norm(forward)
    entries = sum(S.nnz for S in triangles)
    settings = {"drop_tolerance": tolerance, "fill_factor": fill_factor, "apply": apply}
    settings |= {} if sweeps is None else {"sweeps": sweeps}
    M = reordered(inner, np.argsort(factors.perm_r), np.argsort(factors.perm_c))
    return Preconditioner(
        M, "ilu", None if seems_hermitian else False,
        memory=entries + len(pivots), work=entries * (sweeps or 1) + len(pivots), settings=tuple(settings.items()),
    )  # fmt: skip
