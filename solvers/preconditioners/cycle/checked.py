"""Checks of a known matrix before it is smoothed: Hermitian, double precision."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....sparse.analysis.symmetry import nearest_hermitian
from ..checks import check_finite, check_in_range


def hermitian_and_double(A: sp.csr_array, kind: str) -> tuple[bool, sp.csr_array]:
    """Whether A is Hermitian, and A in double precision, made exactly Hermitian if it is nearly so.

    Raises:
        ValueError: an entry is not finite, the inverse of the diagonal overflows, or a row with entries has a zero on
            the diagonal.
    """
    check_finite(kind, bool(np.isfinite(A.data).all()))
    check_in_range(kind, A.diagonal())
    rows = np.flatnonzero((A.diagonal() == 0) & (np.diff(A.indptr) > 0))
    if len(rows) and A.shape[0] > 1:
        raise ValueError(
            f"{kind} was asked for a matrix with zeros on its diagonal, in {len(rows)} rows that have other entries "
            f"(the first is row {rows[0]}); its smoothers divide by the diagonal. Use another kind, or a part of A."
        )
    wide = A.astype(np.result_type(A.dtype, np.float64))
    nearest = nearest_hermitian(wide)
    return nearest is not None, wide if nearest is None else nearest
