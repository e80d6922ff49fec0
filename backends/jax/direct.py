"""Single XLA operations where `jnp` would record three to ten equations and take as much longer to trace.

Each is for arrays of known kinds and says what `jnp` says; the others go there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..interface.arrays import Array
from ..settings import exponent_bits


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
