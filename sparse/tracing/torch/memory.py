"""What the storages hold that have values of the input in them: linear maps of their elements.

A tensor is a strided part of its storage, so views need no rules of their own (`engine/storage.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends import Backend
from ....backends.torch.tensors import NUMPY_DTYPE
from ...errors import UnsupportedOperation
from ...formats.entries.integers import row_strides
from ..engine import coefficients as co
from ..engine import storage
from ..engine.arithmetic import add, imaginary_part, negate, real_part
from ..engine.linear import Linear
from ..engine.operands import MATRIX_FREE, complex_of, permuted
from ..engine.storage import View
from ..engine.structural import stack
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
        self.bk, self.count, self.dtype = bk, count, NUMPY_DTYPE[place.dtype]
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
                self._grid(storage.replace(bk, self._value, _view(place), value))

    def _grid(self, value: Value) -> None:
        """Set all elements, in the order of the storage."""
        shape = tuple(value.shape)
        self._value, self._order, self._place = value, list(range(len(shape))), None
        self.count = math.prod(shape)
        self.dtype = np.dtype(value.dtype if isinstance(value, Linear) else co.dtype_of(self.bk, value))

    def _in_order(self) -> Any:
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
        value = self._as(NUMPY_DTYPE[place.dtype])
        found = storage.read(self.bk, value, _view(place))
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
            real, imaginary = (storage.read(self.bk, value, View((self.count // 2,), (2,), k)) for k in (0, 1))
            return complex_of(self.bk, real, imaginary, dtype)
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
        old = self._as(NUMPY_DTYPE[place.dtype])
        if place.conjugated != self._conjugated:
            turned = conjugated(self.bk, value)
            if isinstance(turned, Conjugate):
                old, self._conjugated = proper(self.bk, conjugated(self.bk, old)), place.conjugated
            else:
                value = turned
        self._grid(storage.replace(self.bk, old, _view(place), value))

    def accumulate(self, place: Place, value: Linear) -> None:
        """Add an array of the place's shape."""
        if self._error is not None or 0 in place.shape:
            return
        old = self._as(NUMPY_DTYPE[place.dtype])
        if place.conjugated != self._conjugated or place.negated:
            self.write(place, add(proper(self.bk, self.read(place)), value))
            return
        self._grid(storage.accumulate(self.bk, old, _view(place), value))

    def _is_own(self, place: Place) -> bool:
        return self._place is not None and place == self._place._replace(conjugated=place.conjugated)

    def _covers(self, place: Place) -> bool:
        if place.size != self.count or NUMPY_DTYPE[place.dtype] != self.dtype:
            return False
        return np.unique(_view(place).positions).size == self.count


def _view(place: Place) -> View:
    return View(place.shape, place.strides, place.offset)


def _pairs(bk: Backend, value: Any) -> Any:
    """Real and imaginary part of each element, one after the other."""
    if isinstance(value, Linear):
        return stack([real_part(value), imaginary_part(value)], value.ndim)
    parts = co.side(bk, value).real(value), co.side(bk, value).real(co.multiply(bk, value, -1j))
    shape = (*co.shape_of(value), 1)
    return co.concatenate(bk, [co.reshape(bk, part, shape) for part in parts], len(shape) - 1)
