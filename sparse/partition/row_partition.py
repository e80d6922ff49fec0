"""Partition of the unknowns of a sparse matrix into parts that share few entries."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from ..convert import as_operator
from ..errors import UnsupportedOperation
from ..formats import SparseMatrix
from .bisection import by_coordinates, recursive_bisection
from .graph import graph_of
from .metis import by_metis, has_metis
from .spectral import by_graph

PartitionMethod = Literal["auto", "coordinates", "graph", "metis"]
METHODS: tuple[PartitionMethod, ...] = ("auto", "coordinates", "graph", "metis")


def row_partition(A: Any, parts: int, coordinates: Any = None, method: PartitionMethod = "auto") -> np.ndarray:
    """Divide the unknowns of A into parts of equal size, so that products need few values of other parts.

    Args:
        A: a square sparse matrix of SciPy, or one of krylix or of a library, whose pattern is known.
        parts: how many, one for each device.
        coordinates: `(n, d)`, where the unknowns lie, if that is known.
        method: "coordinates": recursive bisection across the longest axis; "graph": recursive spectral bisection of the
            graph of A; "metis", with the package `pymetis`. "auto" takes the first of coordinates, METIS and graph that
            can be used.

    Returns:
        `(n,)` of int32: the part of each unknown, 0 to `parts - 1`. Sizes differ by 1, of METIS by a few percent.

    Raises:
        ValueError: a matrix that is not square, parts that are not between 1 and n, or coordinates that do not fit.
        UnsupportedOperation: the pattern of A is not known, or `pymetis` is not installed.

    Cost: on the host, `log2(parts)` passes over the unknowns (coordinates), or over the entries, about 100 products in
    each (graph).

    Source: see `method`; Pothen, Simon & Liou, Partitioning sparse matrices with eigenvectors of graphs, 1990.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse import row_partition
        >>> A = sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(8, 8))
        >>> row_partition(A, 2, coordinates=[[x] for x in range(8)])
        array([0, 0, 0, 0, 1, 1, 1, 1], dtype=int32)
    """
    rows, cols, shape = pattern_of(A)
    n = shape[0]
    if shape[0] != shape[1]:
        raise ValueError(f"A has the shape {shape}; expected a square matrix, whose rows and unknowns go together.")
    if isinstance(parts, bool) or not isinstance(parts, int | np.integer) or not 1 <= parts <= max(n, 1):
        raise ValueError(f"parts={parts!r} was given; expected an integer from 1 to {n}, the number of unknowns.")
    if method not in METHODS:
        raise ValueError(f"method={method!r} was given; expected one of {', '.join(METHODS)}.")
    if method == "coordinates" and coordinates is None:
        raise ValueError("method='coordinates' was given without coordinates; expected an array (n, d).")
    if coordinates is not None and method in ("auto", "coordinates"):
        return recursive_bisection(n, int(parts), by_coordinates(_checked_coordinates(coordinates, n)))
    return partition_of_pattern(rows, cols, n, int(parts), method)


def partition_of_pattern(
    rows: np.ndarray, cols: np.ndarray, n: int, parts: int, method: PartitionMethod = "auto"
) -> np.ndarray:
    """`row_partition` by the graph of a pattern."""
    graph = graph_of(rows, cols, n)
    if parts > 1 and (method == "metis" or (method == "auto" and has_metis())):
        return by_metis(graph, parts)
    return recursive_bisection(n, parts, by_graph(graph))


class GhostCounts(NamedTuple):
    """Values of other parts that products with the rows of a part read.

    Attributes:
        total: of all parts together.
        most: of one part, at most.
        neighbours: parts that one part reads from, at most.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse import GhostCounts, ghost_counts
        >>> counts: GhostCounts = ghost_counts(sp.eye_array(6), [0, 0, 0, 1, 1, 1])
        >>> counts.total
        0
    """

    total: int
    most: int
    neighbours: int


def ghost_counts(A: Any, labels: Any) -> GhostCounts:
    """How many ghost values a partition makes.

    Args:
        A: a sparse matrix.
        labels: `(n,)`, as of `row_partition`.

    Raises:
        ValueError: there is not one label for each row.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse import ghost_counts
        >>> ghost_counts(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(4, 4)), [0, 0, 1, 1])
        GhostCounts(total=2, most=1, neighbours=1)
    """
    rows, cols, shape = pattern_of(A)
    labels = np.asarray(labels)
    if labels.shape != shape[:1]:
        raise ValueError(f"labels have the shape {labels.shape}; expected {shape[:1]}, one for each row.")
    away = labels[rows] != labels[cols]
    if not away.any():
        return GhostCounts(0, 0, 0)
    pairs = np.unique(np.stack([labels[rows[away]], cols[away]]), axis=1)
    links = np.unique(np.stack([pairs[0], labels[pairs[1]]]), axis=1)
    return GhostCounts(pairs.shape[1], int(np.bincount(pairs[0]).max()), int(np.bincount(links[0]).max()))


def pattern_of(A: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Rows and columns of the stored entries, and the shape.

    Raises:
        UnsupportedOperation: the pattern is not known.
    """
    matrix = as_operator(A)
    if not isinstance(matrix, SparseMatrix):
        raise UnsupportedOperation(f"{matrix!r} shows no pattern; expected a sparse matrix, whose pattern is known.")
    rows, cols, _ = matrix.structure.entries()
    return rows, cols, matrix.shape


def _checked_coordinates(coordinates: Any, n: int) -> np.ndarray:
    found = np.asarray(coordinates, dtype=float)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != n or not found.shape[1]:
        raise ValueError(f"coordinates have the shape {found.shape}; expected ({n}, d), a point for each unknown.")
    if not np.isfinite(found).all():
        raise ValueError("coordinates hold NaN or infinity; expected finite numbers.")
    return found
