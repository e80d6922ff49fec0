"""AMG on patterns: new numbers for a hierarchy that is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse import Operator, SparseMatrix
from ....sparse.operators.concrete import in_scipy
from ..base import Preconditioner
from ..cycle.checked import hermitian_and_double
from ..pipeline import built, entries_of
from ..target import Target
from .as_preconditioner import described, of_levels, small, sparse_form
from .components import entries_within
from .hierarchy import coarsened, galerkin_levels
from .kept import components_kept, covers, known_tentative, order_of, placed, tentative_matrices
from .levels import Tentative, reordered_matrix, rows_in
from .renewed import renewed
from .settings import AmgSettings


def renewal(M: Preconditioner, A: Operator) -> Preconditioner:
    """M for the values of another matrix, whether splittings serve it or not.

    Raises:
        ValueError: M is of another kind or size, or of another pattern.
    """
    found = _updated(M, A, checked=False)
    if found is None:
        raise ValueError(
            f"pattern={M!r} was given for {A!r}, which has entries at other places, or is real where that is complex; "
            "expected a matrix with the same pattern. Leave pattern out to make a new hierarchy."
        )
    return found


def updated(M: Preconditioner, A: Operator) -> Preconditioner | None:
    """M for the values of another matrix, with the same aggregates or the same splittings.

    Known values for which the splittings no longer serve get new ones. None if the pattern has new entries, or the
    matrix is real and the first one was complex.

    Raises:
        ValueError: M is of another kind or size.
    """
    return _updated(M, A, checked=True)


def _updated(M: Preconditioner, A: Operator, checked: bool) -> Preconditioner | None:
    if M.kind != "amg" or M.shape != A.shape:
        raise ValueError(f"New numbers of {A!r} were given for {M!r}; expected an amg preconditioner of that size.")
    if M.dtype.kind == "c" and A.dtype.kind != "c":
        return None
    settings, entries = AmgSettings(**dict(M.settings)), entries_of(A)
    cycle, order = M.inner, order_of(M.inner)
    tentative = tentative_matrices(cycle) or []
    components = components_kept(tentative, order)
    if components is not None:
        entries = entries_within(sparse_form(entries), components)
    if not tentative and A.shape[0] <= settings.max_coarse:
        return built(A, entries, lambda own, target: small(own, target, settings))
    if not covers(cycle, reordered_matrix(sparse_form(entries), order)):
        return None
    return built(
        A, entries, lambda own, target: on_pattern(sparse_form(own), target, tentative, settings, order, checked)
    )


def on_pattern(
    own: SparseMatrix,
    target: Target,
    tentative: Sequence[Operator],
    settings: AmgSettings,
    order: np.ndarray | None = None,
    checked: bool = False,
) -> Preconditioner:
    """Set up on a pattern: by SciPy for known values, else in the library.

    Args:
        checked: are splittings made anew where they do not serve known values?
    """
    known, prolongations = in_scipy(own), [found for T in tentative if (found := known_tentative(T)) is not None]
    if known is None or len(prolongations) < len(tentative):
        given: Any = target.A
        cycle = renewed(reordered_matrix(sparse_form(given), order), tentative, settings, None)
        return described(cycle, own, target, settings, None, order)
    if isinstance(known, sp.csr_array):
        hermitian, wide = hermitian_and_double(known, "amg")
        wide = rows_in(wide, order)
        levels = galerkin_levels(wide, prolongations, settings, hermitian, checked) or coarsened(
            wide, settings, hermitian, None, settings.block_size or 1
        )
        return of_levels(own, target, levels, settings, hermitian, order)
    hermitian = all(hermitian_and_double(one, "amg")[0] for one in known)
    cycle = renewed(reordered_matrix(own, order), placed_at(prolongations, own), settings, hermitian)
    return described(target.moved(cycle), own, target, settings, hermitian, order)


def placed_at(tentative: Sequence[Tentative], A: SparseMatrix) -> list[Operator]:
    """Convert to the library and device of A."""
    like = A.anchor()
    return [placed(T, A.bk, A.dtype, like) for T in tentative]


def target_within(target: Target, components: np.ndarray) -> Target:
    """The target without entries between different components."""
    return Target(entries_within(sparse_form(entries_of(target.A)), components), target.dtype)
