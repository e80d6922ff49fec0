"""Two-level preconditioners: a correction in a small coarse space, added to a smoother within its clusters.

The coarse space is constant on clusters of unknowns (Nicolaides). "cluster" adds it to Jacobi, "schwarz" to exact
solves in small subdomains, and so does "schwarz" of a matrix whose rows are cut, with subdomains within the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from ...backends import Array, Backend, Cut, get_backend
from ...sparse import Composed, CutRows, Dense, Matrix, as_operator
from ...sparse.analysis.analysis import analysis_of
from ...sparse.operators.concrete import kept, nonzero_entries
from ...sparse.operators.cut_rows import VALUES
from ...sparse.partition.local_rows import LocalRows
from ...sparse.partition.row_partition import graph_of
from .checks import check_choice, check_finite, check_integer
from .composed import multiplicative
from .jacobi import (
    all_hermitian,
    are_hermitian,
    block_jacobi,
    components_per_node,
    given_labels,
    inverse_diagonals,
    inverses,
    inverses_by_elimination,
    jacobi,
    replace_singular,
)
from .operators import Preconditioner, TripleProduct
from .pipeline import Target, constant_linear_part, grid_of, of_operator

_LARGEST = 4096  # most columns: their matrix is inverted as a dense one
_MOST = 512  # clusters of "cluster" by default
_SIZE, _CLUSTERS = 32, 2048  # of "schwarz"
_TRACED = 256  # most clusters where values are traced, whose matrix each device inverts in each run
_LLOYD = 4  # sweeps that move the centres: more change little
_SHORT = 3  # unknowns along an axis that is not clustered: components of vectors rather than neighbours
_FULL = 0.25  # of all entries, from which a pattern does not show which unknowns are close
_STALLED = 0.98  # of the sets remain: further levels change nothing
_ROUNDS = 4  # of proposals, after which few vertices with unmatched neighbours are left


# --- the coarse space ---


def coarse_correction(A: Any, P: Any, *, like: Any = None) -> Preconditioner:
    """`P (P^H A P)^-1 P^H`: the solution in the space of the columns of P, for a residual r, and nothing outside.

    By itself it is no preconditioner, because it is singular. Add one, `M + coarse_correction(A, P)`, or apply both one
    after the other, `multiplicative(A, Q, M, Q)`.

    Args:
        A: a matrix, or a function that can be traced.
        P: a matrix of NumPy or SciPy, `(n, m)` with m << n, whose columns are near to what M leaves: null vectors of A
            without its boundary conditions, cut to parts of the domain.
        like: an array of the shape and dtype that a function A takes.

    Raises:
        ValueError: P has another shape, or too many columns.
        UnsupportedOperation: A does not show its entries.

    Stores the entries of P and m^2 numbers, and costs two products with P and m^2 multiplications.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, section 2.1.
    """
    return _coarse_correction(constant_linear_part(as_operator(A, like)), spread=as_operator(P))


@of_operator()
def _coarse_correction(own: Any, target: Target, *, spread: Any) -> Preconditioner:
    if spread.shape[0] != own.shape[0] or not 0 < spread.shape[1] <= _LARGEST or spread.systems is not None:
        raise ValueError(f"P has the shape {spread.shape}; expected ({own.shape[0]}, m) with m from 1 to {_LARGEST}.")
    dtype = np.result_type(own.dtype, spread.dtype) if spread.dtype.kind == "c" else own.dtype
    spread = kept(spread).astype(dtype)
    # P^H (A P), in a form with traced matrices on the left
    bk, blocks = own.bk, ((own @ spread).T @ spread.conj()).T.dense()
    inverse, hermitian, singular = _coarse_inverse(bk, blocks if own.systems is not None else blocks[None])
    inner = Dense(bk, *(inverse if own.systems is not None else inverse[0],) * (2 if bk.on_host else 1))
    operator = TripleProduct(target.moved(spread), target.moved(inner), target.moved(spread.H))
    columns = spread.nnz if isinstance(spread, Matrix) else 0
    cost, settings = columns + inner.nnz, (("columns", spread.shape[1]),)
    note = "the coarse matrix is singular" if singular else None
    return Preconditioner(operator, "coarse", hermitian, cost, cost + columns, own.nnz, settings, note)


def _coarse_inverse(bk: Backend, blocks: Array) -> tuple[Array, bool | None, bool]:
    """Inverses of `(systems, m, m)`, whether they are Hermitian, and whether one is singular.

    For known values a singular one gets its pseudo-inverse. Otherwise a multiple of the matrix of ones is added,
    because constants are the usual null vectors; if that is singular, too, there is no correction.
    """
    inverse, singular = inverses(bk, blocks)
    if bk.on_host:
        wrong = np.flatnonzero(singular.reshape(-1) & np.isfinite(blocks).all(axis=(1, 2)))
        for i in wrong:
            hermitian = bool(are_hermitian(bk, blocks[i : i + 1]))
            inverse[i] = np.linalg.pinv(blocks[i], rcond=np.sqrt(np.finfo(blocks.dtype).eps), hermitian=hermitian)
        return inverse, all_hermitian(inverse), bool(len(wrong))
    sizes = bk.sum(bk.abs(bk.diagonal(blocks)), 1)[:, None, None] / int(blocks.shape[1]) ** 2
    shifted, still = inverses(bk, blocks + bk.astype(sizes, bk.dtype(blocks)))
    return bk.where(singular, bk.where(still, bk.zeros_like(inverse), shifted), inverse), None, False


# --- the kinds ---


@of_operator()
def cluster(
    own: Matrix, target: Target, *, clusters: Any = None, grid: Sequence[int] | None = None, form: str = "additive"
) -> Preconditioner:
    """Jacobi for what changes within clusters of unknowns, and a small dense system for what changes between them.

    Args:
        A: a matrix, or a function that can be traced.
        clusters: about how many, by default 2 sqrt(n), at most 512; a tuple, how many
            boxes along each axis of the grid; or an integer label for each unknown.
        grid: shape of the grid that the unknowns lie on, last axis fastest, if A does not know it; there clusters are
            boxes. Without a grid they are connected sets in the graph of A.
        form: "additive", the sum of both; "deflated", the correction before and after Jacobi: fewer steps, with two
            more products with A in each. Both are positive definite where A is.

    Raises:
        ValueError: a setting, or entries that are infinite or NaN.
        UnsupportedOperation: A does not show its entries.

    Stores 2 n + m^2 numbers for m clusters, and costs about as many multiplications.

    Source: Nicolaides, Deflation of conjugate gradients with applications to boundary value problems, 1987; "deflated"
    is the balancing preconditioner of Tang, Nabben, Vuik & Erlangga, 2009, section 2.
    """
    form = check_choice("form", form, ("additive", "deflated"))
    n, rows, cols = _finite_pattern("cluster", own)
    asked = min(max(round(2 * math.sqrt(n)), 1), _MOST) if clusters is None else clusters
    labels = labels_of_clusters(n, asked, grid_of(own, grid), rows, cols)
    settings = (("clusters", int(labels.max(initial=0)) + 1), ("form", form))
    return _with_coarse_space("cluster", own, target, jacobi(own), labels, settings, form == "deflated")


@of_operator()
def schwarz(own: Matrix, target: Target, *, size: int = _SIZE, clusters: int = _CLUSTERS) -> Preconditioner:
    """Exact solves in small subdomains, and a small dense system for vectors that are constant on clusters of unknowns.

    On several devices (`krylix.sparse.row_cut`) subdomains and clusters lie within the parts, and an application sends
    one number per cluster and no ghost values. Without a limit on the clusters, iterations hardly grow with the number
    of unknowns, and not with the number of devices.

    Args:
        A: a matrix, or a function that can be traced.
        size: largest size of a subdomain, rounded down to a power of two; clusters are at least half as large.
        clusters: largest number of clusters.

    Raises:
        ValueError: a setting, or entries that are infinite or NaN.
        UnsupportedOperation: A does not show its entries.

    Stores at most `size` numbers per unknown and m^2 for m clusters, and costs as many multiplications. Subdomains do
    not overlap: more clusters save more iterations than overlap or larger subdomains for the same memory.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, chapters 1 and 2; clusters by Nicolaides, Deflation of
    conjugate gradients with applications to boundary value problems, 1987.
    """
    size, clusters = check_integer("size", size, 1), check_integer("clusters", clusters, 1)
    n, rows, cols = _finite_pattern("schwarz", own)
    k = components_per_node(n, rows, cols)
    inside, between = subdomains_and_clusters(n // k, rows // k, cols // k, max(size // k, 1), max(clusters // k, 1))
    fine, labels = block_jacobi(own, blocks=np.repeat(inside, k)), _of_components(between, k)
    settings = (("subdomains", int(inside.max()) + 1), ("clusters", int(labels.max()) + 1))
    return _with_coarse_space("schwarz", own, target, fine, labels, settings)


def _finite_pattern(kind: str, own: Matrix) -> tuple[int, np.ndarray, np.ndarray]:
    bk, rows, cols, values = nonzero_entries(own)
    check_finite(kind, not bk.on_host or bool(np.isfinite(values).all()))
    return own.shape[0], rows, cols


def _with_coarse_space(
    kind: str,
    own: Matrix,
    target: Target,
    fine: Any,
    labels: np.ndarray,
    settings: tuple[tuple[str, Any], ...],
    deflated: bool = False,
) -> Preconditioner:
    """`fine` and the correction that is constant on clusters with these labels, -1 for unknowns in none."""
    inside = np.flatnonzero(labels >= 0)
    shape = (len(labels), int(labels.max(initial=0)) + 1)
    P = sp.csr_array((np.ones(len(inside), own.dtype), (inside, labels[inside])), shape)
    fine, coarse = target.moved(fine), target.moved(coarse_correction(own, P))
    M: Any = multiplicative(target.A, coarse, fine, coarse) if deflated else fine + coarse
    hermitian = True if analysis_of(own).hermitian else M.hermitian
    return replace(M, kind=kind, hermitian=hermitian, entries=None, settings=settings)


# --- clusters of "cluster": boxes of a grid, or connected sets of about equal size in the graph ---


def labels_of_clusters(n: int, clusters: Any, grid: Sequence[int], rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """`(n,)`: cluster label of each unknown, 0, 1, ..., or -1 for none.

    Args:
        n: number of unknowns.
        clusters: approximate number; a tuple of the number of boxes along each axis of the grid; or labels.
        grid: shape of the grid of the unknowns, last axis fastest; for a single axis the graph decides.
        rows, cols: positions of the entries, in row order.
    """
    if isinstance(clusters, tuple):
        return _boxes(grid, clusters)
    if np.ndim(clusters):
        return given_labels("clusters", clusters, n)
    count = min(check_integer("clusters", clusters, 1), n)
    if len(grid) > 1:
        return _boxes(grid, boxes_per_axis(grid, count))
    if len(rows) > _FULL * n * n:
        return np.arange(n) * count // n
    k = components_per_node(n, rows, cols)
    return _of_components(connected_clusters(n // k, rows // k, cols // k, -(-count // k)), k)


def _of_components(labels: np.ndarray, k: int) -> np.ndarray:
    """Labels of k unknowns at each node, with separate clusters for each component; -1 stays -1."""
    return np.where(labels[:, None] < 0, -1, k * labels[:, None] + np.arange(k)).reshape(-1)


def boxes_per_axis(grid: Sequence[int], count: int) -> tuple[int, ...]:
    """Boxes per axis: about `count` nearly cubic boxes."""
    boxes = {axis: size for axis, size in enumerate(grid) if size <= _SHORT}
    rest = [axis for axis in range(len(grid)) if axis not in boxes]
    left = count / math.prod(boxes.values())
    for axis in sorted(rest, key=lambda axis: grid[axis]):  # short axes first, which may be shorter than an edge
        others = [grid[a] for a in rest if a not in boxes]
        edge = (math.prod(others) / max(left, 1)) ** (1 / len(others))
        boxes[axis] = min(max(round(grid[axis] / edge), 1), grid[axis])
        left /= boxes[axis]
    return tuple(boxes[axis] for axis in range(len(grid)))


def _boxes(grid: Sequence[int], boxes: Sequence[Any]) -> np.ndarray:
    if len(boxes) != len(grid):
        raise ValueError(
            f"clusters={tuple(boxes)} was given for a grid of the shape {tuple(grid)}; expected the number of boxes "
            "along each axis. Give grid=shape too if A does not know the shape, or the number of all clusters."
        )
    counts = [min(check_integer("clusters", k, 1), size) for k, size in zip(boxes, grid, strict=True)]
    along = [np.arange(size) * k // size for size, k in zip(grid, counts, strict=True)]
    return np.ravel_multi_index(np.ix_(*along), counts).reshape(-1)


def connected_clusters(n: int, rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """`(n,)`: nearest of `count` centres in the graph, -1 where none is connected (Lloyd aggregation).

    Centres start at random and move to the point farthest from other clusters, as in Lloyd's algorithm.

    Source: Bell, Algebraic Multigrid for Discrete Differential Forms, 2008, section 4.3.
    """
    graph = sp.csr_array((np.ones(len(rows)), (rows, cols)), (n, n))
    centres = np.random.default_rng(0).choice(n, count, replace=False)
    labels = _nearest(graph, centres)
    for _ in range(_LLOYD):
        border = np.unique(rows[labels[rows] != labels[cols]])
        if not len(border):
            break
        distance = dijkstra(graph, directed=False, indices=border, unweighted=True, min_only=True)
        inside = np.flatnonzero(labels >= 0)
        order = inside[np.lexsort((np.where(np.isfinite(distance), distance, 0)[inside], labels[inside]))]
        centres = order[np.append(np.flatnonzero(np.diff(labels[order])), len(order) - 1)]
        labels = _nearest(graph, centres)
    return labels


def _nearest(graph: sp.csr_array, centres: np.ndarray) -> np.ndarray:
    _, _, sources = dijkstra(
        graph, directed=False, indices=centres, unweighted=True, min_only=True, return_predecessors=True
    )
    numbers = np.full(graph.shape[0], -1)
    numbers[centres] = np.arange(len(centres))
    return np.where(sources >= 0, numbers[np.maximum(sources, 0)], -1)


# --- subdomains and clusters of "schwarz": aggregates by repeated heavy-edge matching ---


def aggregates(n: int, rows: np.ndarray, cols: np.ndarray) -> Iterator[np.ndarray]:
    """Labels `(n,)` of connected sets of at most 1, 2, 4, ... unknowns, while they still grow.

    Each level joins pairs of the sets of the previous level. Cost: a few sorts of the entries in each level.
    """
    edges, labels = graph_of(rows, cols, n), np.arange(n)
    weights: np.ndarray = np.ones(n)
    yield labels
    for level in range(64):
        pairs = _matched(edges, weights, level)
        if not n or int(pairs.max()) + 1 > _STALLED * len(pairs):
            return
        P = sp.csr_array((np.ones(len(pairs)), (np.arange(len(pairs)), pairs)), (len(pairs), int(pairs.max()) + 1))
        coarse = sp.coo_array(P.T @ edges @ P)
        keep = coarse.row != coarse.col
        edges = sp.csr_array((coarse.data[keep], (coarse.row[keep], coarse.col[keep])), coarse.shape)
        weights, labels = np.bincount(pairs, weights, P.shape[1]), pairs[labels]
        yield labels


def _matched(edges: sp.csr_array, weights: np.ndarray, seed: int) -> np.ndarray:
    """`(n,)`: number of the pair of each vertex, or of the vertex alone, 0, 1, ...; `weights`: of the vertices.

    Each vertex proposes to the unmatched neighbour to which its edge is heaviest, ties at random; mutual proposals are
    pairs. What remains alone joins nobody.

    Source: Karypis & Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, 1998.
    """
    n = edges.shape[0]
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(edges.indptr))
    cols, data, random = edges.indices, edges.data, np.random.default_rng(seed)
    mate = np.full(n, -1, np.int32)
    for _ in range(_ROUNDS):
        free = (mate[rows] < 0) & (mate[cols] < 0)
        rows, cols, data = rows[free], cols[free], data[free]
        if not len(rows):
            break
        rank = random.permutation(n)
        low, high = np.minimum(rank[rows], rank[cols]), np.maximum(rank[rows], rank[cols])
        tie = (low * 40503 + high * 30011) % 65537  # alike from both ends
        order = np.lexsort((tie, data / np.maximum(weights[rows] * weights[cols], 1), rows))
        last = order[np.append(np.flatnonzero(np.diff(rows[order])), len(order) - 1)]
        wish = np.full(n, -1, np.int32)
        wish[rows[last]] = cols[last]
        mutual = np.flatnonzero((wish >= 0) & (wish[np.maximum(wish, 0)] == np.arange(n)))
        mate[mutual] = wish[mutual]
    first = np.where(mate < 0, np.arange(n), np.minimum(mate, np.arange(n)))
    return np.unique(first, return_inverse=True)[1].reshape(-1)


def subdomains_and_clusters(
    n: int, rows: np.ndarray, cols: np.ndarray, size: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of subdomains of at most `size` unknowns, and of at most `most` clusters, of half that size or larger."""
    subdomains = clusters = np.arange(n)
    for level, labels in enumerate(aggregates(n, rows, cols)):
        if 2**level <= size:
            subdomains = labels
        clusters = labels
        if 2 ** (level + 1) >= size and int(labels.max(initial=-1)) < most:
            break
    count = int(clusters.max(initial=-1)) + 1
    return subdomains, clusters if count <= most else clusters * most // count


# --- matrices whose rows are cut: subdomains and clusters within the parts ---


def schwarz_by_parts(A: CutRows, *, size: int = _SIZE, clusters: int = _CLUSTERS) -> Preconditioner:
    """`schwarz` with subdomains and clusters within the parts; an application gathers one number per cluster."""
    size, clusters = check_integer("size", size, 1), check_integer("clusters", clusters, 1)
    most = clusters if A.known_values() is not None else min(clusters, _TRACED)
    return _by_parts(A, "schwarz", tables_of(A.layout, size, most), coarse=True)


def block_jacobi_by_parts(A: CutRows) -> Preconditioner:
    """`block_jacobi` with blocks of at most 32 connected unknowns within the parts; no message in an application."""
    return _by_parts(A, "block-jacobi", tables_of(A.layout, _SIZE, _CLUSTERS), coarse=False)


@dataclass(eq=False, repr=False)
class SubdomainSolves(Composed):
    """Inverses of subdomains, and of a coarse matrix that acts on one sum per cluster of all devices.

    Attributes:
        spread: how vectors are distributed.
        inverses: `(parts, s, k, k)`.
        coarse, coarse_transposed: rows of the inverse of the coarse matrix for the clusters of each part, and of its
            transpose, `(parts, count, parts count)`; no columns where there is no coarse space.
        places, back, clusters: see `PartTables`.
    """

    parts = ("inverses", "coarse", "coarse_transposed", "places", "back", "clusters")
    is_container = True

    bk: Backend
    spread: Cut
    inverses: Array
    coarse: Array
    coarse_transposed: Array
    places: Array
    back: Array
    clusters: Array

    def _settle(self) -> None:
        (parts, size), self.dtype = self._form("back")[0], self._form("inverses")[1]
        self.shape = (parts * size, parts * size)

    def apply(self, x: Array) -> Array:
        """One gather of a number per cluster, or no message where there is no coarse space."""
        arrays = [self.array(name) for name in type(self).parts if name != "coarse_transposed"]
        local = partial(_apply_on_device, self.bk, self.spread.all_names)
        y: Array = self.bk.map_parts(local, self.spread, (*arrays, x), (*(0,) * len(arrays), 1), 1)
        return y

    def transpose(self) -> SubdomainSolves:
        turned = self._library_of(self.inverses).matrix_transpose(self.inverses)
        return replace(self, inverses=turned, coarse=self.coarse_transposed, coarse_transposed=self.coarse)


def _apply_on_device(bk: Any, names: Sequence[str], *blocks: Array) -> Array:
    """`(batch, size)` -> `(batch, size)` on each device."""
    inverse, coarse, places, back, clusters = (block[0] for block in blocks[:-1])
    x = blocks[-1]
    batch, none = int(x.shape[0]), bk.zeros((int(x.shape[0]), 1), bk.dtype(x), x)
    s, k = map(int, places.shape)
    inside = bk.take_in_bounds(bk.concat([x, none], 1), places, 1)
    solved = bk.reshape(bk.sum(inverse[None, ...] * inside[:, :, None, :], -1), (batch, s * k))
    y = bk.take_in_bounds(bk.concat([solved, none], 1), back, 1)
    count, columns = map(int, coarse.shape)
    if not columns:
        return y
    sums = bk.all_gathered(bk.sum_entries(x, clusters, count + 1)[:, :count], names, 1)
    between = bk.sum(coarse[None, ...] * sums[:, None, :], -1)
    return y + bk.take_in_bounds(bk.concat([between, none], 1), clusters, 1)


@dataclass(frozen=True, eq=False)
class PartTables:
    """Subdomains and clusters of each part, and the positions of their entries; padding belongs to none of them.

    Attributes:
        places: `(parts, s, k)` int32: unknowns of each subdomain; the number of rows of a part stands for none.
        back: `(parts, size)`: position of each unknown in `places` of its part; `s k` for padding.
        blocks: `(parts, s, k, k)`: positions of the entries of the subdomain matrices in the values of a part, own and
            rest concatenated, then 0 and 1.
        clusters: `(parts, size)`: cluster of each unknown; `count` for padding.
        count: clusters of a part, with padding.
        sums: `(parts, values)`: the entry of the coarse matrix `(count, parts count)`, row by row, to which each value
            of a part (own, rest and away) is added; one more for padding.
        subdomains, in_all: numbers of subdomains and clusters, without padding.
    """

    places: np.ndarray
    back: np.ndarray
    blocks: np.ndarray
    clusters: np.ndarray
    count: int
    sums: np.ndarray
    subdomains: int
    in_all: int


@lru_cache(maxsize=8)
def tables_of(layout: LocalRows, size: int, most: int) -> PartTables:
    """Subdomains of at most `size` unknowns, and at most `most` clusters in all."""
    parts, m = layout.parts, layout.size
    rows, cols, slots = layout.coordinates()
    part, column = rows // m, cols // m
    inside, clusters = np.full((parts, m), -1), np.full((parts, m), -1)
    for p in range(parts):
        here = (part == column) & (part == p)
        unknown = np.flatnonzero(layout.unknowns[p] >= 0)
        local = np.full(m, -1)
        local[unknown] = np.arange(len(unknown))
        i, j = local[rows[here] % m], local[cols[here] % m]
        both = (i >= 0) & (j >= 0)
        inside[p, unknown], clusters[p, unknown] = subdomains_and_clusters(
            len(unknown), i[both], j[both], size, max(most // parts, 1)
        )
    places, back = _members(inside, m)
    count = int(clusters.max(initial=-1)) + 1
    labels = np.where(clusters < 0, count, clusters)
    s, k = places.shape[1:]

    # slots among the values of one part, from those among the arrays of all parts, one array after the other
    lengths = np.array([piece.sources[0].size for piece in (layout.own, layout.rest, layout.away)])
    starts = np.cumsum(parts * lengths) - parts * lengths
    kind = np.searchsorted(starts, slots, side="right") - 1
    slot = (slots - starts[kind]) % np.maximum(lengths[kind], 1) + (np.cumsum(lengths) - lengths)[kind]
    slot = slot.astype(np.int32)

    blocks = np.full((parts, s, k, k), lengths[0] + lengths[1], np.int32)
    blocks[:, :, np.arange(k), np.arange(k)] += (places == m).astype(np.int32)
    of_row, of_col = inside.reshape(-1)[rows], inside.reshape(-1)[cols]
    same = (part == column) & (of_row == of_col) & (of_row >= 0)
    at = back.reshape(-1)
    blocks[part[same], of_row[same], at[rows[same]] % k, at[cols[same]] % k] = slot[same]
    sums = np.full((parts, lengths.sum()), count * parts * count, np.int32)
    row, col = labels.reshape(-1)[rows], labels.reshape(-1)[cols]
    kept = (row < count) & (col < count)
    sums[part[kept], slot[kept]] = (row * parts * count + column * count + col)[kept]
    numbers = (int(all_of.max(axis=1, initial=-1).sum()) + parts for all_of in (inside, clusters))
    return PartTables(places, back, blocks, labels.astype(np.int32), count, sums, *numbers)


def _members(labels: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Unknowns of each label, padded, and the position of each unknown among them."""
    parts = len(labels)
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, 1)
    s = int(labels.max(initial=0)) + 1
    rank = np.arange(m) - np.stack([np.searchsorted(row, row) for row in ordered])
    k = int(rank[ordered >= 0].max(initial=0)) + 1
    places, back = np.full((parts, s, k), m, np.int32), np.full((parts, m), s * k, np.int32)
    p, at = np.nonzero(ordered >= 0)
    subdomain, place, unknown = ordered[p, at], rank[p, at], order[p, at]
    places[p, subdomain, place] = unknown
    back[p, unknown] = subdomain * k + place
    return places, back


def _by_parts(A: CutRows, kind: str, tables: PartTables, coarse: bool) -> Preconditioner:
    bk, indices, values = A.bk, (tables.places, tables.back, tables.clusters), A.known_values()
    if values is None:
        made = bk.compile_if_faster(_inverses_on_devices, ("tables", "coarse"))(A, tables=tables, coarse=coarse)
        arrays: Sequence[Array] = [*made, *indices]
    else:
        check_finite(kind, all(np.isfinite(array).all() for array in values))
        arrays = [*_inverses_on_host(values, tables, coarse), *indices]
        if not bk.in_program():
            arrays = bk.map_parts(lambda *blocks: blocks, A.spread, arrays, (0,) * len(arrays), (0,) * len(arrays))
    inverse, between, between_transposed, places, back, clusters = arrays
    operator = SubdomainSolves(bk, A.spread, inverse, between, between_transposed, places, back, clusters)
    operator = operator.transpose() if A.transposed else operator
    settings = (("subdomains", tables.subdomains), *((("clusters", tables.in_all),) if coarse else ()))
    memory = tables.blocks.size + (tables.count * A.layout.parts) ** 2 * coarse
    return Preconditioner(operator, kind, analysis_of(A).hermitian, memory, memory, None, settings)


def _inverses_on_host(values: Sequence[np.ndarray], tables: PartTables, coarse: bool) -> tuple[np.ndarray, ...]:
    """Inverses of the subdomains and of the coarse matrix, and the transpose of the latter, by NumPy."""
    bk, parts = get_backend("numpy"), len(tables.places)
    flat = [np.concatenate([array[p].reshape(-1) for array in values]) for p in range(parts)]
    blocks = np.stack([_subdomain_blocks(bk, flat[p], tables.blocks[p], values) for p in range(parts)])
    square = blocks.reshape(-1, *blocks.shape[-2:])
    inverse, singular = inverses(bk, square)
    replace_singular(square, inverse, singular)
    between = turned = np.zeros((parts, tables.count, 0), inverse.dtype)
    if coarse:
        rows = np.concatenate([_coarse_rows(bk, flat[p], tables.sums[p], tables.count, parts) for p in range(parts)])
        whole = _coarse_inverse(bk, _padded_clusters(bk, rows)[None])[0][0]
        between, turned = (a.reshape(parts, tables.count, -1) for a in (whole, np.ascontiguousarray(whole.T)))
    return inverse.reshape(blocks.shape), between, turned


def _inverses_on_devices(A: CutRows, *, tables: PartTables, coarse: bool) -> tuple[Array, ...]:
    """Likewise for traced values, on the device of each part."""
    arrays = [A.array(name) for name in VALUES]
    parts, count = A.layout.parts, tables.count

    def local(*given: Array) -> tuple[Array, ...]:
        bk: Any = A.bk
        values, (blocks, sums) = [array[0] for array in given[:3]], [array[0] for array in given[3:]]
        flat = bk.concat([bk.reshape(array, (-1,)) for array in values])
        square = _subdomain_blocks(bk, flat, blocks, [array[None, ...] for array in values])
        inverse, singular = inverses_by_elimination(bk, square)
        inverse = bk.where(singular, inverse_diagonals(bk, square), inverse)
        between = turned = bk.zeros((count, 0), A.dtype, inverse)
        if coarse:
            names = A.spread.all_names
            rows = bk.all_gathered(_coarse_rows(bk, flat, sums, count, parts), names, 0)
            whole, wrong = inverses_by_elimination(bk, _padded_clusters(bk, rows)[None, ...])
            whole = bk.where(wrong, bk.zeros_like(whole), whole)[0, ...]  # no correction at all
            own = bk.part_index(names) * count + np.arange(count, dtype=np.int32)
            between, turned = (bk.take_in_bounds(a, own, 0) for a in (whole, bk.matrix_transpose(whole)))
        return tuple(array[None, ...] for array in (inverse, between, turned))

    return A.bk.map_parts(local, A.spread, (*arrays, tables.blocks, tables.sums), (0,) * 5, (0, 0, 0))


def _subdomain_blocks(bk: Any, flat: Array, slots: Array, values: Sequence[Array]) -> Array:
    """`(s, k, k)`: the matrices of the subdomains of a part, from its concatenated values."""
    inside = sum(int(np.prod(tuple(array.shape[1:]))) for array in values[:2])
    ends = bk.asarray(np.array([0, 1]), bk.dtype(flat), like=flat)
    return bk.take_in_bounds(bk.concat([flat[:inside], ends]), slots, 0)


def _coarse_rows(bk: Any, flat: Array, ids: Array, count: int, parts: int) -> Array:
    """`(count, parts count)`: rows of the coarse matrix."""
    total = count * parts * count
    return bk.reshape(bk.sum_entries(flat, ids, total + 1)[:total], (count, parts * count))


def _padded_clusters(bk: Any, coarse: Array) -> Array:
    """The coarse matrix with 1 on the diagonal of padding, which has no entries."""
    empty = bk.sum(bk.abs(coarse), 1) == 0
    return coarse + bk.astype(empty, bk.dtype(coarse))[:, None] * bk.asarray(np.eye(len(empty)), bk.dtype(coarse))
