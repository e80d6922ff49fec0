"""Sharded grid vectors: rows `(batch, n)` kept as `(batch, *grid)`.

XLA spreads arrays over devices axis by axis. An axis that is merged with one in front of it, as flattening does, can be
spread no more, and XLA then gathers the whole array on every device, silently. So where there are several devices the
vectors of a solve are grids inside; to methods they look like rows, and scalars stay `(batch, 1)`.

Where the mesh is known (`Cut`), sums and maxima over all unknowns are made block by block and added up by one reduction
over all mesh axes at once; XLA by itself makes one for each mesh axis.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...interface.arrays import Array
from ...interface.cuts import Cut
from .parts import WHOLE, batch_spec, grid_spec, is_reduced_by_parts, of_blocks


@jax.tree_util.register_pytree_node_class
class GridRows:
    """`(batch, *grid)` in place of `(batch, n)`; combines with scalars, `(batch, 1)`, `(batch, n)` and its like.

    JAX's own functions do not take it; those of the backend that solves need do.

    Attributes:
        cells: `(batch, *grid)`.
        cut: how they are distributed over a device mesh, None where that is not known.
    """

    __array_ufunc__ = None  # NumPy's numbers leave operations to it
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, cells: Any, cut: Cut | None = None) -> None:
        self.cells, self.cut = cells, cut

    def tree_flatten(self) -> tuple[tuple[Any], Cut | None]:
        return (self.cells,), self.cut

    @classmethod
    def tree_unflatten(cls, cut: Cut | None, children: tuple[Any]) -> GridRows:
        return cls(*children, cut)

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.shape[0], math.prod(self.cells.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.cells.dtype

    @property
    def flat(self) -> Array:
        return jnp.reshape(self.cells, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.flat, dtype)

    def astype(self, dtype: Any) -> GridRows:
        return GridRows(self.cells.astype(dtype), self.cut)

    def __invert__(self) -> Any:
        return on_cells(operator.invert, self)

    @property
    def T(self) -> GridColumns:
        return GridColumns(self)

    def times(self, x: Any) -> Array:
        """`Backend.product` of `(k, n)` and each row of `(m, n)`: `(m, k)`."""
        cells, axes = self.fitted(x), tuple(range(1, self.cells.ndim))

        def of_block(a: Array, b: Array) -> Array:
            return _contracted(b, a, (axes, axes), ((), ()))

        cut: Any = self.cut
        if not is_reduced_by_parts(self.cells, cut) or cut.batch:
            return of_block(self.cells, cells)
        summed = of_blocks(lambda a, b: lax.psum(of_block(a, b), cut.all_names), cut, (grid_spec(cut),) * 2, WHOLE)
        found: Array = summed(self.cells, cells)
        return found

    def fitted(self, other: Any) -> Any:
        """Reshape `other` to broadcast with the cells.

        Raises:
            ValueError: it has another shape than rows, scalars of rows and numbers have.
        """
        grid = self.cells.shape[1:]
        if isinstance(other, GridRows):
            if other.cells.shape[1:] != grid:
                raise ValueError(f"Rows of grids {grid} and {other.cells.shape[1:]} were combined; expected one grid.")
            return other.cells
        shape = np.shape(other)
        if math.prod(shape) == 1 and len(shape) < 3:
            return other if not shape else jnp.reshape(other, ())
        batch, n = shape if len(shape) == 2 else (1, *shape) if len(shape) == 1 else (0, -1)
        if n not in (1, self.shape[1]) or (len(shape) == 1 and n == 1):
            raise ValueError(f"Rows {self.shape} were combined with the shape {shape}; expected these or (batch, 1).")
        return jnp.reshape(other, (batch, *((1,) * len(grid) if n == 1 else grid)))


@jax.tree_util.register_pytree_node_class
class GridStack:
    """Several vectors for each system: `(batch, k, *grid)` in the place of `(batch, k, n)`, or of its transpose."""

    __array_ufunc__ = None

    def __init__(self, cells: Any, transposed: bool = False, cut: Cut | None = None) -> None:
        self.cells, self.transposed, self.cut = cells, transposed, cut

    def tree_flatten(self) -> tuple[tuple[Any], tuple[bool, Cut | None]]:
        return (self.cells,), (self.transposed, self.cut)

    @classmethod
    def tree_unflatten(cls, static: tuple[bool, Cut | None], children: tuple[Any]) -> GridStack:
        transposed, cut = static
        return cls(*children, transposed, cut)

    @property
    def shape(self) -> tuple[int, int, int]:
        (batch, k), n = self.cells.shape[:2], math.prod(self.cells.shape[2:])
        return (batch, n, k) if self.transposed else (batch, k, n)

    @property
    def dtype(self) -> Any:
        return self.cells.dtype

    @property
    def T(self) -> GridStack:
        return GridStack(self.cells, not self.transposed, self.cut)

    @property
    def folded(self) -> GridRows:
        """The vectors of each system as one row, a grid with one axis more."""
        return GridRows(self.cells, None if self.cut is None else self.cut.behind(1))

    def __getitem__(self, key: tuple[slice, ...]) -> GridStack:
        """Index systems and vectors, and all numbers."""
        systems, vectors, *numbers = key
        sliced = isinstance(systems, slice) and isinstance(vectors, slice) and numbers in ([], [slice(None)])
        if self.transposed or not sliced:
            raise TypeError(f"A stack was asked for {key}; expected slices of systems and of vectors.")
        return GridStack(self.cells[systems, vectors], cut=self.cut)

    def times(self, x: Any) -> Any:
        """`Backend.product`: `(batch, k)` of rows, or rows of `(batch, k)` for the transpose."""
        if self.transposed:
            return GridRows(_contracted(self.cells, x, ((1,), (1,)), ((0,), (0,))), self.cut)
        cells = self._one.fitted(x)
        axes = tuple(range(2, self.cells.ndim)), tuple(range(1, cells.ndim))
        if not is_reduced_by_parts(self.cells, self.cut) or cells.shape[0] != self.cells.shape[0]:
            return _contracted(self.cells, cells, axes, ((0,), (0,)))
        cut: Any = self.cut

        def of_block(stack: Array, x: Array) -> Array:
            return lax.psum(_contracted(stack, x, axes, ((0,), (0,))), cut.all_names)

        stacked = grid_spec(cut.behind(1))
        return of_blocks(of_block, cut, (stacked, grid_spec(cut)), batch_spec(cut))(self.cells, cells)

    def with_row(self, row: Array, values: Any) -> GridStack:
        """`Backend.put_row`."""
        cells = self._one.fitted(values)
        places = jnp.arange(self.cells.shape[0]), row[:, 0]
        return GridStack(self.cells.at[places].set(cells, mode="drop"), cut=self.cut)

    @property
    def _one(self) -> GridRows:
        return GridRows(self.cells[:, 0], self.cut)


def unfolded(rows: GridRows) -> GridStack:
    """The stack that `folded` made one row of."""
    return GridStack(rows.cells, cut=None if rows.cut is None else rows.cut.within(1))


class GridColumns:
    """The transpose `(n, k)` of rows, which is multiplied by coefficients only."""

    def __init__(self, rows: GridRows) -> None:
        self.rows = rows

    @property
    def T(self) -> GridRows:
        return self.rows

    def times(self, c: Array) -> GridRows:
        """`Backend.product`: combinations of the rows with coefficients `(m, k)`, as m rows."""
        return GridRows(_contracted(c, self.rows.cells, ((1,), (0,)), ((), ())), self.rows.cut)


GRIDS = (GridRows, GridStack, GridColumns)  # what products and transposes of the backend take in place of matrices


def on_cells(function: Callable[..., Array], *operands: Any) -> Any:
    """An elementwise function of arrays, some of which may be `GridRows`: then so is the result."""
    found = [x for x in operands if isinstance(x, GridRows)]
    if not found:
        return function(*operands)
    cut = next((x.cut for x in found if x.cut is not None), None)
    return GridRows(function(*map(found[0].fitted, operands)), cut)


def cells_of(x: Any) -> Any:
    """The array in which rows are stored: `(batch, *grid)`, or `(batch, n)`."""
    return x.cells if isinstance(x, GridRows) else x


def dot_of_cells(a: Any, b: Any) -> Array:
    """`Backend.dot` where one of the two is kept as grids: over all axes at once, as none may be merged."""
    rows = a if isinstance(a, GridRows) else b
    cut = next((x.cut for x in (a, b) if isinstance(x, GridRows) and x.cut is not None), None)
    return reduced(_dot, lax.psum, cut, rows.fitted(a), rows.fitted(b))


def dots_of_cells(pairs: Sequence[tuple[Any, Any]]) -> tuple[Array, ...] | None:
    """`Backend.dots`, by one reduction; None where not all are grids that are distributed alike."""
    rows = [x for pair in pairs for x in pair]
    cuts = {x.cut if isinstance(x, GridRows) else None for x in rows}
    cut = next(iter(cuts))
    if len(cuts) != 1 or not is_reduced_by_parts(rows[0].cells if cut else None, cut):
        return None

    def of_block(*cells: Array) -> Array:
        return jnp.concatenate([_dot(*cells[k : k + 2]) for k in range(0, len(cells), 2)], 1)

    found = reduced(of_block, lax.psum, cut, *(x.cells for x in rows))
    return tuple(found[:, k : k + 1] for k in range(len(pairs)))


def sums_of_cells(x: GridRows) -> Array:
    """`(batch, 1)`: the sum of each row."""
    return reduced(
        lambda cells: jnp.sum(cells, tuple(range(1, cells.ndim)), cells.dtype)[:, None], lax.psum, x.cut, x.cells
    )


def reduced(function: Callable[..., Array], across: Callable[..., Array], cut: Cut | None, *cells: Array) -> Array:
    """`function(*cells)`, `(batch, 1)`: a reduction over all grid axes.

    Args:
        across: what combines the results of blocks, given mesh axes.
    """
    alike = len({x.shape for x in cells}) == 1  # others broadcast, along axes that may be cut
    if not is_reduced_by_parts(cells[0], cut) or not alike:
        return function(*cells)
    known: Any = cut

    def of_block(*blocks: Array) -> Array:
        return across(function(*blocks), known.all_names)

    return of_blocks(of_block, known, (grid_spec(known),) * len(cells), batch_spec(known))(*cells)


def _dot(a: Array, b: Array) -> Array:
    a = jnp.conj(a)
    if a.shape[0] == 1:
        return jnp.tensordot(a[0], b[0], a.ndim - 1, precision=lax.Precision.HIGHEST)[None, None]
    return jnp.sum(a * b, tuple(range(1, a.ndim)))[:, None]


def _contracted(a: Array, b: Array, axes: Any, batch: Any) -> Array:
    return lax.dot_general(a, b, (axes, batch), precision=lax.Precision.HIGHEST)


def _operation(function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[GridRows, Any], Any]:
    if swapped:
        return lambda rows, other: on_cells(function, other, rows)
    return lambda rows, other: on_cells(function, rows, other)


for _name in ("add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge"):
    _function = getattr(operator, _name)
    setattr(GridRows, f"__{_name}__", _operation(_function, swapped=False))
    if _name in ("add", "sub", "mul", "truediv"):
        setattr(GridRows, f"__r{_name}__", _operation(_function, swapped=True))
for _name in ("and", "or"):
    setattr(GridRows, f"__{_name}__", _operation(getattr(operator, f"{_name}_"), swapped=False))
