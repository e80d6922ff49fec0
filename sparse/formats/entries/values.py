"""Value arrays of a sparse matrix: NumPy's where they are known, else of a library; layouts as one static gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....backends.interface.arrays import Integers


class Regather:
    """Gather of new value arrays: each place holds one old value, or 0 where its position is -1.

    `slots`: for each new array the positions in the concatenation of the raveled old ones. Of a batch, in which all
    arrays have one more axis in front, each system is laid out in the same way.
    """

    def __init__(self, slots: tuple[np.ndarray, ...]) -> None:
        self.slots = slots
        self.is_unchanged = False

    @classmethod
    def composed(cls, slots: np.ndarray, sources: Sequence[np.ndarray]) -> Regather:
        """Entry -> old slot, followed by new slot -> entry (-1: none)."""
        if not len(slots):
            return cls(tuple(np.full(s.shape, -1, np.int32) for s in sources))
        return cls(tuple(np.where(s < 0, np.int32(-1), slots[s]) for s in sources))

    @classmethod
    def unchanged(cls) -> Regather:
        """Leaves all values as they are."""
        found = cls(())
        found.is_unchanged = True
        return found

    @cached_property
    def _padded(self) -> tuple[bool, ...]:
        return tuple(bool(s.size) and bool(s.min() < 0) for s in self.slots)

    def __call__(self, bk: Backend, values: Sequence[Array], systems: int | None = None) -> tuple[Array, ...]:
        """The values laid out anew; differentiable, and pure NumPy for NumPy arrays.

        `systems`: how many there are along the first axis of all arrays; None: they have no such axis.
        """
        if self.is_unchanged:
            return tuple(values)
        flat = concatenated_values(bk, values, systems)
        return tuple(
            take_or_zero(bk, flat, s) if padded else bk.take_in_bounds(flat, s, len(flat.shape) - 1)
            for s, padded in zip(self.slots, self._padded, strict=True)
        )


def take_or_zero(bk: Backend, flat: Array, positions: np.ndarray) -> Array:
    """Elements of a flat array `(size,)` or `(systems, size)`; 0 where the position is negative."""
    last = len(flat.shape) - 1
    if not int(flat.shape[last]):  # so every position is negative
        return bk.zeros((*flat.shape[:last], *positions.shape), bk.dtype(flat), flat)
    negative = positions < 0
    found = bk.take_in_bounds(flat, np.where(negative, np.int32(0), positions), last)
    return bk.where(bk.asarray(~negative, like=found), found, 0)


def concatenated_values(bk: Backend, values: Sequence[Array], systems: int | None = None) -> Array:
    """Concatenate all raveled values, of a batch for each system along the first axis."""
    lead = () if systems is None else (systems,)
    shapes = [tuple(int(n) for n in v.shape[len(lead) :]) for v in values]
    rows = [v if len(s) == 1 else bk.reshape(v, (*lead, math.prod(s))) for v, s in zip(values, shapes, strict=True)]
    return rows[0] if len(rows) == 1 else bk.concat(rows, len(lead))


# --- Sampled outer products: the derivative of a sparse product with respect to the stored values ---------------------


def entries_sample(bk: Backend, rows: Integers, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """The sum over the batch of y[b, rows] x[b, cols], in the shape to which both index arrays broadcast.

    With `each` the terms of the sum, one more axis in front.
    """
    if each:
        return bk.take_in_bounds(y, rows, 1) * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return bk.take_in_bounds(y[0], rows) * bk.take_in_bounds(x[0], cols)
    both = bk.take_in_bounds(bk.permute_dims(y, (1, 0)), rows) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols)
    return bk.sum(both, -1)


def ell_sample(bk: Backend, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """`(k, n)`: the sum over the batch of y[b, i] x[b, cols[d, i]]; with `each` its terms, `(batch, k, n)`."""
    if each:
        return y[:, None] * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return y[0] * bk.take_in_bounds(x[0], cols)
    return bk.sum(bk.permute_dims(y, (1, 0)) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols), 2)


# --- known values and those of a library ---

Shape = tuple[int, ...]


def are_known(values: Sequence[Any]) -> bool:
    """Are all of them NumPy's?"""
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def check_values(wanted: tuple[Shape, ...], values: Sequence[Any]) -> int | None:
    """Number of systems along one more axis in front of the shapes of the structure; None: no such axis.

    Raises:
        ValueError: they are shaped in another way.
    """
    found = tuple(tuple(int(n) for n in v.shape) for v in values)
    if found == wanted:
        return None
    systems = {shape[0] for shape in found if shape}
    if len(systems) == 1 and tuple(shape[1:] for shape in found) == wanted and all(found):
        return systems.pop()
    raise ValueError(
        f"Values of the shapes {found} were given; expected {wanted}, or for a batch of matrices of "
        "this structure the same with one more axis in front."
    )


def mapped_values(bk: Backend, wanted: tuple[Shape, ...], arrays: Sequence[Any]) -> tuple[tuple[Any, ...], int | None]:
    """Normalise the values that a transformation puts into a container, and count their systems.

    A transformation that maps over the making of matrices puts an axis in front of all arrays; several become one.

    Raises:
        ValueError: it has put it elsewhere.
    """
    arrays = tuple(arrays)
    if not arrays or not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays):
        return arrays, None  # but placeholders
    found = [tuple(int(n) for n in a.shape) for a in arrays]
    leads = {len(shape) - len(own) for shape, own in zip(found, wanted, strict=True)}
    lead = leads.pop()
    if leads or lead < 1:
        return arrays, None
    if any(shape[lead:] != own for shape, own in zip(found, wanted, strict=True)):
        raise ValueError(
            f"A transformation made values of the shapes {found} for a matrix of {wanted}; expected the axis of "
            "the systems in front: jax.vmap(..., out_axes=0)."
        )
    if lead > 1 and all(map(bk.is_array, arrays)):
        arrays = tuple(bk.reshape(a, (-1, *own)) for a, own in zip(arrays, wanted, strict=True))
    return arrays, math.prod(found[0][:lead])


def in_library(bk: Backend, values: Sequence[Any], like: Array | None) -> tuple[Array, ...]:
    """Arrays of the library, on the device of those that are among the values, else of `like`."""
    anchor = next((v for v in values if bk.is_array(v)), like)
    return tuple(v if bk.is_array(v) else bk.asarray(v, like=anchor) for v in values)


def in_one_dtype(bk: Backend, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Cast known values to one dtype that the library stores."""
    if not values:
        return ()
    dtype = bk.stored_dtype(np.result_type(*values))
    return tuple(np.asarray(v, dtype) for v in values)


def device_marker(bk: Backend, dtype: np.dtype, like: Array | None) -> Array | None:
    """An array without elements on `like`'s device where there is a choice: `like` itself may be large, or traced."""
    return None if like is None or bk.device(like) is None else bk.zeros((0,), dtype, like)
