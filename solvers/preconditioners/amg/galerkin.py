"""Galerkin products of a known matrix with given tentative prolongations, by SciPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ....backends import get_backend
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats.making.build import from_csr
from ..cycle.scales import scales_of, times_diagonals
from .classical.products import product, sorted_rows
from .classical.red_black import eliminated
from .classical.reuse import LEVELS, is_reusable
from .classical.rounding_residues import without_rounding_residues
from .classical.rows import repeated, row_sums
from .classical.rule import ClassicalRule
from .classical.strength import threshold_of
from .hierarchy import HostLevel, Tentative
from .settings import OMEGA, AmgSettings


def galerkin_levels(
    A: sp.csr_array, tentative: Sequence[Tentative], settings: AmgSettings, hermitian: bool, checked: bool = False
) -> list[HostLevel] | None:
    """Galerkin levels, finest first.

    Args:
        checked: None where the splittings of classical levels no longer serve A, see `is_reusable`.

    Cost: two products of sparse matrices on each level, one more and 15 with vectors for smoothing.
    """
    found: list[HostLevel] = []
    theta = threshold_of(A, settings)
    for T in tentative:
        if isinstance(T, ClassicalRule):
            looked_at = sum(not level.exact for level in found)
            if checked and looked_at < LEVELS and not is_reusable(T, A, theta):
                return None
            coarse = T.coarse
            without = eliminated(A, coarse, hermitian) if T.keeps_all(A) else None
            if without is not None:
                found.append(without[0])
                A = without[1]
                continue
            found.append(_interpolated(A, T, coarse))
        else:
            found.append(_smoothed(A, T, settings, hermitian))
        below = sorted_rows(product(found[-1].R, product(A, found[-1].P)), hermitian)
        A = without_rounding_residues(below, found[-1].P, A) if settings.is_classical else below
    return [*found, HostLevel(A)]


def _interpolated(A: sp.csr_array, rule: ClassicalRule, coarse: np.ndarray) -> HostLevel:
    P = rule.prolongation(A)
    return HostLevel(A, P, adjoint(P), rule, splitting=coarse)


def _smoothed(A: sp.csr_array, T: sp.csr_array, settings: AmgSettings, hermitian: bool) -> HostLevel:
    rho = eigenvalue_bound(A)
    P = smoothed_prolongation(A, T, rho) if settings.smooths else T
    R = adjoint(P if hermitian or not settings.smooths else smoothed_prolongation(adjoint(A), T, rho))
    return HostLevel(A, P, R, T, rho)


def smoothed_prolongation(A: sp.csr_array, T: sp.csr_array, rho: float) -> sp.csr_array:
    """`(I - omega / rho D⁻¹ A) T`, with D the diagonal of A where it is not zero."""
    return sp.csr_array(T - OMEGA / rho * (relative(A) @ T))


def adjoint(A: sp.csr_array) -> sp.csr_array:
    """Conjugate transpose."""
    return sp.csr_array(A.conj().T)


def eigenvalue_bound(A: sp.csr_array) -> float:
    """Upper bound of the eigenvalues of D⁻¹ A; 1 for a zero matrix."""
    host, sums = get_backend("numpy"), row_sums(np.abs(relative(A).data), A)
    left, right = scales_of(A, False)
    matrix = from_csr(host, times_diagonals(left, A, right), prune=False, format="csr")
    rho = float(bounded_eigenvalue(host, matrix, sums.max(initial=0, keepdims=True))[0])
    return rho if rho > 0 else 1.0


def relative(A: sp.csr_array) -> sp.csr_array:
    """D⁻¹ A, with 1 for zeros of the diagonal D."""
    diagonal = A.diagonal()
    inverse = 1 / np.where(diagonal == 0, 1, diagonal)
    return sp.csr_array((A.data * repeated(inverse, A), A.indices, A.indptr), A.shape)
