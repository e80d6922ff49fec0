"""Diagnosis of inconsistent systems: b is outside the range of A."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from ...backends import Array, Backend, get_backend
from ...sparse import FunctionOperator, Matrix, Operator
from ...sparse.analysis.equilibrate import equilibrated, scales
from ...sparse.analysis.facts import component_labels
from ...sparse.analysis.rounding import ROWS, closed_components, half_units, of_region, rounded_row_sums
from ...sparse.operators.concrete import as_matrix
from ..methods.direct.singular import Singularity
from ..read.system import System
from ..run.outcome import Outcome, Status, has_failed
from .result import SolveResult

_SMALL = 300  # unknowns up to which all left null vectors are found, by a singular value decomposition
_FAR = 10  # times n eps: matrices whose condition is below the inverse are regular for sure
_SAME = 1e-3  # relative: what rounding of norms may be


def why_no_solution(system: System, b: Array, result: SolveResult) -> str | None:
    """Explain that no x meets the tolerance, if a known matrix shows it; else None.

    Costs what `unreachable` costs, after a failure only.

    Args:
        b: the right-hand side that was solved for.
    """
    bk = system.bk
    if system.compiled or system.several or system.given is not None or system.cut is not None:
        return None  # b that is cut is not gathered, and no process has all of it
    failed = has_failed(bk.to_numpy(result.status).reshape(-1))
    part = unreachable(system.A, bk.to_numpy(b), failed)
    if part is None:
        return None
    reached, bound = (bk.to_numpy(a).reshape(-1) for a in (result.residual_norm, result.tolerance))
    with np.errstate(all="ignore"):
        hopeless = failed & (part > bound) & (part <= (1 + _SAME) * reached)  # no bound above what was reached
    if not hopeless.any():
        return None
    least = np.minimum(part, reached)[hopeless].max()
    return f"no x leaves a residual norm below {least:.3e}, as b is outside of the range of the matrix"


def without_refuted(
    bk: Backend, A: Operator, right_hand_side: Callable[[], Array], rtol: Array, atol: Array, outcome: Outcome
) -> Outcome:
    """Withdraw convergence by attainable accuracy alone, if the matrix shows that the system is inconsistent.

    Such x have large null-space components, which make the attainable residual large. Where factors have
    shown null vectors, b was judged by these.

    Args:
        right_hand_side: makes that which was solved for.

    Cost: where the precision has decided, of matrices of at most 300 unknowns an LU factorisation, see `unreachable`.
    """
    if A.shape[0] > _SMALL or len(outcome.status.shape) > 2:
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
    """`(batch,)`: norm of the component of b in the detected left null space of A; None for unknown A.

    For left null vectors w, `A^H w = 0`, each residual has the part of b in them. Those that are looked for: the
    constants on each connected part of the matrix, which a row of zeros is too, and of small matrices all.

    Args:
        asked: bool `(batch,)`; the part of the other systems is 0.

    Cost: one pass over the entries, and of matrices of at most 300 unknowns a singular value decomposition, per matrix.
    """
    known = _entries(A) if asked.any() and not A.offset else None
    if known is None:
        return None
    wide = b.astype(np.result_type(b.dtype, np.float64))
    part = np.zeros(len(b))
    with np.errstate(all="ignore"):
        if isinstance(known, tuple) or getattr(known, "ndim", 2) == 3:
            for i in np.flatnonzero(asked):
                part[i] = _part_outside(known[i], wide[i : i + 1])[0]
        else:
            part[asked] = _part_outside(known, wide[asked])
    return part


def _entries(A: Operator) -> Any:
    """The known square matrix as SciPy's or NumPy's, one per system for a batch."""
    A = A.without_offset
    if A.shape[0] != A.shape[1] or A.bk.communicator is not None:
        return None
    if isinstance(A, FunctionOperator) and A.shape[0] <= _SMALL:
        try:
            A = as_matrix(A)
        except Exception:  # of a user's function that is looked at once more: what became of the solve is told without
            return None
    return A.known() if isinstance(A, Matrix) else None


def _part_outside(matrix: Any, b: np.ndarray) -> np.ndarray:
    """`(batch,)`: norm of the component of each row of b in the detected left null space."""
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        return np.zeros(len(b))
    n, matrix = matrix.shape[0], sp.csr_array(matrix)
    if n <= _SMALL and _is_regular(matrix):
        return np.zeros(len(b))
    if n <= _SMALL:
        empty = abs(matrix).sum(axis=1) == 0  # looked at apart: rounding would mix them with other null vectors
        parts = b[:, empty], b[:, ~empty] @ _left_null_vectors(matrix[~empty]).conj()
        return np.linalg.norm(np.concatenate(parts, axis=1), axis=1)
    count, labels = component_labels(matrix)
    closed = closed_components(rounded_row_sums(matrix.T), labels, count, matrix.dtype)
    totals = np.stack([np.bincount(labels, row.real, count) + 1j * np.bincount(labels, row.imag, count) for row in b])
    return np.linalg.norm((np.abs(totals) / np.sqrt(np.bincount(labels)))[:, closed], axis=1)


def _is_regular(matrix: Any) -> bool:
    """Is it certainly regular, by LAPACK's condition estimate, which is cheaper than singular values?"""
    n, kind = matrix.shape[0], np.result_type(matrix.dtype, np.float64)
    dense = matrix.toarray().astype(kind)
    factor, estimate = lapack.get_lapack_funcs(("getrf", "gecon"), (dense,))
    factors, _, failed = factor(dense)
    condition, _ = estimate(factors, np.linalg.norm(dense, 1)) if not failed and n else (0.0, 0)
    return bool(condition > _FAR * max(n, 1) * np.finfo(matrix.dtype).eps)


def _left_null_vectors(matrix: Any) -> np.ndarray:
    """`(m, count)`: orthonormal w with `A^H w = 0`, up to what the rounding of the entries allows.

    Small singular values tell of units, too: those of R A C do not, and `w = R u` for its null vectors u.
    """
    n = matrix.shape[1]
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    own = n * np.finfo(wide.dtype).eps  # rounding of what is computed here
    rows, columns = scales(wide)
    scaled = equilibrated(wide, rows, columns)
    units = _with_data(matrix, half_units(get_backend("numpy"), matrix.data).astype(np.float64))
    allowed = equilibrated(units, rows, columns)
    left, sizes, right = np.linalg.svd(scaled.toarray(), full_matrices=False)
    rounding = np.sum(np.abs(left) * (allowed @ np.abs(right).T), axis=0)
    small = sizes <= of_region(matrix.dtype) * rounding + own * sizes.max(initial=0)
    found, _ = np.linalg.qr(rows[:, None] * left[:, small])
    v = found / rows[:, None]
    v[np.abs(v) <= own * np.abs(v).max(axis=0, initial=0)] = 0  # or R would make something of rounding
    limit = ROWS * (allowed.T @ np.abs(v)) + 4 * own * (abs(scaled).T @ np.abs(v))
    null = (np.abs(scaled.conj().T @ v) <= limit).all(axis=0)
    w = rows[:, None] * v[:, null]
    return np.asarray(w / np.linalg.norm(w, axis=0))


def _with_data(matrix: Any, data: np.ndarray) -> Any:
    return sp.csr_array((data, matrix.indices, matrix.indptr), matrix.shape)
