"""Does the splitting of other numbers still serve a matrix?"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....sparse.formats.entries.integers import places_in_rows, repeat_rows, starts_from
from .interpolation import STRONGEST
from .rows import find_keys, keys_of, reduced
from .rule import ClassicalRule
from .splitting import DOMINATED

LEVELS = 2  # finest levels that are looked at
_SAMPLE = 5000  # rows
_NEW = 0.1  # of the strong couplings of fine unknowns were weak
_LOST = 0.002  # of the fine unknowns take less than ...
_LEAST = 0.05  # ... of their couplings from those that were strong


def is_reusable(rule: ClassicalRule, A: sp.csr_array, threshold: float) -> bool:
    """Are the strong couplings of A, with sorted rows, mostly those of the rule?

    Read off hierarchies of one medium with the numbers of another (constant, smooth, lognormal, blocks, channels; 121
    pairs): all that took more than 2.0 times the iterations of a fresh one are found out, and those of coefficients
    that drift are not.

    Cost: some passes over 5000 rows.
    """
    if rule.keeps_all(A):
        return True  # whatever the numbers are
    rows = _some_fine(rule)
    counts = A.indptr[rows + 1] - A.indptr[rows]
    starts = starts_from(counts)
    own = repeat_rows(starts)
    places = A.indptr[rows][own] + places_in_rows(starts)
    cols, values = A.indices[places], A.data[places]
    on_diagonal = cols == rows[own]
    diagonal = np.zeros(len(rows), A.dtype)
    diagonal[own[on_diagonal]] = values[on_diagonal]
    coupled = _coupled(values, on_diagonal, diagonal, own)
    if rule.components is not None:
        labels = rule.components.entries().cols
        coupled = np.where(labels[cols] == labels[rows][own], coupled, 0)
    sums, least = reduced(np.add, coupled, starts, 0.0), threshold * reduced(np.minimum, coupled, starts, 0.0)
    dominated = sums > DOMINATED * np.abs(diagonal)
    least[(least >= 0) | dominated] = -np.inf
    was_strong = _were_strong(rule, rows, own, cols)
    is_whole = reduced(np.add, was_strong.astype(np.int32), starts, 0) < STRONGEST  # else some were left out
    strong = (coupled <= least[own]) & is_whole[own]
    if np.count_nonzero(strong & ~was_strong) > _NEW * np.count_nonzero(strong):
        return False
    sizes = np.maximum(-coupled, 0)
    whole, taken = (reduced(np.add, part, starts, 0.0) for part in (sizes, np.where(was_strong, sizes, 0)))
    takes = (whole > 0) & ~dominated
    return bool(np.count_nonzero(takes & (taken < _LEAST * whole)) <= _LOST * np.count_nonzero(takes))


def _some_fine(rule: ClassicalRule) -> np.ndarray:
    """Fine unknowns, rising; of many a random sample, as those at equal distances may be alike."""
    is_fine = np.ones(rule.shape[0], bool)
    is_fine[rule.injection.entries().rows] = False
    fine = np.flatnonzero(is_fine)
    if len(fine) <= _SAMPLE:
        return fine
    return fine[np.unique(np.random.default_rng(0).integers(0, len(fine), _SAMPLE))]


def _coupled(values: np.ndarray, on_diagonal: np.ndarray, diagonal: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Entries as real numbers, see `splitting.couplings`, of rows whose diagonal is turned positive."""
    if values.dtype.kind == "c":
        return np.where(on_diagonal, 1, -1) * np.abs(values)
    return values * np.where(diagonal < 0, -1, 1)[own]


def _were_strong(rule: ClassicalRule, rows: np.ndarray, own: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Which of these entries are strong couplings of the rule?"""
    n, strong = rule.shape[0], rule.strong.in_rows(rows)
    return find_keys(keys_of(*strong, n), keys_of(rows[own], cols, n)) >= 0
