"""Banded LU with partial pivoting by LAPACK, behind the interface of `scipy.sparse.linalg.SuperLU`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack

_WASTE, _SMALL = 4, 8  # numbers stored per row: at most so many times its entries, and so many more


class BandLU:
    """Factors `(2 lower + upper + 1, n)` in double precision, and the exchanges.

    A line of a thousand points has a condition of a million, which leaves single precision no digits, or two, as the
    processor rounds. Bands are so small that double precision costs next to nothing.
    """

    def __init__(self, A: Any, lower: int, upper: int) -> None:
        """Of a SciPy matrix by columns, without duplicates.

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
        """Numbers that are stored."""
        return int(self.factors.size)

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        """For b `(n,)` or `(n, count)`, in double precision; "T" with the transpose."""
        found, _ = self._solve(self.factors, self.lower, self.upper, b, self.exchanges, trans="NT".index(trans))
        return np.asarray(found)


def band_lu(A: Any) -> BandLU | None:
    """The factors of a matrix by columns whose entries all lie near the diagonal, in its own order; None of others.

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
