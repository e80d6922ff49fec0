"""Banded LU with partial pivoting by LAPACK, behind the interface of `scipy.sparse.linalg.SuperLU`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

_WASTE, _SMALL = 4, 8  # storage limit per row: multiple of its entries, plus a constant


class BandLU:
    """LU factors in band storage `(2 lower + upper + 1, n)`, double precision, and the row interchanges.

    A line of a thousand points has a condition of a million, which leaves single precision no digits, or two, as the
    processor rounds. Bands are so small that double precision costs next to nothing.
    """

    def __init__(self, A: Any, lower: int, upper: int) -> None:
        """Factorise a SciPy CSC matrix without duplicates.

        Raises:
            RuntimeError: a pivot is exactly zero, as SuperLU does.
        """
        self.shape = n, _ = A.shape
        columns = np.repeat(np.arange(n), np.diff(A.indptr))
        band = np.zeros((2 * lower + upper + 1, n), np.result_type(A.dtype, np.float64), order="F")
        band[lower + upper + A.indices - columns, columns] = A.data
        self.lower, self.upper = lower, upper
        factorise, self._solve = lapack.get_lapack_funcs(("gbtrf", "gbtrs"), (band,))
        self.factors, self.exchanges, failed = factorise(band, lower, upper, overwrite_ab=True)
        if failed:
            raise RuntimeError("Factor is exactly singular")

    @property
    def nnz(self) -> int:
        """Stored numbers."""
        return int(self.factors.size)

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        """Solve for b `(n,)` or `(n, count)`, in double precision; "T" for the transpose."""
        found, _ = self._solve(self.factors, self.lower, self.upper, b, self.exchanges, trans="NT".index(trans))
        return np.asarray(found)


def band_lu(A: Any) -> BandLU | None:
    """Factors of a CSC matrix that is banded in its own order; None for others.

    Raises:
        RuntimeError: a pivot is exactly zero.
    """
    n, nnz = A.shape[0], A.nnz
    if not nnz:
        return None
    distance = A.indices - np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    lower, upper = max(int(distance.max()), 0), max(-int(distance.min()), 0)
    if (2 * lower + upper + 1) * n > _WASTE * nnz + _SMALL * n:
        return None
    return BandLU(A, lower, upper)
