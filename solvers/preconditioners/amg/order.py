"""Reordering of the unknowns (reverse Cuthill-McKee) that places coupled ones near each other.

Aggregation visits the unknowns in their order: in a random one, as of many meshes, aggregates have odd shapes, which
costs a third of the iterations, and products take half as long again for lack of locality.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ....sparse import Matrix, SparseMatrix
from ....sparse.formats.entries.integers import starts_of
from ....sparse.formats.entries.scipy_form import csr_array
from ....sparse.formats.entries.some_rows import evenly_spread
from ....sparse.formats.making.build import from_entries

_LEAST = 2000  # unknowns: fewer are in the cache anyway
_FAR = 0.1  # relative mean distance of coupled unknowns: a third in a random order
_NEARER = 0.25  # required reduction of that distance
_SAMPLE = 1000  # rows


def nearer_order(matrix: Matrix, block_size: int = 1) -> np.ndarray | None:
    """Reverse Cuthill-McKee order (unknown `order[k]` becomes number k, int32) if it is much better, else None.

    Blocks of consecutive unknowns stay together.

    Cost: a sample of 1000 rows; where these are spread, some passes over the entries.
    """
    n = matrix.shape[0]
    if not isinstance(matrix, SparseMatrix) or matrix.systems is not None or n < _LEAST or n % block_size:
        return None
    rows, cols = matrix.structure.in_rows(evenly_spread(n, _SAMPLE))
    distance = float(np.mean(np.abs(rows - cols))) if len(rows) else 0.0
    if distance < _FAR * n:
        return None
    every, to, _ = matrix.structure.entries()
    graph = csr_array(np.ones(len(every), np.int8), to, starts_of(every, n), matrix.shape)
    if block_size > 1:
        pairs = (every // block_size, to // block_size)
        # entries of one place are added: numbers of 8 bits would come to 0 with 256 of them
        graph = sp.csr_array((np.ones(len(every), bool), pairs), (n // block_size, n // block_size))
    points = reverse_cuthill_mckee(graph, symmetric_mode=False).astype(np.int32)
    order = (points[:, None] * block_size + np.arange(block_size, dtype=np.int32)).reshape(-1)
    places = places_in(order)
    return order if float(np.mean(np.abs(places[rows] - places[cols]))) <= _NEARER * distance else None


def places_in(order: np.ndarray) -> np.ndarray:
    """Inverse permutation: the new number of each unknown."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def rows_in(matrix: sp.csr_array, order: np.ndarray | None) -> sp.csr_array:
    """Symmetrically permuted matrix; None: unchanged."""
    if order is None:
        return matrix
    found = sp.csr_array(matrix[order][:, order])
    found.sort_indices()
    return found


def reordered_matrix(matrix: SparseMatrix, order: np.ndarray | None) -> SparseMatrix:
    """Symmetrically permuted matrix in its library; values may be traced. Cost: a sort."""
    if order is None:
        return matrix
    rows, cols, _ = matrix.structure.entries()
    places, values = places_in(order), matrix.entry_values()
    like = matrix.anchor()
    return from_entries(matrix.bk, places[rows], places[cols], values, matrix.shape, prune=False, like=like)
