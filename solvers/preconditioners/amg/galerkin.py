"""Galerkin products of a known matrix with given tentative prolongations, by SciPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ....backends import get_backend
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats.making.build import from_csr
from ..cycle.scales import scales_of, times_diagonals
from .hierarchy import HostLevel
from .settings import OMEGA, AmgSettings


def galerkin_levels(
    A: sp.csr_array, tentative: Sequence[sp.csr_array], settings: AmgSettings, hermitian: bool
) -> list[HostLevel]:
    """Galerkin levels, finest first.

    Cost: two products of sparse matrices on each level, one more and 15 with vectors for smoothing.
    """
    found = []
    for T in tentative:
        rho = eigenvalue_bound(A)
        P = smoothed_prolongation(A, T, rho) if settings.smooths else T
        R = adjoint(P if hermitian or not settings.smooths else smoothed_prolongation(adjoint(A), T, rho))
        found.append(HostLevel(A, P, R, T, rho))
        A = sp.csr_array(R @ sp.csr_array(A @ P))
        A.sum_duplicates()
    return [*found, HostLevel(A)]


def smoothed_prolongation(A: sp.csr_array, T: sp.csr_array, rho: float) -> sp.csr_array:
    """`(I - omega / rho D⁻¹ A) T`, with D the diagonal of A where it is not zero."""
    return sp.csr_array(T - OMEGA / rho * (relative(A) @ T))


def adjoint(A: sp.csr_array) -> sp.csr_array:
    """Conjugate transpose."""
    return sp.csr_array(A.conj().T)


def eigenvalue_bound(A: sp.csr_array) -> float:
    """Upper bound of the eigenvalues of D⁻¹ A; 1 for a zero matrix."""
    host, lengths = get_backend("numpy"), np.diff(A.indptr)
    sums = np.bincount(np.repeat(np.arange(A.shape[0]), lengths), np.abs(relative(A).data), minlength=A.shape[0])
    left, right = scales_of(A, False)
    matrix = from_csr(host, times_diagonals(left, A, right), prune=False, format="csr")
    rho = float(bounded_eigenvalue(host, matrix, sums.max(initial=0, keepdims=True))[0])
    return rho if rho > 0 else 1.0


def relative(A: sp.csr_array) -> sp.csr_array:
    """D⁻¹ A, with 1 for zeros of the diagonal D."""
    diagonal = A.diagonal()
    inverse = 1 / np.where(diagonal == 0, 1, diagonal)
    return sp.csr_array((A.data * np.repeat(inverse, np.diff(A.indptr)), A.indices, A.indptr), A.shape)
