"""What the rounding of stored entries allows: the one test of "A v is zero" that decides what counts as singular.

A stored number differs by at most half a unit in its last place from the one that it stands for. So a matrix may stand
for one with `A v = 0` if each `|(A v)_i|` is within the sum of these half units times |v|. Two limits follow, for the
sums of rows and of all entries of a closed region:

- Each row: entries may themselves be sums that were rounded several times, hence `ROWS`.
- All of them together: roundings of different rows do not add up, but a shift of the diagonal does, `I + dt L` with a
  long time step. It is regular as long as the shift is more than the half units, which is what the entries can tell.

Sums are taken in double precision: those in single precision would add roundings of their own.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 7.2 (componentwise distance to
singularity, to first order `|u^H A v| / |u|^T |dA| |v|`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ..formats import Matrix, SparseMatrix
from .facts import component_labels

ROWS = 16  # half units, of each row
_REGION, _REGION_IN_DOUBLE = 1, 4  # of a region: single precision is mostly rounded once, from double


class RoundedRowSums(NamedTuple):
    """`A v` for each row and its bound by the rounding of the entries; `(n,)` or `(n, k)`, in double precision."""

    sums: np.ndarray
    allowed: np.ndarray

    @property
    def negligible(self) -> np.ndarray:
        """bool: which are zero, as far as single rows tell? Those with what is no number are not."""
        return np.asarray(np.abs(self.sums) <= ROWS * self.allowed) & np.isfinite(self.allowed)


def half_units(bk: Backend, values: Array) -> Array:
    """Half a unit in the last place of each number: the bound of its rounding error."""
    sizes = bk.abs(values)
    eps = float(np.finfo(bk.dtype(sizes)).eps)
    return 0.5 * eps * bk.unit_in_first_place(sizes)


def of_region(dtype: np.dtype) -> int:
    """Bound of the sum of all entries of a closed region, in half units."""
    return _REGION if np.dtype(dtype).char in "fF" else _REGION_IN_DOUBLE


def rounded_row_sums(A: Any, v: np.ndarray | None = None) -> RoundedRowSums:
    """`A v` and its bound for a matrix `(m, n)` and one vector `(n,)`, ones by default, or columns `(n, k)`.

    Cost: 2 products in double precision, and a pass over the entries.
    """
    v = np.ones(A.shape[1]) if v is None else v
    wide = A.astype(np.result_type(A.dtype, np.float64), copy=False)
    host = get_backend("numpy")
    if sp.issparse(A):
        A = sp.csr_array(A)
        units: Any = sp.csr_array((half_units(host, A.data).astype(np.float64), A.indices, A.indptr), A.shape)
    else:
        units = half_units(host, A).astype(np.float64)
    return RoundedRowSums(np.asarray(wide @ v), np.asarray(units @ np.abs(v)))


def closed_components(rows: RoundedRowSums, labels: np.ndarray, count: int, dtype: np.dtype) -> np.ndarray:
    """bool `(count,)`: are all row sums of a connected component zero, each by itself and all together?

    Args:
        rows: sums of the rows of a matrix of that dtype, `(n,)`.
        labels: `(n,)`, the component of each row.
    """
    open_rows = np.bincount(labels, ~rows.negligible, count)
    total = np.bincount(labels, rows.sums.real, count) + 1j * np.bincount(labels, rows.sums.imag, count)
    return (open_rows == 0) & (np.abs(total) <= of_region(dtype) * np.bincount(labels, rows.allowed, count))


# --- Closed regions: connected components on which a matrix and its transpose map constants to zero -------------------
# That is where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a region of one unknown.

_FAR = 1e-3  # of the largest sum of a row: others are no rounding
_SMALL = 1e-6  # of the diagonal: what sums that are zero but for rounding are far below


def closed_regions(A: Matrix) -> np.ndarray | None:
    """`(n,)`: the number of the closed region of each unknown, -1 for those in none; None if there are none.

    Where values are not known now, none are seen. Of a batch `(systems, n)`, with other numbers in each system; those
    of each are found as if it were alone.

    Cost: a product, and where there are rows whose sum is zero a pass over the entries for their connected parts.
    """
    if A.shape[0] != A.shape[1] or A.systems == 0:
        return None
    images = A.known_images(np.ones(A.shape[1]), both=False)
    if images is None:
        return None
    sums = np.abs(images[0])
    if A.systems is None:
        return _regions(A.known()) if _may_have_regions(A, sums) else None
    systems = [i for i in range(A.systems) if _may_have_regions(A, sums[i], i)]
    if not systems:
        return None
    known: Any = A.known()
    labels, count = np.full((A.systems, A.shape[0]), -1, np.int32), 0
    for i in systems:
        found = _regions(known[i])
        if found is not None:
            labels[i] = np.where(found < 0, -1, found + count)
            count += int(np.max(found)) + 1
    return labels if count else None


def _may_have_regions(A: Matrix, sums: np.ndarray, i: int | None = None) -> bool:
    """Cheap necessary test, of system i of a batch: are some row sums much smaller than others, or all of them small?

    Matrices stored by diagonals of a grid, whose entries are not at hand row by row, must map all constants to zero, or
    have rows of zeros.
    """
    largest = np.maximum.reduce(sums)
    some = bool(np.minimum.reduce(sums) <= _FAR * largest)
    if some and (not isinstance(A, SparseMatrix) or A.structure.gathers):
        return True
    one: Any = A if i is None else A[i]
    size = np.abs(one.known_diagonal())
    return bool(largest <= _SMALL * np.maximum.reduce(size) or (some and not size.all()))


def _regions(A: Any) -> np.ndarray | None:
    """`closed_regions` of one SciPy or NumPy matrix."""
    rows = rounded_row_sums(A) if sp.issparse(A) else _dense_row_sums(A)
    if not rows.negligible.any():
        return None
    A = A if sp.issparse(A) else sp.csr_array(A)
    count, labels = component_labels(A)
    closed = closed_components(rows, labels, count, A.dtype)
    if closed.any():
        closed &= closed_components(rounded_row_sums(A.T), labels, count, A.dtype)
    if not closed.any():
        return None
    return np.asarray(np.where(closed, np.cumsum(closed) - 1, -1)[labels])


def _dense_row_sums(A: np.ndarray) -> RoundedRowSums:
    """Rounded row sums of the rows near zero; infinity for the others."""
    sums = A @ np.ones(A.shape[1])
    scale = np.max(np.abs(A)) if A.dtype.kind == "c" else max(np.max(A), -np.min(A))
    near = np.abs(sums) <= _FAR * scale
    found = rounded_row_sums(A[near])
    allowed = np.zeros(len(A))
    sums[near], allowed[near] = found
    return RoundedRowSums(np.where(near, sums, np.inf), allowed)
