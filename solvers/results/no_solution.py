"""Why a solve has failed that no method could have solved: b is outside of the range of A."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ...sparse import Matrix
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
    n = matrix.shape[0]
    if n <= _SMALL:
        dense = matrix.toarray() if sp.issparse(matrix) else matrix
        if not np.isfinite(dense).all():
            return np.zeros(len(b))
        left, sizes, _ = np.linalg.svd(dense.astype(b.dtype if dense.dtype.kind != "c" else complex))
        null = left[:, sizes <= n * eps * sizes.max(initial=0)]
        return np.linalg.norm(b @ null.conj(), axis=1)
    wide = sp.csr_array(matrix, dtype=np.result_type(matrix.dtype, np.float64))
    count, labels = connected_components(wide, directed=False)
    ones = np.ones(n)
    sums, sizes = abs(wide.conj().T @ ones), abs(wide).T @ ones

    def length(v: np.ndarray) -> np.ndarray:
        return np.sqrt(np.bincount(labels, abs(v) ** 2, count))

    null = length(sums) <= _ROUNDING * eps * length(sizes)
    totals = np.stack([np.bincount(labels, row.real, count) + 1j * np.bincount(labels, row.imag, count) for row in b])
    return np.linalg.norm(np.abs(totals)[:, null] / np.sqrt(np.bincount(labels))[null], axis=1)
