"""Does the splitting of other numbers still serve a matrix?"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....sparse.formats.compressed import CsrStructure
from .rows import reduced, repeated
from .rule import ClassicalRule
from .strength import DOMINATED, couplings, strong_entries, turned_rows

LEVELS = 2  # finest levels that are looked at
_NEW = 0.1  # of the strong couplings of fine unknowns were weak
_LOST = 0.002  # of the fine unknowns take less than ...
_LEAST = 0.05  # ... of their couplings from those that were strong


def still_serves(rule: ClassicalRule, A: sp.csr_array, threshold: float) -> bool:
    """Are the strong couplings of A, with sorted rows, mostly those of the rule?

    Read off hierarchies of one medium with the numbers of another (constant, smooth, lognormal, blocks, channels; 55
    pairs): all that took more than 2.0 times the iterations of a fresh one are found out, and those of coefficients
    that drift are not.

    Cost: some passes over the entries, a twentieth of a new hierarchy.
    """
    if rule.keeps_all(A):
        return True  # whatever the numbers are
    places = rule.interpolation(CsrStructure.of(A)).places
    fine, was_strong = np.zeros(A.shape[0], bool), np.zeros(A.nnz, bool)
    fine[places.fine] = True
    was_strong[places.to_coarse], was_strong[places.to_fine] = True, True
    turned = turned_rows(A)
    coupled = couplings(turned)
    if places.counted is not None:
        only = np.zeros_like(coupled)
        only[places.counted] = coupled[places.counted]
        coupled = only
    sums = reduced(np.add, coupled, A.indptr, 0.0)
    strong = strong_entries(turned, coupled, sums, threshold) & repeated(fine, A)
    if np.count_nonzero(strong & ~was_strong) > _NEW * np.count_nonzero(strong):
        return False
    sizes = np.maximum(-coupled, 0)
    whole, taken = (reduced(np.add, part, A.indptr, 0.0) for part in (sizes, np.where(was_strong, sizes, 0)))
    fine &= (whole > 0) & (sums <= DOMINATED * turned.diagonal().real)
    return bool(np.count_nonzero(fine & (taken < _LEAST * whole)) <= _LOST * np.count_nonzero(fine))
