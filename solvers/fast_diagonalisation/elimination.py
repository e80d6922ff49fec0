"""Shifted tridiagonal solves along the first axis of a grid, by elimination.

Waves along the other axes make that of a sum of matrices along the axes (Hockney). It takes the place of two
transforms along an axis, and a few operations per unknown.

Source: Hockney, J. ACM 12 (1965); Swarztrauber, SIAM Review 19 (1977).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Composed, storable
from .eigenvectors import TrigonometricEigenvectors

_RANGE = 1e6  # of the scales that make all couplings -1, which is far from the ends of single precision
_LEAST = 3  # points of a line
_COST = 100.0  # of both recurrences and what surrounds them, per unknown in the units of `Fourier.cost`


@storable("lines by elimination")
@dataclass(eq=False, repr=False)
class Eliminated(Composed):
    """Inverse of `diag(1 / before) T diag(1 / after)`, T tridiagonal with off-diagonals -1 along the first axis.

    Of the elimination of T forward along the lines only the pivots are stored; those of positive definite matrices
    are positive.

    Attributes:
        pivots: their reciprocals, for the m lines of n points each, `(n, m)`.
        before, after: `(n,)`; or `(1,)` the latter, where the former has all of the scale.
    """

    parts = ("pivots", "before", "after")
    is_container = True

    bk: Backend
    pivots: Array
    before: Array
    after: Array

    def __post_init__(self) -> None:
        shapes = [tuple(map(int, part.shape)) for part in (self.pivots, self.before, self.after)]
        if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1] or shapes[2] not in (shapes[1], (1,)):
            raise ValueError(f"Pivots, and scales before and after, have the shapes {shapes}; expected (n, m), (n,).")
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(map(int, self.pivots.shape))
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.pivots).dtype(self.pivots))
        self.systems = None

    def apply(self, x: Array) -> Array:
        bk, pivots = self.bk, self.array("pivots")
        found = bk.reshape(x, (int(x.shape[0]), *map(int, pivots.shape)))
        found = bk.recurrence(pivots, found * (pivots * self.array("before")[:, None]))
        found = bk.recurrence(pivots, found, backward=True)
        if int(self.after.shape[0]) > 1:
            found = found * self.array("after")[:, None]
        return bk.reshape(found, (int(x.shape[0]), -1))

    def transpose(self) -> Eliminated:
        return self if int(self.after.shape[0]) == 1 else replace(self, before=self.after, after=self.before)


def pays(bk: Backend, lines: int, transform: float) -> bool:
    """Is elimination quicker than two transforms of this cost per unknown, in units of `Fourier.cost`?"""
    return _COST + bk.cost_of_step / max(lines, 1) < 2 * transform


def extremes(A: sp.csr_array, known: TrigonometricEigenvectors | None) -> tuple[float, float] | None:
    """Extreme eigenvalues of a matrix along an axis; None where elimination does not apply.

    It applies to tridiagonal, diagonally symmetrisable matrices without zeros beside the diagonal.
    """
    n = A.shape[0]
    if n < _LEAST or A.dtype.kind != "f" or (known is not None and known.kind == "periodic"):
        return None
    if known is not None:
        return float(known.base + np.min(known.values)), float(known.base + np.max(known.values))
    entries = sp.coo_array(A)
    product = A.diagonal(1) * A.diagonal(-1)
    if np.any(np.abs(entries.row - entries.col)[entries.data != 0] > 1) or not np.all(product > 0):
        return None
    d, off = A.diagonal(), np.sqrt(product)
    ends = (scipy.linalg.eigvalsh_tridiagonal(d, off, select="i", select_range=(k, k))[0] for k in (0, n - 1))
    low, high = map(float, ends)
    return low, high


def eliminated(A: sp.csr_array, others: np.ndarray, sign: int, dtype: np.dtype) -> Eliminated | None:
    """Inverses of A plus a shift for each line of the first axis; None where scales would leave the range.

    Args:
        A: one for which there are `extremes`.
        others: `(m,)`; with A they are definite.
        sign: of all eigenvalues.

    Cost: one division and two more operations per unknown.
    """
    scales = _scales(A.diagonal(1), A.diagonal(-1), sign)
    if scales is None:
        return None
    rows, columns = scales
    both = 1 / (rows * columns)
    own, lines = A.diagonal() * both, others.reshape(-1)
    pivots = np.empty((len(own), len(lines)))
    for i, pivot in enumerate(pivots):
        np.multiply(lines, both[i], out=pivot)
        pivot += own[i]
        if i:
            pivot -= pivots[i - 1]
        np.reciprocal(pivot, out=pivot)
    if not (np.isfinite(pivots[-1]).all() and np.min(pivots) > 0):
        return None
    same = bool(np.all(columns == columns[0]))
    before, after = (1 / (rows * columns[0]), np.ones(1)) if same else (1 / rows, 1 / columns)
    return Eliminated(get_backend("numpy"), *(part.astype(dtype, copy=False) for part in (pivots, before, after)))


def _scales(up: np.ndarray, low: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Scales of rows and columns: `low_i = -r_i c_(i-1)` and `up_i = -r_i c_(i+1)`, with r_i c_i of the given sign."""
    n = len(up) + 1
    rows, columns = np.empty(n), np.empty(n)
    columns[0], rows[0] = 1, sign * abs(up[0])
    with np.errstate(all="ignore"):
        for i in range(1, n):
            columns[i] = -up[i - 1] / rows[i - 1]
            rows[i] = -low[i - 1] / columns[i - 1]
        spread = [float(np.max(np.abs(part)) / np.min(np.abs(part))) for part in (rows, columns)]
    return (rows, columns) if max(spread) < _RANGE else None
