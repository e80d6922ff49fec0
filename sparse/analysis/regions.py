"""Closed regions: connected components on which a matrix and its transpose map constants to zero.

That is where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a region of one unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..formats import Matrix, SparseMatrix
from .facts import component_labels
from .rounding import RoundedRowSums, closed_components, rounded_row_sums

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
        return _regions(A.known()) if _may_have_regions(A, sums, A.known_diagonal) else None
    systems = [i for i in range(A.systems) if _may_have_regions(A, sums[i], partial(_diagonal, A, i))]
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


def _diagonal(A: Matrix, i: int) -> np.ndarray:
    one: Matrix = A[i]
    return one.known_diagonal()


def _may_have_regions(A: Matrix, sums: np.ndarray, diagonal: Callable[[], np.ndarray]) -> bool:
    """Cheap necessary test: are some row sums much smaller than others, or all of them small?

    Matrices stored by diagonals of a grid, whose entries are not at hand row by row, must map all constants to zero, or
    have rows of zeros.
    """
    largest = np.maximum.reduce(sums)
    some = bool(np.minimum.reduce(sums) <= _FAR * largest)
    if some and (not isinstance(A, SparseMatrix) or A.structure.gathers):
        return True
    size = np.abs(diagonal())
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
