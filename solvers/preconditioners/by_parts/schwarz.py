"""Block Jacobi and additive Schwarz of a row-cut matrix: subdomains within the parts, a coarse space for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....backends import Array, Backend, Cut, get_backend
from ....sparse import Composed, CutRows
from ....sparse.analysis.analysis import analysis_of
from ....sparse.operators.cut_rows import VALUES
from ..base import Preconditioner
from ..block_jacobi.inverses import inverses, regular_inverses
from ..checks import check_finite, check_integer
from ..cluster.coarse import coarse_inverse
from ..schwarz.schwarz import CLUSTERS, SIZE
from .elimination import eliminated
from .subdomains import Subdomains, subdomains_of

_TRACED = 256  # most clusters where values are traced, whose matrix each device inverts in each run


@dataclass(eq=False, repr=False)
class SubdomainSolves(Composed):
    """The inverses of subdomains, and of a coarse matrix, which takes one sum per cluster of all devices.

    Attributes:
        spread: how vectors are distributed.
        inverses: `(parts, s, k, k)`.
        coarse, coarse_transposed: rows of the inverse of the coarse matrix for the clusters of each part, and of its
            transpose, `(parts, count, parts count)`; no columns where there is no coarse space.
        places, back, clusters: see `Subdomains`.
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
        local = partial(_applied, self.bk, self.spread.all_names)
        found: Array = self.bk.map_parts(local, self.spread, (*arrays, x), (*(0,) * len(arrays), 1), 1)
        return found

    def transpose(self) -> SubdomainSolves:
        turned = self._library_of(self.inverses).matrix_transpose(self.inverses)
        return replace(self, inverses=turned, coarse=self.coarse_transposed, coarse_transposed=self.coarse)


def _applied(bk: Any, names: Sequence[str], *blocks: Array) -> Array:
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


def schwarz_by_parts(A: CutRows, *, size: int = SIZE, clusters: int = CLUSTERS) -> Preconditioner:
    """`schwarz`, whose subdomains and clusters lie within the parts; one gather of the clusters in an application."""
    size, clusters = check_integer("size", size, 1), check_integer("clusters", clusters, 1)
    most = clusters if A.known_values() is not None else min(clusters, _TRACED)
    return _made(A, "schwarz", subdomains_of(A.layout, size, most), coarse=True)


def block_jacobi_by_parts(A: CutRows) -> Preconditioner:
    """`block_jacobi` with blocks of at most 32 connected unknowns within the parts; no message in an application."""
    return _made(A, "block-jacobi", subdomains_of(A.layout, SIZE, CLUSTERS), coarse=False)


def _made(A: CutRows, kind: str, found: Subdomains, coarse: bool) -> Preconditioner:
    bk, tables, values = A.bk, (found.places, found.back, found.clusters), A.known_values()
    if values is None:
        made = bk.compile_if_faster(_on_devices, ("found", "coarse"))(A, found=found, coarse=coarse)
        arrays: Sequence[Array] = [*made, *tables]
    else:
        check_finite(kind, all(np.isfinite(array).all() for array in values))
        arrays = [*_on_host(values, found, coarse), *tables]
        if not bk.in_program():
            arrays = bk.map_parts(lambda *blocks: blocks, A.spread, arrays, (0,) * len(arrays), (0,) * len(arrays))
    inverse, between, between_transposed, places, back, clusters = arrays
    operator = SubdomainSolves(bk, A.spread, inverse, between, between_transposed, places, back, clusters)
    operator = operator.transpose() if A.transposed else operator
    settings = (("subdomains", found.subdomains), *((("clusters", found.in_all),) if coarse else ()))
    memory = found.blocks.size + (found.count * A.layout.parts) ** 2 * coarse
    return Preconditioner(operator, kind, analysis_of(A).hermitian, memory, memory, None, settings)


def _on_host(values: Sequence[np.ndarray], found: Subdomains, coarse: bool) -> tuple[np.ndarray, ...]:
    """Inverses of the subdomains and of the coarse matrix, by NumPy."""
    bk, parts = get_backend("numpy"), len(found.places)
    own = [np.concatenate([array[p].reshape(-1) for array in values]) for p in range(parts)]
    blocks = np.stack([_blocks(bk, flat, found.blocks[p], values) for p, flat in enumerate(own)])
    square = blocks.reshape(-1, *blocks.shape[-2:])
    inverse, singular = inverses(bk, square)
    wrong = np.flatnonzero(singular.reshape(-1))
    if len(wrong):
        inverse[wrong] = regular_inverses(square[wrong])
    between = turned = np.zeros((parts, found.count, 0), inverse.dtype)
    if coarse:
        rows = np.concatenate([_sums(bk, flat, found.sums[p], found.count, parts) for p, flat in enumerate(own)])
        whole = coarse_inverse(bk, _regular(bk, rows)[None])[0][0]
        between, turned = (a.reshape(parts, found.count, -1) for a in (whole, np.ascontiguousarray(whole.T)))
    return inverse.reshape(blocks.shape), between, turned


def _on_devices(A: CutRows, *, found: Subdomains, coarse: bool) -> tuple[Array, ...]:
    """The same of values that are traced, on the device of each part."""
    arrays = [A.array(name) for name in VALUES]
    tables, parts = (found.blocks, found.sums), A.layout.parts

    def local(*given: Array) -> tuple[Array, ...]:
        bk: Any = A.bk
        values, (blocks, sums) = [array[0] for array in given[:3]], [array[0] for array in given[3:]]
        flat = bk.concat([bk.reshape(array, (-1,)) for array in values])
        square = _blocks(bk, flat, blocks, [array[None, ...] for array in values])
        inverse, singular = eliminated(bk, square)
        diagonal = bk.diagonal(square)
        alone = (1 / bk.where(diagonal == 0, bk.full_like(diagonal, 1), diagonal))[:, :, None]
        inverse = bk.where(singular, alone * bk.asarray(np.eye(int(square.shape[-1])), A.dtype), inverse)
        between = turned = bk.zeros((found.count, 0), A.dtype, inverse)
        if coarse:
            names = A.spread.all_names
            rows = bk.all_gathered(_sums(bk, flat, sums, found.count, parts), names, 0)
            whole, wrong = eliminated(bk, _regular(bk, rows)[None, ...])
            whole = bk.where(wrong, bk.zeros_like(whole), whole)[0, ...]  # no correction at all
            own = bk.part_index(names) * found.count + np.arange(found.count, dtype=np.int32)
            between, turned = (bk.take_in_bounds(a, own, 0) for a in (whole, bk.matrix_transpose(whole)))
        return tuple(array[None, ...] for array in (inverse, between, turned))

    return A.bk.map_parts(local, A.spread, (*arrays, *tables), (0,) * 5, (0, 0, 0))


def _blocks(bk: Any, flat: Array, slots: Array, values: Sequence[Array]) -> Array:
    """`(s, k, k)`: the matrices of the subdomains of a part, of its values one after the other."""
    inside = sum(int(np.prod(tuple(array.shape[1:]))) for array in values[:2])
    ends = bk.asarray(np.array([0, 1]), bk.dtype(flat), like=flat)
    return bk.take_in_bounds(bk.concat([flat[:inside], ends]), slots, 0)


def _sums(bk: Any, flat: Array, ids: Array, count: int, parts: int) -> Array:
    """`(count, parts count)`: rows of the coarse matrix."""
    total = count * parts * count
    return bk.reshape(bk.sum_entries(flat, ids, total + 1)[:total], (count, parts * count))


def _regular(bk: Any, coarse: Array) -> Array:
    """With 1 on the diagonal of clusters that are padding, which have no entries."""
    empty = bk.sum(bk.abs(coarse), 1) == 0
    return coarse + bk.astype(empty, bk.dtype(coarse))[:, None] * bk.asarray(np.eye(len(empty)), bk.dtype(coarse))
