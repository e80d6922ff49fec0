"""Sharded grid vectors: rows `(batch, n)` kept as `(batch, *grid)`.

XLA spreads arrays over devices axis by axis. An axis that is merged with one in front of it, as flattening does, can be
spread no more, and XLA then gathers the whole array on every device, silently. So where there are several devices the
vectors of a solve are grids inside; to methods they look like rows, and scalars stay `(batch, 1)`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...interface.arrays import Array


@jax.tree_util.register_pytree_node_class
class GridRows:
    """`(batch, *grid)` in place of `(batch, n)`; combines with scalars, `(batch, 1)`, `(batch, n)` and its like.

    JAX's own functions do not take it; those of the backend that solves need do.
    """

    __array_ufunc__ = None  # NumPy's numbers leave operations to it
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, cells: Any) -> None:
        self.cells = cells

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.cells,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> GridRows:
        return cls(*children)

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
        return GridRows(self.cells.astype(dtype))

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

    def __init__(self, cells: Any, transposed: bool = False) -> None:
        self.cells, self.transposed = cells, transposed

    def tree_flatten(self) -> tuple[tuple[Any], bool]:
        return (self.cells,), self.transposed

    @classmethod
    def tree_unflatten(cls, transposed: bool, children: tuple[Any]) -> GridStack:
        return cls(*children, transposed)

    @property
    def shape(self) -> tuple[int, int, int]:
        (batch, k), n = self.cells.shape[:2], math.prod(self.cells.shape[2:])
        return (batch, n, k) if self.transposed else (batch, k, n)

    @property
    def dtype(self) -> Any:
        return self.cells.dtype

    @property
    def T(self) -> GridStack:
        return GridStack(self.cells, not self.transposed)

    def __getitem__(self, key: tuple[slice, ...]) -> GridStack:
        """Index systems and vectors, and all numbers."""
        systems, vectors, *numbers = key
        sliced = isinstance(systems, slice) and isinstance(vectors, slice) and numbers in ([], [slice(None)])
        if self.transposed or not sliced:
            raise TypeError(f"A stack was asked for {key}; expected slices of systems and of vectors.")
        return GridStack(self.cells[systems, vectors])

    def times(self, x: Any) -> Any:
        """`Backend.product`: `(batch, k)` of rows, or rows of `(batch, k)` for the transpose."""
        if self.transposed:
            axes: Any = ((1,), (1,))
            return GridRows(self._contracted(x, axes))
        cells = GridRows(self.cells[:, 0]).fitted(x)
        return self._contracted(cells, (tuple(range(2, self.cells.ndim)), tuple(range(1, cells.ndim))))

    def _contracted(self, x: Array, axes: Any) -> Array:
        return lax.dot_general(self.cells, x, (axes, ((0,), (0,))), precision=lax.Precision.HIGHEST)

    def with_row(self, row: Array, values: Any) -> GridStack:
        """`Backend.put_row`."""
        cells = GridRows(self.cells[:, 0]).fitted(values)
        return GridStack(self.cells.at[jnp.arange(self.cells.shape[0]), row[:, 0]].set(cells, mode="drop"))


def on_cells(function: Callable[..., Array], *operands: Any) -> Any:
    """An elementwise function of arrays, some of which may be `GridRows`: then so is the result."""
    rows = next((x for x in operands if isinstance(x, GridRows)), None)
    return function(*operands) if rows is None else GridRows(function(*map(rows.fitted, operands)))


def cells_of(x: Any) -> Any:
    """The array in which rows are stored: `(batch, *grid)`, or `(batch, n)`."""
    return x.cells if isinstance(x, GridRows) else x


def dot_of_cells(a: Any, b: Any) -> Array:
    """`Backend.dot` where one of the two is kept as grids: over all axes at once, as none may be merged."""
    rows = a if isinstance(a, GridRows) else b
    a, b = jnp.conj(rows.fitted(a)), rows.fitted(b)
    if a.shape[0] == 1:
        return jnp.tensordot(a[0], b[0], a.ndim - 1, precision=lax.Precision.HIGHEST)[None, None]
    return jnp.sum(a * b, tuple(range(1, a.ndim)))[:, None]


def _operation(function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[GridRows, Any], Any]:
    if swapped:
        return lambda rows, other: on_cells(function, other, rows)
    return lambda rows, other: on_cells(function, rows, other)


for _name in ("add", "sub", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge"):
    _function = getattr(operator, _name)
    setattr(GridRows, f"__{_name}__", _operation(_function, swapped=False))
    if _name in ("add", "sub", "mul", "truediv"):
        setattr(GridRows, f"__r{_name}__", _operation(_function, swapped=True))
