"""Partition of the unknowns of a sparse matrix into parts that share few entries."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.sparse.linalg import lobpcg

from ..convert import as_operator
from ..errors import UnsupportedOperation
from ..formats import SparseMatrix

PartitionMethod = Literal["auto", "coordinates", "graph", "metis"]
METHODS: tuple[PartitionMethod, ...] = ("auto", "coordinates", "graph", "metis")
Split = Callable[[np.ndarray, int], np.ndarray]
"""Places of some unknowns, and how many go left -> the same places, left ones first."""
_CELLS = 300  # vertices of a graph whose eigenvectors are found by a dense method
_VECTORS = 3  # that LOBPCG improves together, of which the lowest counts
_STEPS = 20  # of it: with 10 up to a tenth more ghost values
_SWEEPS = 20  # of swaps at the border, at most; without any 5 % more ghost values
_MOST = 512  # parts that are assigned to devices


def row_partition(A: Any, parts: int, coordinates: Any = None, method: PartitionMethod = "auto") -> np.ndarray:
    """Divide the unknowns of A into parts of equal size, so that products need few values of other parts.

    Args:
        A: a square sparse matrix of SciPy, or one of krylix or of a library, whose pattern is known.
        parts: how many, one for each device.
        coordinates: `(n, d)`, where the unknowns lie, if that is known.
        method: "coordinates": recursive bisection across the longest axis; "graph": recursive bisection of the graph of
            A by its Fiedler vector; "metis", with the package `pymetis`. "auto" takes the first of coordinates, METIS
            and graph that can be used.

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
    edges = graph_of(rows, cols, n)
    if parts == 1 or method == "graph" or (method == "auto" and not has_metis()):
        return recursive_bisection(n, parts, by_graph(edges))
    if not has_metis():
        raise UnsupportedOperation(
            "method='metis' needs the package pymetis, which cannot be imported. Install it (pip install pymetis), or "
            "leave method out."
        )
    _, labels = importlib.import_module("pymetis").part_graph(parts, xadj=edges.indptr, adjncy=edges.indices)
    return np.asarray(labels, np.int32)


def has_metis() -> bool:
    """Can `pymetis` be imported?"""
    try:
        importlib.import_module("pymetis")
    except ImportError:
        return False
    return True


def graph_of(rows: np.ndarray, cols: np.ndarray, n: int) -> sp.csr_array:
    """The undirected graph of a pattern: two unknowns that share an entry are an edge of weight 1."""
    apart = rows != cols
    i, j = rows[apart].astype(np.int32), cols[apart].astype(np.int32)
    edges = sp.csr_array((np.ones(2 * len(i)), (np.concatenate([i, j]), np.concatenate([j, i]))), (n, n))
    edges.sum_duplicates()
    edges.data[:] = 1
    return edges


# --- recursive bisection: parts of equal size, one split after the other ---


def recursive_bisection(n: int, parts: int, split: Split) -> np.ndarray:
    """`(n,)`: part of each unknown. Sizes of parts differ by one at most."""
    labels = np.zeros(n, np.int32)
    sizes = np.diff(np.arange(parts + 1) * n // parts)
    waiting = [(np.arange(n), 0, parts)]
    while waiting:
        places, first, count = waiting.pop()
        if count == 1:
            labels[places] = first
            continue
        left = count // 2
        size = int(sizes[first : first + left].sum())
        ordered = split(places, size) if 0 < size < len(places) else places
        waiting += [(ordered[:size], first, left), (ordered[size:], first + left, count - left)]
    return labels


def by_coordinates(coordinates: np.ndarray) -> Split:
    """Split across the axis along which the unknowns reach farthest.

    Source: Berger & Bokhari, A partitioning strategy for nonuniform problems on multiprocessors, 1987.
    """

    def split(places: np.ndarray, size: int) -> np.ndarray:
        own = coordinates[places]
        axis = int(np.ptp(own, axis=0).argmax())
        return places[np.argpartition(own[:, axis], size - 1)]

    return split


def by_graph(edges: sp.csr_array) -> Split:
    """Split where few edges are cut: components stay whole, the largest go left, and one is halved."""

    def split(places: np.ndarray, size: int) -> np.ndarray:
        own = edges[places][:, places]
        component = connected_components(own, directed=False)[1]
        sizes = np.bincount(component)
        order = np.lexsort((component, -sizes[component]))
        lengths = np.sort(sizes)[::-1]
        ends = np.cumsum(lengths)
        cut = int(np.searchsorted(ends, size))  # the component that is divided
        start, end = int(ends[cut] - lengths[cut]), int(ends[cut])
        if size < end:
            inside = order[start:end]
            left = _halved(own[inside][:, inside], size - start)
            order[start:end] = inside[np.argsort(~left, kind="stable")]
        return places[order]

    return split


def _halved(edges: sp.csr_array, size: int) -> np.ndarray:
    """`(n,)` of bool: `size` vertices of a connected graph, those with the least values of its Fiedler vector.

    Swaps at the border follow: of the pairs whose exchange would cut fewer edges if they were alone, the best quarter.

    Source: Kernighan & Lin, An efficient heuristic procedure for partitioning graphs, 1970.
    """
    n = edges.shape[0]
    left = np.zeros(n, bool)
    left[np.argpartition(_fiedler_vector(edges), size - 1)[:size]] = True
    for _ in range(_SWEEPS):
        side = np.where(left, 1.0, -1.0)
        gains = -side * (edges @ side)  # edges of each vertex that are cut less those that are not
        here, there = (own[np.argsort(-gains[own], kind="stable")] for own in map(np.flatnonzero, (left, ~left)))
        pairs = min(len(here), len(there))
        count = -(-int(np.count_nonzero(gains[here[:pairs]] + gains[there[:pairs]] > 0)) // 4)
        swapped = np.concatenate([here[:count], there[:count]])
        side[swapped] *= -1
        if side @ (edges @ side) <= -float(gains.sum()):  # as many edges are cut, or more
            break
        left[swapped] = ~left[swapped]
    return left


def _fiedler_vector(edges: sp.csr_array) -> np.ndarray:
    """The eigenvector of the smallest eigenvalue > 0 of the Laplacian of a connected graph, roughly.

    Of a large one LOBPCG starts from that of a graph of cells, the vertices nearest to each of some centres.

    Source: Knyazev, Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate
    gradient method, 2001.
    """
    n, degree = edges.shape[0], np.asarray(edges.sum(axis=1)).reshape(-1)
    laplacian = sp.csr_array(sp.diags_array(degree) - edges)
    if n <= _CELLS:
        return scipy.linalg.eigh(laplacian.toarray(), subset_by_index=[1, 1])[1][:, 0]
    centres = np.sort(np.random.default_rng(0).choice(n, _CELLS, replace=False))
    _, _, nearest = dijkstra(
        edges, directed=False, indices=centres, unweighted=True, min_only=True, return_predecessors=True
    )
    cell = np.searchsorted(centres, nearest)
    P = sp.csr_array((np.ones(n), (np.arange(n), cell)), (n, _CELLS))
    mass = np.diag(np.bincount(cell).astype(float))
    starts = scipy.linalg.eigh((P.T @ laplacian @ P).toarray(), mass, subset_by_index=[1, _VECTORS])[1][cell]
    with warnings.catch_warnings(action="ignore"):  # few digits suffice
        return lobpcg(
            laplacian, starts, M=sp.diags_array(1 / degree), Y=np.ones((n, 1)), largest=False, maxiter=_STEPS, tol=1e-9
        )[1][:, 0]


# --- ghost values, and labels that are given ---


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


def checked_labels(labels: Any, n: int, parts: int) -> np.ndarray:
    """`(n,)` int32.

    Raises:
        ValueError: labels of another shape or kind, or out of range.
    """
    found = np.asarray(labels)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise ValueError(f"labels have the shape {found.shape} and dtype {found.dtype}; expected integers ({n},).")
    if n and not 0 <= found.min() <= found.max() < parts:
        raise ValueError(f"labels go from {found.min()} to {found.max()}; expected 0 to {parts - 1}, for each device.")
    return found.astype(np.int32)


def near_their_blocks(labels: np.ndarray, parts: int) -> np.ndarray:
    """Number the parts so that as many unknowns as possible stay on the device that has them in the user's order."""
    n = len(labels)
    if not 1 < parts <= _MOST:
        return labels
    block = np.arange(n) // max(-(-n // parts), 1)
    shared = np.bincount(labels.astype(np.int64) * parts + block, minlength=parts * parts).reshape(parts, parts)
    return scipy.optimize.linear_sum_assignment(shared, maximize=True)[1][labels].astype(np.int32)
