"""Single XLA operations where `jnp` would record three to ten equations and take as much longer to trace.

Each is for arrays of known kinds and says what `jnp` says; the others go there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..interface.arrays import NUMPY_DTYPES, Array
from ..interface.backend import Backend
from ..interface.cuts import Cut
from ..interface.kernels import diagonal_places
from ..settings import exponent_bits, real_dtype
from .sharding.grid_rows import (
    GRIDS,
    GridRows,
    GridStack,
    cells_of,
    dot_of_cells,
    dots_of_cells,
    on_cells,
    reduced,
    sums_of_cells,
    unfolded,
)
from .sharding.parts import spread
from .sharding.varying import is_mapped


def direct(operation: Callable[[Array], Array], wrapper: Callable[[Any], Array]) -> Callable[[Any], Array]:
    """Elementwise function: the XLA `operation` for traced real floats, else `wrapper`."""
    return lambda x: operation(x) if isinstance(x, jax.core.Tracer) and x.dtype.kind == "f" else wrapper(x)


def select_elements(condition: Any, a: Any, b: Any) -> Array:
    """`jnp.where` as a single select, if dtypes agree and broadcasting is by rows only."""
    arrays = [x for x in (a, b) if isinstance(x, jax.Array)]
    numbers = [x for x in (a, b) if not isinstance(x, jax.Array)]
    if not isinstance(condition, jax.core.Tracer) or condition.dtype != bool or not arrays:
        return jnp.where(condition, a, b)
    like = arrays[0]
    allowed: tuple[type, ...] = (int, float) if like.dtype.kind == "f" else (int,)
    if like.dtype.kind not in "fi" or not all(type(x) in allowed for x in numbers) or like.aval.weak_type:
        return jnp.where(condition, a, b)
    if any(x.shape != like.shape or x.dtype != like.dtype or x.aval.weak_type for x in arrays):
        return jnp.where(condition, a, b)
    if condition.shape != like.shape:
        if condition.ndim != like.ndim or any(k not in (1, n) for k, n in zip(condition.shape, like.shape)):
            return jnp.where(condition, a, b)
        condition = lax.broadcast_in_dim(condition, like.shape, range(like.ndim))
    a, b = (x if isinstance(x, jax.Array) else lax.full_like(like, x) for x in (a, b))
    return lax.select(condition, a, b)


def dot_of_one(a: Array, b: Array) -> Array:
    """`Backend.dot` of single rows: one operation with a kernel in XLA."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return jnp.vdot(a[0], b[0], precision=lax.Precision.HIGHEST)[None, None]
    n, contracted = (a.shape[1],), (((0,), (0,)), ((), ()))
    flat = lax.reshape(a, n)
    other = flat if b is a else lax.reshape(b, n)
    flat = flat if a.dtype.kind == "f" else lax.conj(flat)
    return lax.reshape(lax.dot_general(flat, other, contracted, precision=lax.Precision.HIGHEST), (1, 1))


def largest_bits(cells: Array) -> tuple[Array, np.dtype]:
    """`(batch, 1)`: the bits of the largest absolute value of each row, as an integer, and the dtype of that value.

    Sizes of floats order as their bits do, NaN above all: XLA's own maximum drops NaN on the CPU, and takes three times
    as long with a look at them.
    """
    real = cells.dtype.kind == "f"
    size = cells if real else jnp.abs(cells)
    integer = np.dtype(f"int{8 * size.dtype.itemsize}")
    without_sign = np.array(np.iinfo(integer).max, integer)
    bits = lax.bitcast_convert_type(size, integer) & without_sign
    largest = lax.reduce(bits, np.zeros((), integer), lax.max, tuple(range(1, cells.ndim)))
    return lax.expand_dims(largest, (1,)), np.dtype(size.dtype)


def power_bits(bits: Array, dtype: np.dtype) -> Array:
    """The bits of the power of two just below numbers with these bits, where it and its inverse are normal numbers."""
    integer, mask = exponent_bits(dtype)
    tiny = np.finfo(dtype).tiny
    low, high = (np.array(x, dtype).view(integer) for x in (tiny, 1 / tiny))
    return lax.clamp(low, bits & np.array(mask, integer), high)


def scale_bits(bits: Array, dtype: np.dtype) -> Array:
    """The bits of `Backend.binary_scale`, from those of the largest absolute value of each row."""
    integer, mask = exponent_bits(dtype)
    one = np.array(1, dtype).view(integer)
    power = power_bits(bits, dtype)
    regular = (bits > 0) & (bits < np.array(mask, integer))  # neither zero nor infinite nor NaN
    return lax.select(regular, power, lax.full_like(bits, one))


# --- Vector operations in JAX: rows `(batch, n)`, or the same kept as grids -------------------------------------------

_SQRT = direct(lax.sqrt, jnp.sqrt)


class JaxVectors(Backend):
    """Elementwise functions and reductions."""

    _native_dtypes = NUMPY_DTYPES

    def spreads_arrays(self) -> bool:
        return jax.device_count() > 1 and not is_mapped()

    def on_grid(self, rows: Array, grid: Sequence[int], cut: Cut | None = None) -> Any:
        if not self.spreads_arrays():
            return rows
        cells = cells_of(rows)
        shape = (rows.shape[0], *grid)
        cells = cells if cells.shape == shape else jnp.reshape(cells, shape)
        if cut is None or (isinstance(rows, GridRows) and rows.cut == cut):
            return GridRows(cells, cut)
        return GridRows(spread(cells, cut), cut)

    def known_cut(self, rows: Any) -> Cut | None:
        return rows.cut if isinstance(rows, GridRows) else None

    def flat(self, rows: Any) -> Array:
        return rows.flat if isinstance(rows, GridRows) else rows

    def zeros_like(self, x: Array, dtype: Any = None) -> Array:
        return (
            on_cells(partial(jnp.zeros_like, dtype=dtype), x)
            if isinstance(x, GridRows)
            else super().zeros_like(x, dtype)
        )

    def full_like(self, x: Array, value: Any, dtype: Any = None) -> Array:
        if isinstance(x, GridRows):
            return on_cells(partial(jnp.full_like, fill_value=value, dtype=dtype), x)
        return super().full_like(x, value, dtype)

    def room_for(self, v: Array, count: int) -> Any:
        if not isinstance(v, GridRows):
            return super().room_for(v, count)
        batch, *grid = v.cells.shape
        return GridStack(jnp.zeros((batch, count, *grid), v.dtype), cut=v.cut)

    def unfold(self, flat: Array, count: int) -> Any:
        return unfolded(flat) if isinstance(flat, GridRows) else super().unfold(flat, count)

    def fold(self, stack: Any) -> Any:
        return stack.folded if isinstance(stack, GridStack) else super().fold(stack)

    def _promotes(self, a: Any, b: Any) -> bool:
        return (hasattr(a, "dtype") and hasattr(b, "dtype")) or super()._promotes(a, b)

    def _select(self, condition: Array, a: Any, b: Any) -> Array:
        return on_cells(select_elements, condition, a, b)

    def maximum(self, a: Array, b: Any) -> Array:
        return on_cells(jnp.maximum, a, b) if self._promotes(a, b) else self.xp.maximum(a, b)

    def sqrt(self, x: Array) -> Array:
        return on_cells(_SQRT, x) if x.dtype.kind in "fc" else self.xp.sqrt(x)

    def any(self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
        if axis is None and not keepdims and x.size == 1 and x.dtype == bool:
            return lax.reshape(x, ())
        # JAX looks at the real part of complex numbers alone
        return jnp.any(x != 0 if jnp.iscomplexobj(x) else x, axis, keepdims=keepdims)

    abs = staticmethod(partial(on_cells, direct(lax.abs, jnp.abs)))
    real = staticmethod(partial(on_cells, direct(lambda x: x, jnp.real)))
    conj = staticmethod(partial(on_cells, direct(lambda x: x, jnp.conj)))
    isfinite = staticmethod(partial(on_cells, direct(lax.is_finite, jnp.isfinite)))

    def max_abs(self, v: Array) -> Array:
        cells = cells_of(v)
        if jnp.issubdtype(cells.dtype, jnp.inexact):
            bits, dtype = _largest_bits(v)
            return lax.bitcast_convert_type(bits, dtype)
        return jnp.max(jnp.abs(cells), tuple(range(1, cells.ndim)), initial=0)[:, None]

    def binary_scale(self, v: Array) -> Array:
        """As in `Backend`, by integer operations: the same numbers with half as many."""
        bits, dtype = _largest_bits(v)
        return lax.bitcast_convert_type(scale_bits(bits, dtype), dtype)

    def norm(self, v: Array) -> Array:
        """See `Backend`. The scale of a row that is zero or not finite is arbitrary."""
        if self.is_concrete(v):
            return super().norm(v)
        bits, dtype = _largest_bits(v)
        scale = lax.bitcast_convert_type(power_bits(bits, dtype), dtype)
        return scale * self.sqrt(self.square_norm(self.times(1 / scale, v)))

    def dot(self, a: Array, b: Array) -> Array:
        if isinstance(a, GridRows) or isinstance(b, GridRows):
            return dot_of_cells(a, b)
        if a.shape[0] == 1:
            return dot_of_one(a, b)
        return jnp.sum(jnp.conj(a) * b, axis=1, keepdims=True)

    def dots(self, *pairs: tuple[Array, Array]) -> tuple[Array, ...]:
        if not self.spreads_arrays():
            return super().dots(*pairs)
        if (found := dots_of_cells(pairs)) is not None:
            return found
        terms = jnp.stack([cells_of(on_cells(_conj_times, a, b)) for a, b in pairs])
        sums = jnp.sum(terms, tuple(range(2, terms.ndim)))
        return tuple(sums[k][:, None] for k in range(len(pairs)))

    def sum(
        self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False, dtype: Any = None
    ) -> Array:
        if isinstance(x, GridRows):
            return sums_of_cells(x)
        if dtype is None and x.dtype.kind not in "fc":
            return self.xp.sum(x, axis=axis, keepdims=keepdims)
        return jnp.sum(x, axis, dtype or x.dtype, keepdims=keepdims)

    def product(self, matrix: Array, x: Array) -> Any:
        if isinstance(matrix, GRIDS):
            return matrix.times(x)
        if matrix.ndim == 2:
            return jnp.matmul(x, matrix.T, precision=lax.Precision.HIGHEST)
        return jnp.matmul(matrix, x[..., None], precision=lax.Precision.HIGHEST)[..., 0]

    def matrix_transpose(self, matrix: Array) -> Any:
        return matrix.T if isinstance(matrix, GRIDS) else jnp.swapaxes(matrix, -1, -2)

    def dia_product(
        self, diagonals: Array, offsets: Sequence[int], x: Array, n: int, transposed: bool = False
    ) -> Array:  # fmt: skip
        if not self.spreads_arrays():
            return super().dia_product(diagonals, offsets, x, n, transposed)
        total, row = jnp.zeros((x.shape[0], n), x.dtype), jnp.arange(n)
        for d, lo, hi, shift, step in diagonal_places(offsets, n, x.shape[1], transposed):
            part = self.window(diagonals[..., d, :], (shift,), (n,)) * self.window(x, (step,), (n,))
            total = total + jnp.where((row >= lo) & (row < hi), part, 0)  # stored values outside count as 0
        return total


def _largest_bits(v: Any) -> tuple[Array, np.dtype]:
    cells, cut = cells_of(v), v.cut if isinstance(v, GridRows) else None
    if cut is None:
        return largest_bits(cells)
    bits = reduced(lambda cells: largest_bits(cells)[0], lax.pmax, cut, cells)
    return bits, real_dtype(cells.dtype)


def _conj_times(a: Array, b: Array) -> Array:
    return jnp.conj(a) * b
