"""Levels of aggregation AMG: pyamg aggregates, prolongations and coarse matrices are made here."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .galerkin import adjoint, eigenvalue_bound, smoothed_prolongation
from .hierarchy import HostLevel, without_duplicates
from .settings import AmgSettings

_SWEEPS = 4  # of Gauss-Seidel, which turn constants into better near-null-space candidates


def aggregated_levels(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, near_nullspace: np.ndarray | None, block_size: int
) -> list[HostLevel]:
    """Levels, finest first, until one is small or cannot be coarsened.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996).
    """
    found: list[HostLevel] = []
    right, left = _candidates(A, hermitian, near_nullspace, block_size)
    while A.shape[0] > settings.max_coarse and len(found) + 1 < settings.max_levels:
        tentative, coarse_right, other, coarse_left = _tentative(A, settings, right, left, block_size)
        n = A.shape[0]
        if not 0 < tentative.shape[1] < n:
            break
        rho = eigenvalue_bound(A)
        P = smoothed_prolongation(A, tentative, rho) if settings.smooths else tentative
        R = adjoint(P)
        if other is not None:
            R = adjoint(smoothed_prolongation(adjoint(A), other, rho) if settings.smooths else other)
        found.append(HostLevel(A, P, R, tentative, rho))
        A, right, left = without_duplicates(R @ sp.csr_array(A @ P)), coarse_right, coarse_left
        block_size = right.shape[1]
    return [*found, HostLevel(A)]


def _candidates(
    A: sp.csr_array, hermitian: bool, near_nullspace: np.ndarray | None, block_size: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Near-null-space candidates of A, and for a non-Hermitian A of its adjoint."""
    if near_nullspace is not None:
        given = near_nullspace.astype(A.dtype)
        return given, None if hermitian else given
    ones = np.kron(np.ones((A.shape[0] // block_size, 1), A.dtype), np.eye(block_size, dtype=A.dtype))
    return _relaxed(A, ones), None if hermitian else _relaxed(adjoint(A), ones)


def _relaxed(A: sp.csr_array, columns: np.ndarray) -> np.ndarray:
    """Candidates relaxed on A x = 0; unchanged where that gives zero or non-finite ones."""
    from pyamg.relaxation.relaxation import gauss_seidel

    found = []
    for column in columns.T:
        x = np.ascontiguousarray(column)
        gauss_seidel(A, x, np.zeros_like(x), iterations=_SWEEPS, sweep="symmetric")
        found.append(x if np.isfinite(x).all() and x.any() else column)
    return np.stack(found, 1)


def _tentative(
    A: sp.csr_array, settings: AmgSettings, right: np.ndarray, left: np.ndarray | None, block_size: int
) -> tuple[sp.csr_array, np.ndarray, sp.csr_array | None, np.ndarray | None]:
    """Tentative prolongations for A and for its adjoint, each with the candidates on the next coarser level."""
    from pyamg.aggregation import aggregate, fit_candidates
    from pyamg.strength import symmetric_strength_of_connection

    blocks = A if block_size == 1 else sp.bsr_array(A, blocksize=(block_size, block_size))
    together = aggregate.standard_aggregation(symmetric_strength_of_connection(blocks, theta=settings.threshold))[0]
    T, coarse_right = fit_candidates(together, right)
    if left is None:
        return without_duplicates(T), coarse_right, None, None
    other, coarse_left = fit_candidates(together, left)
    return without_duplicates(T), coarse_right, without_duplicates(other), coarse_left
