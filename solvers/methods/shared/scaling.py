"""Products scaled by powers of two, exactly, so that squares and powers neither overflow nor underflow."""

from __future__ import annotations

from ....backends import Array, Backend


def growth(bk: Backend, image: Array, v: Array) -> Array:
    """`(batch, 1)`: the growth from v to `image`, as a power of two."""
    return bk.binary_scale(image) / bk.binary_scale(v)


def to_unit_size(bk: Backend, v: Array) -> tuple[Array, Array]:
    """v divided by the power of two of its size, and that power; always new memory."""
    size = bk.binary_scale(v)
    return bk.times(1 / size, v), size
