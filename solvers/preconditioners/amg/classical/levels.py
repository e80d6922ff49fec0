"""Levels of classical AMG."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..galerkin import adjoint
from ..hierarchy import HostLevel
from ..settings import AmgSettings
from .interpolation import Rows, prolongation, without_explosion
from .products import product, sorted_rows
from .red_black import eliminated, red_black_splitting
from .rounding_residues import without_rounding_residues
from .rows import gathered, repeated, row_sums, selected
from .rule import ClassicalRule
from .splitting import first_pass, pmis
from .strength import couplings, strong_entries, threshold_of, with_positive_diagonal

_MOST_COARSE = 0.9  # of the unknowns: where more are coarse, another level does not pay
_MOST_ENTRIES = 15  # in all levels, times those of A: of graphs without geometry each level has more


def classical_levels(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, components: np.ndarray | None = None
) -> list[HostLevel]:
    """Levels, finest first, until one is small or cannot be coarsened.

    Args:
        A: of double precision.
        hermitian: is A Hermitian? Then the restriction is the adjoint of the prolongation; else its transpose, too.
        components: `(n,)`, a label of each unknown where it is one of several at a point: only those of one label are
            interpolated from each other. The products with which coarse matrices are made are with all of A.

    Raises:
        ValueError: coarse matrices get more and more entries.

    Cost: about that of 10 to 20 products of A with itself.
    """
    A, found = _canonical(A), list[HostLevel]()
    theta, most = threshold_of(A, settings), _MOST_ENTRIES * A.nnz
    while A.shape[0] > settings.max_coarse and len(found) + 1 < settings.max_levels:
        colour = red_black_splitting(A)
        without = None if colour is None else eliminated(A, colour, hermitian, components)
        if without is not None:
            found.append(without[0])
            most, A = most - A.nnz, without[1]
            components = None if components is None else components[colour]
            continue
        strong, coarse, P = _coarsened(A, theta, hermitian, components, len(found))
        if not 0 < P.shape[1] <= _MOST_COARSE * P.shape[0]:
            break
        P.sort_indices()
        R, rule = adjoint(P), ClassicalRule.of(A, P, coarse, strong, components)
        found.append(HostLevel(A, P, R, rule, splitting=coarse))
        most -= A.nnz
        A = without_rounding_residues(sorted_rows(_galerkin(A, P, R, most), hermitian), P, A)
        components = None if components is None else components[coarse]
    return [*found, HostLevel(A)]


def _galerkin(A: sp.csr_array, P: sp.csr_array, R: sp.csr_array, most: int) -> sp.csr_array:
    """R A P.

    Raises:
        ValueError: it has more entries than `most`.
    """
    image = product(A, P)
    found = product(R, image) if image.nnz <= 2 * most else image
    if found.nnz > most:
        raise ValueError(
            f"coarsening='classical' has made a level of {A.shape[0]} unknowns with {A.nnz} entries, and the next one "
            f"would have {found.nnz}, as of graphs whose unknowns are all near each other. Use a higher strength, such "
            "as 0.9, or 'jacobi' or 'chebyshev', which suit such matrices."
        )
    return found


def _coarsened(
    A: sp.csr_array, theta: float, hermitian: bool, components: np.ndarray | None, level: int
) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """The strong entries, the coarse unknowns and the prolongation of a level."""
    own = None if components is None else repeated(components, A) == gathered(components, A.indices)
    B = with_positive_diagonal(A if own is None else selected(A, own))
    coupled = couplings(B)
    sums = row_sums(coupled, B)
    strong = strong_entries(B, coupled, sums, theta)
    S = selected(B, strong, np.ones(len(strong), np.float32))
    coarse = first_pass(S) if S.nnz <= np.iinfo(np.int32).max else pmis(S, level)
    strong = without_explosion(B, strong, coarse, coupled)
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
