"""NumPy backend for one real system: scalars are NumPy numbers, not `(1, 1)` arrays.

An operation on a number takes a sixth of that on an array. Every one here gives what `NumpyBackend` gives for such an
array, to the last digit, and rows are worked on by the same kernels: a system takes the same steps in a batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..interface.backend import Array
from ..interface.containers import tree_map
from . import vectors
from .backend import AXPY, LONG, NumpyBackend
from .vectors import ALONE, BLOCK

SHORT = min(LONG, BLOCK)  # rows with which two operations are one call, as that takes as long as they do
_KEEPS_PRECISION = (np.float32(1) * 1.0).dtype == np.float32


class OneSystemBackend(NumpyBackend):
    """NumPy backend of a loop over one system; never a user's backend."""

    def serves(self, x: Array) -> bool:
        """Is x a row of one system, for which results are identical to the batched ones?

        Those of complex numbers differ: NumPy multiplies arrays of them with fewer roundings. NumPy 1 makes double
        precision of a number times one of Python's. And rows of one unknown look like scalars.
        """
        return _KEEPS_PRECISION and x.dtype.kind == "f" and x.shape[0] == 1 and x.shape[1] > 1

    # --- into the loop, and out of it

    def enter(self, state: Any) -> Any:
        """The state of a method with numbers for arrays `(1, 1)`."""
        return tree_map(lambda x: x[0, 0] if x.shape == (1, 1) else x, state)

    def leave(self, state: Any) -> Any:
        """The state with arrays again."""
        return tree_map(lambda x: x if x.ndim else np.array([[x]]), state)

    # --- numbers

    sqrt = staticmethod(np.sqrt)  # type: ignore[assignment]
    maximum = staticmethod(np.maximum)  # type: ignore[assignment]

    def safe_divide(self, a: Any, b: Any) -> Any:
        return a / b if b != 0 else a.dtype.type(0)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        if isinstance(a, np.generic) and isinstance(b, np.generic) and a.dtype == b.dtype:
            return a if condition else b
        return np.where(condition, a, b)[()]

    def astype(self, x: Any, dtype: Any) -> Any:
        return x if x.dtype == dtype else x.astype(dtype)

    def zeros_like(self, x: Any, dtype: Any = None) -> Any:
        return super().zeros_like(x, dtype) if x.ndim or dtype is not None else x.dtype.type(0)

    def full_like(self, x: Any, value: Any, dtype: Any = None) -> Any:
        if x.ndim:
            return super().full_like(x, value, dtype)
        return (x.dtype if dtype is None else np.dtype(dtype)).type(value)

    # --- rows

    def dot(self, a: Array, b: Array) -> Any:
        n = a.shape[1]
        if n <= BLOCK:
            return np.vdot(a, b)
        if n > ALONE:
            return super().dot(a, b)[0, 0]
        return vectors.dot_of_one(np.ascontiguousarray(a)[0], np.ascontiguousarray(b)[0])

    def square_norm(self, v: Array) -> Any:
        return self.dot(v, v)

    def max_abs(self, v: Array) -> Any:
        return np.abs(np.maximum(np.maximum.reduce(v[0]), -np.minimum.reduce(v[0])))

    def binary_scale(self, v: Array) -> Any:
        largest = self.max_abs(v)
        kind = largest.dtype.type
        if not 0 < largest < np.inf:
            return kind(1)
        power, low = math.ldexp(0.5, math.frexp(largest)[1]), float(np.finfo(kind).tiny)
        return kind(min(max(power, low), 1 / low))

    def times(self, scalar: Any, v: Array) -> Array:
        if v.ndim and v.shape[1] > ALONE:
            return vectors.times(self.astype(scalar, v.dtype), v)
        return self.astype(scalar, v.dtype) * v

    def axpy(self, a: Any, x: Array, y: Array) -> Array:
        n = y.shape[1]
        if n < LONG:
            y += a * x
            return y
        y = np.ascontiguousarray(y)
        if n <= BLOCK:
            AXPY[y.dtype.char](x[0], y[0], a=a)
        elif n <= ALONE:
            vectors.axpy_of_one(a, x[0], y[0])
        else:
            vectors.axpy(np.array([[a]]), x, y)
        return y

    def xpay(self, x: Array, a: Any, y: Array) -> Array:
        if y.shape[1] > ALONE:
            vectors.xpay(x, np.array([[a]]), y)
        else:
            vectors.scale_and_add(x, a, y)
        return y

    def axpy_norm(self, a: Any, x: Array, y: Array) -> tuple[Array, Any]:
        if y.shape[1] > ALONE and y.flags.c_contiguous:
            return y, vectors.axpy_norm(np.array([[a]]), x, y)[0, 0]
        if y.shape[1] < SHORT:
            y += a * x
            return y, np.vdot(y, y)
        y = self.axpy(a, x, y)
        return y, self.square_norm(y)

    def axpy_xpay(self, a: Any, p: Array, x: Array, z: Array, b: Any) -> tuple[Array, Array]:
        if p.shape[1] > ALONE and x.flags.c_contiguous:
            vectors.axpy_xpay(np.array([[a]]), p, x, z, np.array([[b]]))
            return x, p
        if p.shape[1] < SHORT:
            x += a * p
            p *= b
            p += z
            return x, p
        return self.axpy(a, p, x), self.xpay(z, b, p)
