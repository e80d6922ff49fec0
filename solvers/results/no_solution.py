"""Why a solve has failed that no method could have solved: b is outside of the range of A."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ...sparse import Matrix
from ...sparse.equilibrate import equilibrated, scales
from ..iteration.status import Status
from ..setup.problem import Problem
from .result import SolveResult

_ROUNDING = 4  # times the rounding unit of the entries: what the sum of entries that cancel may be
_SMALL = 300  # unknowns up to which all left null vectors are found, by a singular value decomposition


def why_no_solution(problem: Problem, result: SolveResult) -> str | None:
    """In words, where a known matrix shows that no x meets the tolerance; None if it does not, or nothing failed.

    For left null vectors w, `A^H w = 0`, each residual has the part of b in them. Those that are looked for: the
    constants on each connected part of the matrix, which a row of zeros is too, and for small matrices all. Costs one
    pass over the entries, after a failure only.
    """
    A, bk = problem.A.without_offset, problem.bk
    if problem.compiled or problem.several or problem.given is not None or problem.A.offset:
        return None
    status = bk.to_numpy(result.status).reshape(-1)
    failed = status != Status.CONVERGED
    if not failed.any() or not isinstance(A, Matrix) or A.systems is not None:
        return None
    matrix, b = A.known(), bk.to_numpy(problem.b)
    if matrix is None or matrix.shape[0] != matrix.shape[1]:
        return None
    bound = bk.to_numpy(result.tolerance).reshape(-1)
    with np.errstate(all="ignore"):
        part = _part_outside(matrix, b.astype(np.result_type(b.dtype, np.float64)), np.finfo(A.dtype).eps)
        hopeless = failed & (part > bound)
    if not hopeless.any():
        return None
    return f"no x leaves a residual norm below {part[hopeless].max():.3e}, as b is outside of the range of the matrix"


def _part_outside(matrix: Any, b: np.ndarray, eps: float) -> np.ndarray:
    """`(batch,)`: the norm of the part of each row of b in the left null vectors that are found."""
    if not np.isfinite(matrix.data if sp.issparse(matrix) else matrix).all():
        return np.zeros(len(b))
    n = matrix.shape[0]
    wide = sp.csr_array(matrix, dtype=np.result_type(matrix.dtype, np.float64))
    if n <= _SMALL:
        empty = abs(wide).sum(axis=1) == 0  # looked at apart: rounding would mix them with other null vectors
        parts = b[:, empty], b[:, ~empty] @ _left_null_vectors(wide[~empty], eps).conj()
        return np.linalg.norm(np.concatenate(parts, axis=1), axis=1)
    count, labels = connected_components(wide, directed=False)
    turned = wide.conj().T
    open_part = np.bincount(labels, ~_cancels(turned, np.ones(n), _ROUNDING * eps), count) > 0
    totals = np.stack([np.bincount(labels, row.real, count) + 1j * np.bincount(labels, row.imag, count) for row in b])
    return np.linalg.norm((np.abs(totals) / np.sqrt(np.bincount(labels)))[:, ~open_part], axis=1)


def _left_null_vectors(matrix: Any, eps: float) -> np.ndarray:
    """`(m, count)`: orthonormal w with `A^H w = 0`.

    Small singular values tell of units, too: those of R A C do not, and `w = R v` for its null vectors v.
    """
    n = matrix.shape[1]
    own = n * np.finfo(matrix.dtype).eps  # rounding of what is computed here
    rows, columns = scales(matrix)
    scaled = equilibrated(matrix, rows, columns)
    left, sizes, _ = np.linalg.svd(scaled.toarray(), full_matrices=False)
    found, _ = np.linalg.qr(rows[:, None] * left[:, sizes <= n * eps * sizes.max(initial=0)])
    v = found / rows[:, None]
    v[np.abs(v) <= own * np.abs(v).max(axis=0, initial=0)] = 0  # or R would make something of rounding
    null = _cancels(scaled.conj().T, v, _ROUNDING * (eps + own)).all(axis=0)
    w = rows[:, None] * v[:, null]
    return np.asarray(w / np.linalg.norm(w, axis=0))


def _cancels(A: Any, v: np.ndarray, rounding: float) -> np.ndarray:
    """Is each entry of `A v` zero, up to rounding of the terms that it is the sum of?"""
    return np.asarray(np.abs(A @ v) <= rounding * (abs(A) @ np.abs(v)))
