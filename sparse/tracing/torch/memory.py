"""What the storages hold that have values of the input in them: linear maps of their elements.

A tensor is a strided part of its storage, so views need no rules of their own. On a storage of 3 x 4 elements, the
columns 1 and 2, written as strides and as slices of a grid:

>>> slices_of((3, 4), (3, 2), (4, 1), 1)
Slices(starts=(0, 1), steps=(1, 1), counts=(3, 2), axes=(0, 1))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....backends import Backend
from ....backends.torch.tensors import numpy_dtype
from ...errors import UnsupportedOperation
from ...formats.entries.integers import affine, row_strides
from ..engine import coefficients as co
from ..engine.arithmetic import add, convert, imaginary_part, negate, real_part, scale
from ..engine.linear import Linear, reshape
from ..engine.operands import MATRIX_FREE, permuted, reshaped, shape_of
from ..engine.positions import assemble, scatter_add, take
from ..engine.structural import Slices, embed, replace_box, slice_rows, stack
from ..interpreter import Conjugate, conjugated, proper
from .recorder import Place

Value = Any  # Linear, coefficient, or the error of an operation that has no matrix


class StorageElements:
    """The elements of one storage.

    Args:
        bk: the backend of coefficients that are not known.
        value: `Linear` or coefficient.
        place: where in the storage its elements lie.
        count: elements of the storage.
    """

    def __init__(self, bk: Backend, value: Value, place: Place, count: int) -> None:
        self.bk, self.count, self.dtype = bk, count, numpy_dtype(place.dtype)
        self._error: Exception | None = None
        self._value: Any
        self._place: Place | None = None  # None: `_value` is in the order of the storage
        self._conjugated = place.conjugated  # is the conjugate of `_value` stored?
        self._order: list[int] = []
        order = sorted(range(len(place.shape)), key=lambda a: (-place.strides[a], place.shape[a]))
        grid = [place.shape[a] for a in order]
        dense = math.prod(grid) == count and place.offset == 0
        if dense and all(place.strides[a] == s or n == 1 for a, s, n in zip(order, row_strides(grid), grid)):
            self._value, self._place, self._order = value, place._replace(negated=False), order
        else:
            self._grid(np.zeros(count, self.dtype))
            if 0 not in place.shape:
                self._grid(written_to(bk, self._value, place, value))

    def _grid(self, value: Value) -> None:
        """Set all elements, in the order of the storage."""
        shape = tuple(value.shape)
        self._value, self._order, self._place = value, list(range(len(shape))), None
        self.count = math.prod(shape)
        self.dtype = np.dtype(value.dtype if isinstance(value, Linear) else co.dtype_of(self.bk, value))

    def _in_order(self) -> Any:
        """All elements, in the order of the storage."""
        if self._order == list(range(len(self._order))):
            return self._value
        return permuted(self.bk, self._value, self._order)

    def fail(self, error: Exception) -> None:
        """From now on there is no matrix."""
        self._error = error

    def read(self, place: Place) -> Any:
        """The tensor at this place."""
        if self._error is not None:
            raise self._error
        if place == self._place:
            return self._value
        value = self._as(numpy_dtype(place.dtype))
        found = strided(self.bk, value, place.shape, place.strides, place.offset)
        if place.negated:
            found = negate(found) if isinstance(found, Linear) else -found
        return found if place.conjugated == self._conjugated else conjugated(self.bk, found)

    def _as(self, dtype: np.dtype) -> Any:
        """The elements as complex numbers, or as pairs of real ones."""
        value = self._in_order()
        if dtype == self.dtype:
            return value
        if self._conjugated:
            value, self._conjugated = proper(self.bk, conjugated(self.bk, value)), False
        if dtype.kind == "c" and self.dtype.kind == "f" and dtype.itemsize == 2 * self.dtype.itemsize:
            pairs = _reshaped(self.bk, value, (-1, 2))
            real, imaginary = (strided(self.bk, pairs, (self.count // 2,), (2,), part) for part in (0, 1))
            return _complex(self.bk, real, imaginary, dtype)
        if dtype.kind == "f" and self.dtype.kind == "c" and 2 * dtype.itemsize == self.dtype.itemsize:
            return _pairs(self.bk, value)
        raise UnsupportedOperation(f"Reading the bits of {self.dtype} as {dtype} has no matrix. {MATRIX_FREE}")

    def write(self, place: Place, value: Value) -> None:
        """Put an array of the place's shape there."""
        if 0 in place.shape:
            return
        if isinstance(value, Conjugate):
            place, value = place._replace(conjugated=not place.conjugated), value.linear
        if place.negated:
            place, value = place._replace(negated=False), negate(value) if isinstance(value, Linear) else -value
        if self._is_own(place) or self._covers(place):
            self.__init__(self.bk, value, place, self.count)  # type: ignore[misc]
            return
        if self._error is not None:
            return
        old = self._as(numpy_dtype(place.dtype))
        if place.conjugated != self._conjugated:
            turned = conjugated(self.bk, value)
            if isinstance(turned, Conjugate):
                old, self._conjugated = proper(self.bk, conjugated(self.bk, old)), place.conjugated
            else:
                value = turned
        self._grid(written_to(self.bk, old, place, value))

    def accumulate(self, place: Place, value: Linear) -> None:
        """Add an array of the place's shape."""
        if self._error is not None or 0 in place.shape:
            return
        old = self._as(numpy_dtype(place.dtype))
        if place.conjugated != self._conjugated or place.negated:
            self.write(place, add(proper(self.bk, self.read(place)), value))
            return
        for grid in _grids(old, place):
            found = slices_of(grid, place.shape, place.strides, place.offset)
            embedded = None if found is None else embed(value, found, grid)
            if embedded is not None:
                self._grid(add(_reshaped(self.bk, old, grid), embedded))
                return
        self._grid(scatter_add(old, _positions(place), value))

    def _is_own(self, place: Place) -> bool:
        return self._place is not None and place == self._place._replace(conjugated=place.conjugated)

    def _covers(self, place: Place) -> bool:
        """Does it hold all elements of the storage?"""
        if place.size != self.count or numpy_dtype(place.dtype) != self.dtype:
            return False
        return np.unique(_positions(place)).size == self.count


def slices_of(grid: Sequence[int], shape: Sequence[int], strides: Sequence[int], offset: int) -> Slices | None:
    """A strided part of a storage as slices of a grid of its elements; None if it is none."""
    starts = [int(i) for i in np.unravel_index(offset, tuple(grid))] if grid else []
    steps, counts, axes = [0] * len(grid), [1] * len(grid), []
    distances = row_strides(grid)
    for n, stride in zip(shape, strides):
        if n == 1 or stride == 0:
            axes.append(-1)
            continue
        for axis, distance in enumerate(distances):
            step = stride // distance
            if stride % distance == 0 and counts[axis] == 1 and step and starts[axis] + step * (n - 1) < grid[axis]:
                steps[axis], counts[axis] = step, n
                axes.append(axis)
                break
        else:
            return None
    return Slices(tuple(starts), tuple(steps), tuple(counts), tuple(axes))


def strided(bk: Backend, value: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    """Elements of an array in row-major order, as `torch.as_strided`."""
    place = Place(0, tuple(shape), tuple(strides), offset, None)
    if 0 in place.shape:
        return np.zeros(place.shape, value.dtype if isinstance(value, Linear) else co.dtype_of(bk, value))
    size = value.size if isinstance(value, Linear) else math.prod(co.shape_of(value))
    if (
        offset == 0
        and place.size == size
        and all(s == t or n == 1 for s, t, n in zip(strides, row_strides(shape), shape))
    ):
        return _reshaped(bk, value, shape)
    if isinstance(value, Linear):
        for grid in _grids(value, place):
            found = slices_of(grid, shape, strides, offset)
            if found is not None:
                return slice_rows(reshape(value, grid), found, shape)
        return take(value, _positions(place))
    return co.take(bk, co.reshape(bk, value, (-1,)), _positions(place))


def written_to(bk: Backend, old: Any, place: Place, value: Any) -> Any:
    """An array with elements replaced, in row-major order of a grid."""
    example = value if isinstance(value, Linear) else old
    if isinstance(example, Linear):
        for grid in _grids(old, place):
            found = slices_of(grid, place.shape, place.strides, place.offset)
            if found is not None and all(step in (0, 1) for step in found.steps) and _is_full(found, place.shape):
                update = _on_grid(bk, value, found)
                return replace_box(_reshaped(bk, old, grid), update, found.starts)
    where = _positions(place).reshape(-1)
    shape = tuple(old.shape)
    sources = np.arange(math.prod(shape))
    sources[where] = len(sources) + np.arange(len(where))
    if isinstance(example, Linear):
        return assemble([old, value], sources.reshape(shape))
    both = co.concatenate(bk, [co.reshape(bk, part, (-1,)) for part in (old, value)])
    return co.reshape(bk, co.take(bk, both, sources), shape)


def _is_full(found: Slices, shape: Sequence[int]) -> bool:
    return all(axis >= 0 or n == 1 for axis, n in zip(found.axes, shape))


def _on_grid(bk: Backend, value: Any, found: Slices) -> Any:
    """An array that lies at these slices, with the axes of the grid."""
    used = [axis for axis in found.axes if axis >= 0]
    part = _reshaped(bk, value, [n for axis, n in zip(found.axes, value.shape) if axis >= 0])
    part = permuted(bk, part, [used.index(axis) for axis in sorted(used)])
    return _reshaped(bk, part, found.counts)


def _grids(value: Any, place: Place) -> Iterator[tuple[int, ...]]:
    """Shapes of the storage in which the place may be slices: its own, and what the strides tell."""
    shape = tuple(value.shape)
    yield shape
    strides = sorted({s for s, n in zip(place.strides, place.shape) if s > 0 and n > 1} | {1}, reverse=True)
    steps = [math.prod(shape), *strides]
    if all(a % b == 0 for a, b in itertools.pairwise(steps)):
        yield tuple(a // b for a, b in itertools.pairwise(steps))


def _positions(place: Place) -> np.ndarray:
    return affine(place.offset, place.strides, place.shape).astype(np.int64)


def _reshaped(bk: Backend, value: Any, shape: Sequence[int]) -> Any:
    """One length may be -1."""
    if -1 in shape:
        rest = -math.prod(shape)
        shape = [math.prod(shape_of(value)) // rest if n == -1 else n for n in shape]
    return reshaped(bk, value, shape)


def _complex(bk: Backend, real: Any, imaginary: Any, dtype: np.dtype) -> Any:
    if isinstance(real, Linear) or isinstance(imaginary, Linear):
        turned = scale(imaginary, 1j) if isinstance(imaginary, Linear) else co.multiply(bk, imaginary, 1j)
        return convert(add(real, turned), dtype)
    return co.cast(bk, co.add(bk, real, co.multiply(bk, imaginary, 1j)), dtype)


def _pairs(bk: Backend, value: Any) -> Any:
    """Real and imaginary part of each element, one after the other."""
    if isinstance(value, Linear):
        return stack([real_part(value), imaginary_part(value)], value.ndim)
    parts = co.side(bk, value).real(value), co.side(bk, value).real(co.multiply(bk, value, -1j))
    shape = (*co.shape_of(value), 1)
    return co.concatenate(bk, [co.reshape(bk, part, shape) for part in parts], len(shape) - 1)
