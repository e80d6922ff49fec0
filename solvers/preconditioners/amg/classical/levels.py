"""Levels of classical AMG."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..galerkin import adjoint
from ..hierarchy import HostLevel
from ..settings import BOUND, AmgSettings
from .dust import without_dust
from .interpolation import Rows, prolongation
from .rows import reduced, repeated, selected
from .rule import ClassicalRule
from .splitting import pmis
from .strength import couplings, strong_entries, turned_rows

_MOST_COARSE = 0.9  # of the unknowns: where more are coarse, another level does not pay


def classical_levels(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, components: np.ndarray | None = None
) -> list[HostLevel]:
    """Levels, finest first, until one is small or cannot be coarsened.

    Args:
        A: of double precision.
        hermitian: is A Hermitian? Then the restriction is the adjoint of the prolongation; else its transpose, too.
        components: `(n,)`, a label of each unknown where it is one of several at a point: only those of one label are
            interpolated from each other. The products with which coarse matrices are made are with all of A.
    """
    A, found = _canonical(A), list[HostLevel]()
    while A.shape[0] > settings.max_coarse and len(found) + 1 < settings.max_levels:
        strong, coarse, P = _coarsened(A, settings, hermitian, components, len(found))
        if not 0 < P.shape[1] <= _MOST_COARSE * P.shape[0]:
            break
        P.sort_indices()
        R, rule = adjoint(P), ClassicalRule.of(A, P, coarse, strong, components)
        found.append(HostLevel(A, P, R, rule, BOUND[hermitian], coarse, strong))
        A = without_dust(_canonical(sp.csr_array(R @ sp.csr_array(A @ P))), P, A)
        components = None if components is None else components[coarse]
    return [*found, HostLevel(A)]


def _coarsened(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, components: np.ndarray | None, level: int
) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """The strong entries, the coarse unknowns and the prolongation of a level."""
    own = None if components is None else repeated(components, A) == components.take(A.indices)
    B = turned_rows(A if own is None else selected(A, np.flatnonzero(own)))
    coupled = couplings(B)
    sums = reduced(np.add, coupled, B.indptr, 0.0)
    strong = strong_entries(B, coupled, sums, settings.threshold)
    places = np.flatnonzero(strong)
    coarse = pmis(selected(B, places, np.ones(len(strong), np.float32)), level)
    P = prolongation(Rows(B, coupled, sums, strong), coarse, hermitian)
    if own is not None:
        own[own] = strong
    return strong if own is None else own, coarse, P


def _canonical(A: sp.csr_array) -> sp.csr_array:
    """A with sorted rows and no place twice; a copy if it has not."""
    if not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    return A
