"""Sparse matrix whose rows are divided among the devices of a mesh, with ghost values exchanged once a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend, working_dtype
from ...backends.interface.cuts import Cut
from ..analysis.analysis import analysis_of
from ..convert import as_operator
from ..errors import UnsupportedOperation
from ..formats import SparseMatrix, from_scipy
from ..formats.ell import scatter
from ..formats.structure import Structure
from ..operator import Operator
from ..partition.exchange import Redistribution, redistribution
from ..partition.local_rows import LocalRows, local_rows
from ..partition.row_partition import checked_labels, near_their_blocks, partition_of_pattern, row_partition
from .composed import Composed
from .concrete import concrete_entries

VALUES = ("own", "rest", "away")
TABLES = ("own_cols", "rest_cols", "rest_rows", "away_cols", "away_rows", "send")


@dataclass(eq=False, repr=False)
class CutRows(Composed):
    """Rows by parts: vectors are the concatenation of the parts, padded to equal size and spread over the devices.

    Rows of padding hold a diagonal entry of their part and nothing else, and vectors hold 0 there.

    Cost: a product exchanges the ghost values once, by one message for each colour of the graph of neighbouring parts
    or one all-to-all (`Exchange`), and makes no reduction.

    Attributes:
        spread: how vectors `(batch, n)` are spread; tables and values have an axis of parts in front.
        layout: where each entry is.
        own, rest, away: values in own unknowns, ELL `(parts, w, size)` and the rest in pieces `(parts, k, c)`, and in
            ghost values.
        main: the diagonal, `(parts, size)`.
        symmetric: is A known to be exactly its transpose?
        declared: what was known of it when it was made, as its values may be traced later.
        transposed: is this its transpose? It adds what it finds for other parts by the exchange reversed.
    """

    parts = ("own", "rest", "away", "main", *TABLES)
    is_container = True

    bk: Backend
    spread: Cut
    layout: LocalRows
    own: Array
    rest: Array
    away: Array
    main: Array
    own_cols: Array
    rest_cols: Array
    rest_rows: Array
    away_cols: Array
    away_rows: Array
    send: Array
    symmetric: bool = False
    transposed: bool = False
    declared: tuple[tuple[str, Any], ...] = ()

    def _settle(self) -> None:
        n = self.layout.parts * self.layout.size
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.own).dtype(self.own))
        self.tracked = self.bk.explicit_derivatives and any(self.bk.tracks(getattr(self, name)) for name in VALUES)

    def apply(self, x: Array) -> Array:
        """One exchange of ghost values."""
        arrays = [self.array(name) for name in (*VALUES, *TABLES)]
        local = partial(
            _transposed_product if self.transposed else _product, self.bk, self.spread.all_names, self.layout
        )
        found: Array = self.bk.map_parts(local, self.spread, (*arrays, x), (*(0,) * len(arrays), 1), 1)
        return found

    def transpose(self) -> CutRows:
        if self.symmetric:
            return self
        found, values = replace(self, transposed=not self.transposed), self.known_values()
        return found if values is None else found.with_known(values)

    def conj(self) -> CutRows:
        if self.dtype.kind != "c":
            return self
        values = {
            name: self._library_of(a).conj(a) for name in (*VALUES, "main") if (a := getattr(self, name)) is not None
        }
        return replace(self, **values)

    def diagonals(self) -> Array:
        return self.bk.reshape(self.array("main"), (1, self.shape[0]))

    def absolute_row_sums(self) -> Array:
        """`(1, n)`: sum of |entries| of each row. Cost: one product."""
        sizes = {name: self._library_of(a).abs(a) for name in VALUES if (a := getattr(self, name)) is not None}
        other = replace(self, **sizes)
        return other.apply(self.bk.full((1, self.shape[1]), 1, other.dtype, other.own))

    def known(self) -> sp.csr_array | None:
        """The rows of all parts, one after the other, of a matrix as it was made of known values."""
        found: sp.csr_array | None = self.__dict__.get("_known")
        return found

    def is_exactly_hermitian(self) -> bool | None:
        return True if self.symmetric else None if self.known() is None else False

    def known_values(self) -> list[np.ndarray] | None:
        """`own`, `rest` and `away` on the host, where they are known."""
        found: list[np.ndarray] | None = self.__dict__.get("_known_values")
        return found

    def with_known(self, values: list[np.ndarray]) -> CutRows:
        """The same, of values that are known; in place."""
        self.__dict__.update(_known_values=values, _known=_csr(self.layout, values, self.transposed))
        return self

    def knowing(self, other: CutRows) -> CutRows:
        """The same, with what is known of another one with these values; in place."""
        self.__dict__.update({name: other.__dict__.get(name) for name in ("_known", "_known_values")})
        return self

    def astype(self, dtype: np.dtype) -> CutRows:
        found: CutRows = super().astype(dtype)  # type: ignore[assignment]
        values = self.known_values()
        return found if values is None else found.with_known([value.astype(dtype) for value in values])

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        transposed, layout = self.transposed, self.layout

        def rebuild(values: Sequence[np.ndarray]) -> Operator:
            found = _csr(layout, values, transposed)
            return from_scipy(get_backend("numpy"), found, found.dtype)

        return [self.own, self.rest, self.away], rebuild


def _csr(layout: LocalRows, values: Sequence[np.ndarray], transposed: bool) -> sp.csr_array:
    """The rows of all parts, one after the other, of known values `own`, `rest` and `away`; or its transpose."""
    rows, cols, slots = layout.coordinates()
    data, n = np.concatenate([value.reshape(-1) for value in values])[slots], layout.parts * layout.size
    return sp.csr_array(sp.coo_array((data, (cols, rows) if transposed else (rows, cols)), (n, n)))


Blocks = tuple[Array, ...]


def _product(bk: Any, names: Sequence[str], layout: LocalRows, *blocks: Array) -> Array:
    """`(batch, size)` -> `(batch, size)` on each device."""
    own, rest, away, own_cols, rest_cols, rest_rows, away_cols, away_rows, send = (block[0] for block in blocks[:-1])
    x, size = blocks[-1], layout.size
    ghosts = layout.exchange.received(bk, names, send, x) if layout.exchange.count else None
    y = bk.ell_product(own, own_cols, x)
    if int(rest_rows.shape[0]):
        y = y + bk.sum_entries(bk.ell_product(rest, rest_cols, x), rest_rows, size, sorted=True)
    if ghosts is not None:
        y = y + bk.sum_entries(bk.ell_product(away, away_cols, ghosts), away_rows, size, sorted=True)
    return y


def _transposed_product(bk: Any, names: Sequence[str], layout: LocalRows, *blocks: Array) -> Array:
    own, rest, away, own_cols, rest_cols, rest_rows, away_cols, away_rows, send = (block[0] for block in blocks[:-1])
    y, size = blocks[-1], layout.size
    x = scatter(bk, own, own_cols, y, size)
    if int(rest_rows.shape[0]):
        x = x + scatter(bk, rest, rest_cols, bk.take_in_bounds(y, rest_rows, 1), size)
    if layout.exchange.count:
        ghosts = scatter(bk, away, away_cols, bk.take_in_bounds(y, away_rows, 1), layout.exchange.count)
        x = x + layout.exchange.returned(bk, names, send, ghosts)
    return x


# --- In the user's order of unknowns ---


@dataclass(eq=False, repr=False)
class RowCutMatrix(Composed):
    """A sparse matrix whose rows are divided among the devices of a mesh, for vectors in the user's order.

    `linear_solve(A, b)` moves b to the order of the parts once, solves there, and moves x back: each device sends and
    receives about its own share of a vector. Products `A @ x` by themselves do that every time.

    Cost: that of `CutRows`, and for `A @ x` two redistributions of a vector, no reduction.

    Attributes:
        inner: the rows of all parts, one after the other (`CutRows`).
        spread: how vectors are distributed.
        layout: the partition.
        there, back: plans between the user's order, in even blocks, and that of the parts.

    Examples:
        >>> import jax, numpy as np, scipy.sparse as sp
        >>> from krylix.sparse import row_cut
        >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(8, 8))
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
        >>> row_cut(A, sharding=sharding) @ np.ones(8)  # of a single device: A itself
        array([1.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.5])
    """

    parts = ("inner", "there_send", "there_places", "back_send", "back_places")

    inner: Operator
    there_send: Array
    there_places: Array
    back_send: Array
    back_places: Array
    spread: Cut
    layout: LocalRows
    there: Redistribution
    back: Redistribution

    def _settle(self) -> None:
        super()._settle()
        n = len(self.layout.places)
        self.shape, self.declared = (n, n), self.inner.declared

    @property
    def in_shape(self) -> tuple[int, ...]:
        return (self.shape[1],)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.shape[0],)

    def to_parts(self, x: Array) -> Array:
        """Rows `(batch, n)` in the order of the parts, `(batch, parts * size)`; padding is 0.

        Cost: each device sends and receives about its share of the vector, in one all-to-all, or a few messages.
        """
        bk, n, even = self.bk, self.shape[0], self.there.exchange.size * self.layout.parts
        x = x if even == n else bk.pad(x, [(0, 0), (0, even - n)])
        return self._moved_by(self.there, ("there_send", "there_places"), x)

    def to_user(self, x: Array) -> Array:
        """The way back of `to_parts`."""
        found = self._moved_by(self.back, ("back_send", "back_places"), x)
        return found if int(found.shape[1]) == self.shape[0] else found[:, : self.shape[0]]

    def _moved_by(self, plan: Redistribution, names: tuple[str, str], x: Array) -> Array:
        bk, cut = self.bk, self.spread
        local = partial(_moved, bk, cut.all_names, plan)
        return bk.map_parts(local, cut, (*map(self.array, names), x), (0, 0, 1), 1)

    def apply(self, x: Array) -> Array:
        return self.to_user(self.inner.apply(self.to_parts(x)))

    def transpose(self) -> RowCutMatrix:
        return self._map(lambda A: A.transpose())

    def by(self, inner: Operator) -> RowCutMatrix:
        """Another operator on vectors in the order of the parts, such as a preconditioner, for those of the user."""
        return replace(self, inner=inner)

    def diagonals(self) -> Array:
        return self.to_user(self.inner.diagonals())

    def known(self) -> sp.csr_array | None:
        found, places = self.inner.known(), self.layout.places
        return None if found is None else found[places][:, places]

    def is_exactly_hermitian(self) -> bool | None:
        return self.inner.is_exactly_hermitian()

    def __repr__(self) -> str:
        layout = self.layout
        parts = f"{layout.parts} part{'s' * (layout.parts > 1)} of {layout.size} rows"
        ghosts = f"{layout.ghosts.max(initial=0)} ghost values"
        return f"<{self.shape[0]}x{self.shape[1]} row-cut matrix, {parts}, {ghosts}, {self.dtype}, {self.bk.name}>"


def _moved(bk: Any, names: Sequence[str], plan: Redistribution, send: Array, places: Array, x: Array) -> Array:
    return plan.local(bk, names, send[0], places[0], x)


def row_cut(A: Any, *, like: Any = None, sharding: Any = None, labels: Any = None, coordinates: Any = None) -> Operator:
    """Divide the rows of a sparse matrix among the devices of a mesh (JAX).

    Products then exchange only the values at the borders of the parts, once, by messages between neighbours. Pass the
    result to `linear_solve`, with b in the usual order, spread over the same mesh axes: x is spread as b is. It is a
    container of arrays: an argument of a compiled function has its values on their devices only, while a matrix that
    such a function closes over is stored whole on each. So is a preconditioner, `krylix.preconditioner(A, "schwarz")`,
    which is best made before and passed on, too.

    Args:
        A: a square sparse matrix of SciPy, JAX or krylix whose pattern is known; its values may be traced.
        like: a vector `(n,)` that is spread as the right-hand sides will be.
        sharding: or how they are: a `NamedSharding` of a vector.
        labels: `(n,)`, the part of each unknown, as `row_partition` finds it; None: found here.
        coordinates: `(n, d)`, where the unknowns lie: makes the partition quicker. Not with `labels`.

    Returns:
        RowCutMatrix; A as an operator where such vectors are on one device.

    Raises:
        ValueError: neither or both of `like` and `sharding`; a matrix that is not square; labels that do not fit.
        UnsupportedOperation: the pattern of A is not known.

    Cost: on the host, the partition and a few sorts of the entries; a product makes one message for each colour of the
    graph of neighbouring parts, of the ghost values, and no reduction. See `row_partition` for sources.

    Examples:
        >>> import jax, numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(8, 8))
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
        >>> b = jax.device_put(np.ones(8, np.float32), sharding)
        >>> bool(krylix.linear_solve(krylix.sparse.row_cut(A, sharding=sharding), b).converged)
        True
    """
    if (like is None) == (sharding is None):
        raise ValueError("Give one of like, a vector that is spread over a mesh, and sharding, its NamedSharding.")
    bk = get_backend("jax")
    cut = bk.cut_of(np.empty(0) if like is None else like, 0, sharding)
    if cut is None:
        return as_operator(A, None if like is None else like)
    if len(cut.names) != 1:
        raise ValueError(f"like has {len(cut.names)} axes; expected a vector (n,).")
    return cut_matrix(bk, as_operator(A), cut, labels, coordinates)


def cut_matrix(bk: Backend, A: Any, cut: Cut, labels: Any = None, coordinates: Any = None) -> RowCutMatrix:
    """`row_cut` of an operator, for vectors `(batch, n)` spread by `cut`."""
    if not isinstance(A, SparseMatrix) or A.systems is not None:
        raise UnsupportedOperation(f"Rows of {A!r} cannot be cut; expected one sparse matrix, whose pattern is known.")
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A has the shape {A.shape}; expected a square matrix, whose rows and unknowns go together.")
    parts = cut.parts[0]
    if labels is None and coordinates is None:
        plan = _plan(A.structure, parts)
    elif labels is None:
        plan = _plan_of(A.structure, parts, row_partition(A, parts, coordinates))
    else:
        plan = _plan_of(A.structure, parts, checked_labels(labels, A.shape[0], parts))
    return _filled(bk, A, cut, plan)


class RowCutPlan(NamedTuple):
    """All that depends on the pattern and the partition."""

    layout: LocalRows
    there: Redistribution
    back: Redistribution


@lru_cache(maxsize=8)
def _plan(structure: Structure, parts: int) -> RowCutPlan:
    rows, cols, _ = structure.entries()
    return _plan_of(structure, parts, partition_of_pattern(rows, cols, structure.shape[0], parts))


def _plan_of(structure: Structure, parts: int, labels: np.ndarray) -> RowCutPlan:
    rows, cols, _ = structure.entries()
    n = structure.shape[0]
    layout = local_rows(rows, cols, near_their_blocks(labels, parts), parts)
    even = -(-n // parts)
    places = np.full(parts * even, -1, np.int64)
    places[:n] = layout.places
    back = redistribution(places.reshape(parts, even), layout.size)
    return RowCutPlan(layout, redistribution(layout.unknowns, even), back)


def _is_symmetric(layout: LocalRows, values: list[np.ndarray]) -> bool:
    """Digit by digit."""
    found, other = (_csr(layout, values, transposed) for transposed in (False, True))
    found.sort_indices()
    other.sort_indices()
    return all(np.array_equal(getattr(found, name), getattr(other, name)) for name in ("indptr", "indices", "data"))


def _filled(bk: Backend, A: SparseMatrix, cut: Cut, plan: RowCutPlan) -> RowCutMatrix:
    """The matrix with the values of A, on their devices unless a program is being traced."""
    layout = plan.layout
    own, _, _, values = concrete_entries(A)
    dtype = working_dtype(A.dtype)
    values = own.concat([own.astype(values[0], dtype), own.zeros((1,), dtype, values)])  # and what padding holds

    last = int(values.shape[0]) - 1

    def taken(sources: np.ndarray) -> Array:
        return own.take_in_bounds(values, np.where(sources < 0, last, sources).astype(np.int32))

    arrays = [taken(source) for source in (layout.own.sources, layout.rest.sources, layout.away.sources)]
    held = arrays[:]
    arrays.append(taken(layout.diagonal))
    tables = (layout.own.cols, layout.rest.cols, layout.rest.rows, layout.away.cols, layout.away.rows)
    arrays += [*tables, layout.exchange.send, *plan.there.tables, *plan.back.tables]
    if not bk.in_program():
        arrays = bk.map_parts(lambda *blocks: blocks, cut, arrays, (0,) * len(arrays), (0,) * len(arrays))
    symmetric = own.on_host and dtype.kind != "c" and _is_symmetric(layout, held)
    by_name = dict(zip(CutRows.parts, arrays, strict=False))
    inner = CutRows(bk=bk, spread=cut, layout=layout, symmetric=symmetric, **by_name)
    if own.on_host:
        inner.with_known(held)
        if symmetric:
            inner.declared = (("maybe_definite", analysis_of(inner).maybe_definite),)
    there_send, there_places, back_send, back_places = arrays[-4:]
    return RowCutMatrix(inner, there_send, there_places, back_send, back_places, cut, layout, plan.there, plan.back)
