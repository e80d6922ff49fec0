"""Sparse matrix whose rows are divided among the devices of a mesh, with ghost values exchanged once a product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...backends.interface.cuts import Cut
from ..formats import from_scipy
from ..formats.ell import scatter
from ..operator import Operator
from ..partition.local_rows import LocalRows
from .composed import Composed

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
        rows, cols, slots = self.layout.coordinates()
        data = np.concatenate([value.reshape(-1) for value in values])[slots]
        found = sp.csr_array(sp.coo_array((data, (rows, cols)), self.shape))
        self.__dict__.update(_known_values=values, _known=sp.csr_array(found.T) if self.transposed else found)
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
        transposed, layout, n = self.transposed, self.layout, self.shape[0]

        def rebuild(values: Sequence[np.ndarray]) -> Operator:
            rows, cols, slots = layout.coordinates()
            data = np.concatenate([value.reshape(-1) for value in values])[slots]
            found = sp.csr_array(sp.coo_array((data, (cols, rows) if transposed else (rows, cols)), (n, n)))
            return from_scipy(get_backend("numpy"), found, found.dtype)

        return [self.own, self.rest, self.away], rebuild


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
