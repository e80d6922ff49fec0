"""Products divided by a power of two, exactly, so that their squares and powers neither overflow nor vanish."""

from __future__ import annotations

from ....backends import Array, Backend
from ....sparse import Operator
from ...iteration.method import apply


def growth(bk: Backend, image: Array, v: Array) -> Array:
    """`(batch, 1)`: the power of two by which an operator that maps v to `image` makes it larger."""
    return bk.binary_scale(image) / bk.binary_scale(v)


def scaled_product(bk: Backend, A: Operator, M: Operator | None, v: Array, size: Array) -> Array:
    """`A M v / size` for a power of two `size`, mostly the `growth` of a first product; the result is new memory."""
    if bk.updates_in_place:  # scaled afterwards: new memory, also where a function returns its own buffer
        return bk.times(1 / size, A.apply(apply(M, v)))
    return A.apply(apply(M, bk.times(1 / size, v)))  # else XLA would compute the product again for each use


def to_unit_size(bk: Backend, v: Array) -> tuple[Array, Array]:
    """v divided by the power of two of its size, and that; new memory, also where v is a function's own buffer."""
    size = bk.binary_scale(v)
    return bk.times(1 / size, v), size
