"""Inconsistent systems, in which b has a component outside the range of A, so that no x meets the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from ...backends import Array, Backend, get_backend
from ...sparse import FunctionOperator, Matrix, Operator
from ...sparse.analysis.canonical import equilibrated, scales
from ...sparse.analysis.facts import component_labels
from ...sparse.analysis.singular import ROWS, closed_components, half_units, of_region, rounded_row_sums
from ...sparse.operators.concrete import as_matrix
from ..factors.singularity import Singularity
from ..read.system import System
from ..run.outcome import Outcome, Status, has_failed
from .result import SolveResult

SMALL = 300  # unknowns up to which all left null vectors are found, by a singular value decomposition
_FAR = 10  # reciprocal condition number relative to n eps, above which a matrix is certainly regular
_SAME = 1e-3  # relative rounding error of norms


def why_no_solution(system: System, b: Array, result: SolveResult) -> str | None:
    """Explain that no x meets the tolerance, if a known matrix shows it; else None.

    Cost: that of `unreachable`, after a failure only.
    """
    bk = system.bk
    if system.compiled or system.several or system.given is not None or system.cut is not None:
        return None  # no process has the whole of a distributed b
    failed = has_failed(bk.to_numpy(result.status).reshape(-1))
    part = unreachable(system.A, bk.to_numpy(b), failed)
    if part is None:
        return None
    reached, bound = (bk.to_numpy(a).reshape(-1) for a in (result.residual_norm, result.tolerance))
    with np.errstate(all="ignore"):
        hopeless = failed & (part > bound) & (part <= (1 + _SAME) * reached)  # part is a lower bound of it
    if not hopeless.any():
        return None
    least = np.minimum(part, reached)[hopeless].max()
    return f"no x leaves a residual norm below {least:.3e}, because b is outside the range of A"


def without_refuted(
    bk: Backend, A: Operator, right_hand_side: Callable[[], Array], rtol: Array, atol: Array, outcome: Outcome
) -> Outcome:
    """Withdraw convergence by attainable accuracy alone, if the matrix shows that the system is inconsistent.

    Such x have large null-space components, which make the attainable residual large. Where the factors revealed null
    vectors, b was already compared with these.

    Cost: for such solves with at most 300 unknowns an LU factorisation, see `unreachable`.
    """
    if A.shape[0] > SMALL or len(outcome.status.shape) > 2:
        return outcome
    limited = (outcome.status == int(Status.CONVERGED)) & (outcome.attainable > 0)
    limited = limited & (outcome.singular != int(Singularity.SINGULAR))
    if not bk.any(limited):
        return outcome
    b = right_hand_side()
    part = unreachable(A, bk.to_numpy(b), bk.to_numpy(limited).reshape(-1))
    if part is None:
        return outcome
    asked = bk.maximum(rtol * bk.norm(b), atol)
    failed = limited & bk.asarray(part[:, None] > bk.to_numpy(asked), like=b)
    return outcome._replace(
        status=bk.where(failed, int(Status.STAGNATED), outcome.status),
        attainable=bk.where(failed, 0 * outcome.attainable, outcome.attainable),
        bound=bk.where(failed, asked, outcome.bound),
    )


def unreachable(A: Operator, b: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """`(batch,)`: norm of the component of b in left null vectors w of A, `A^H w = 0`; None for unknown A.

    Every residual has that component. The vectors are the constants on each connected component of the matrix, of which
    a zero row is one; for small matrices they are all left null vectors.

    Args:
        asked: bool `(batch,)`, the systems to examine; the result is 0 for the others.

    Cost: one pass over the entries, and for matrices of at most 300 unknowns a singular value decomposition each.
    """
    known = _known_matrices(A) if asked.any() and not A.offset else None
    if known is None:
        return None
    wide = b.astype(np.result_type(b.dtype, np.float64))
    part = np.zeros(len(b))
    with np.errstate(all="ignore"):
        if isinstance(known, tuple) or getattr(known, "ndim", 2) == 3:
            for i in np.flatnonzero(asked):
                part[i] = _norms_outside_range(known[i], wide[i : i + 1])[0]
        else:
            part[asked] = _norms_outside_range(known, wide[asked])
    return part


def _known_matrices(A: Operator) -> Any:
    A = A.without_offset
    if A.shape[0] != A.shape[1] or A.bk.communicator is not None:
        return None
    if isinstance(A, FunctionOperator) and A.shape[0] <= SMALL:
        try:
            A = as_matrix(A)
        except Exception:  # An error of the user's function leaves the solve without a diagnosis.
            return None
    return A.known() if isinstance(A, Matrix) else None


def _norms_outside_range(matrix: Any, b: np.ndarray) -> np.ndarray:
    """`(batch,)`: norm of the component of each row of b in the detected left null space."""
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        return np.zeros(len(b))
    n, matrix = matrix.shape[0], sp.csr_array(matrix)
    if n <= SMALL and _is_certainly_regular(matrix):
        return np.zeros(len(b))
    if n <= SMALL:
        rows = zeros(matrix, 1)  # Rounding would mix these with other null vectors.
        others = np.setdiff1d(np.arange(n), rows)
        parts = b[:, rows], b[:, others] @ _left_null_vectors(matrix[others]).conj()
        return np.linalg.norm(np.concatenate(parts, axis=1), axis=1)
    count, labels = component_labels(matrix)
    closed = closed_components(rounded_row_sums(matrix.T), labels, count, matrix.dtype)
    totals = np.stack([np.bincount(labels, row.real, count) + 1j * np.bincount(labels, row.imag, count) for row in b])
    return np.linalg.norm((np.abs(totals) / np.sqrt(np.bincount(labels)))[:, closed], axis=1)


def _is_certainly_regular(matrix: Any) -> bool:
    # LAPACK's estimate of the condition number is cheaper than singular values.
    n, kind = matrix.shape[0], np.result_type(matrix.dtype, np.float64)
    dense = matrix.toarray().astype(kind)
    factor, estimate = lapack.get_lapack_funcs(("getrf", "gecon"), (dense,))
    factors, _, failed = factor(dense)
    reciprocal, _ = estimate(factors, np.linalg.norm(dense, 1)) if not failed and n else (0.0, 0)
    return bool(reciprocal > _FAR * max(n, 1) * np.finfo(matrix.dtype).eps)


def _left_null_vectors(matrix: Any) -> np.ndarray:
    """`(m, count)`: orthonormal w with `A^H w = 0` up to rounding of the entries.

    Small singular values of A may be due to its units, but those of the equilibrated `R A C` are not. Its left null
    vectors u give `w = R u`.
    """
    n = matrix.shape[1]
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    own = n * np.finfo(wide.dtype).eps  # rounding of this computation
    rows, columns = scales(wide)
    scaled = equilibrated(wide, rows, columns)
    data = half_units(get_backend("numpy"), matrix.data).astype(np.float64)
    allowed = equilibrated(sp.csr_array((data, matrix.indices, matrix.indptr), matrix.shape), rows, columns)
    left, sizes, right = np.linalg.svd(scaled.toarray(), full_matrices=False)
    rounding = np.sum(np.abs(left) * (allowed @ np.abs(right).T), axis=0)
    small = sizes <= of_region(matrix.dtype) * rounding + own * sizes.max(initial=0)
    q, _ = np.linalg.qr(rows[:, None] * left[:, small])
    v = q / rows[:, None]
    v[np.abs(v) <= own * np.abs(v).max(axis=0, initial=0)] = 0  # R would amplify rounding errors
    limit = ROWS * (allowed.T @ np.abs(v)) + 4 * own * (abs(scaled).T @ np.abs(v))
    null = (np.abs(scaled.conj().T @ v) <= limit).all(axis=0)
    w = rows[:, None] * v[:, null]
    return np.asarray(w / np.linalg.norm(w, axis=0))


def zeros(matrix: Any, axis: int) -> np.ndarray:
    """Indices of the zero rows (axis 1) or columns (axis 0)."""
    size = abs(matrix).sum(axis=axis) if sp.issparse(matrix) else abs(matrix).max(axis=axis)
    return np.flatnonzero(np.asarray(size).reshape(-1) == 0)
