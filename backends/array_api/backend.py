"""Backend for any library of the array API standard: eager, made of the standard's functions only.

Functions of arrays are called, and never traced or differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np

from ..interface.arrays import Array, have_one_dtype, native_order
from ..interface.backend import Backend
from ..interface.devices import DeviceModule
from ..standard.library import is_number
from .devices import ArrayApiDevices
from .fourier import ArrayApiFourier
from .host import OfIndices, on_host
from .indexing import ArrayApiIndexing
from .linalg import ArrayApiLinalg
from .sparse import NoSparse
from .standard import ArrayApiLibrary
from .sums import in_order

_ON_HOST = 1  # DLPack's number of the CPU


class ArrayApiBackend(ArrayApiIndexing, Backend):
    """The arrays of one namespace.

    Args:
        namespace: of the standard, as `x.__array_namespace__()` gives it.
        name: of the backend, and in messages; mostly the name of the library's module.
    """

    has_derivatives = False
    is_eager = True
    always_writable = True

    def __init__(self, namespace: Any, name: str) -> None:
        super().__init__()
        self.namespace, self.name = namespace, name
        self.library = ArrayApiLibrary(namespace, name)
        self.of_indices = OfIndices()
        self.linalg = ArrayApiLinalg(namespace, self._is_complex)
        self.linalg._backend = self
        self.fourier = ArrayApiFourier(namespace, self._is_complex)
        self.sparse = NoSparse(name)
        self.places = ArrayApiDevices(namespace, name)
        self._has_maximum = hasattr(namespace, "maximum")  # since 2023.12

    @property
    def _devices(self) -> DeviceModule:
        return self.places

    @cached_property
    def xp(self) -> Any:
        """The array API standard of the library, under the promotion rule that holds on all."""
        return self.library.standard(self.places.chosen.get)

    @property
    def default_float(self) -> np.dtype:
        return self.library.default_float

    def is_array(self, x: Any) -> bool:
        return self.library.is_array(x)

    # --- making and reading ---------------------------------------------------------------------------------------

    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        device = like.device if like is not None else self.places.chosen.get()
        if self.is_array(x):
            x = x if like is None or x.device == device else x.to_device(device)
            return x if dtype is None else self.astype(x, dtype)
        array = native_order(np.asarray(x, dtype))
        return self.namespace.asarray(array, dtype=self._native(array.dtype), device=device)

    def _native(self, dtype: Any) -> Any:
        found = self.library.natives.get(np.dtype(dtype))
        if found is None:
            raise TypeError(f"{self.name} has no arrays of NumPy's dtype {np.dtype(dtype)}; cast the array first.")
        return found

    def to_numpy(self, x: Array) -> np.ndarray:
        return on_host(x, self.name) if self.is_array(x) else np.asarray(x)

    def dtype(self, x: Array) -> np.dtype:
        return self.library.numpy_dtype(x.dtype) if self.is_array(x) else np.asarray(x).dtype

    def astype(self, x: Array, dtype: np.dtype) -> Array:
        native = self._native(dtype)
        return x if x.dtype == native else self.namespace.astype(x, native)

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        device = like.device if like is not None else self.places.chosen.get()
        return self.namespace.zeros(shape, dtype=self._native(dtype), device=device)

    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array:
        device = like.device if like is not None else self.places.chosen.get()
        number = np.asarray(value, dtype).item()
        return self.namespace.full(shape, number, dtype=self._native(dtype), device=device)

    def copy(self, x: Array) -> Array:
        return self.namespace.asarray(x, copy=True)

    def device(self, x: Array) -> Any:
        return x.device

    def is_concrete(self, x: Array) -> bool:
        return int(x.__dlpack_device__()[0]) == _ON_HOST if self.is_array(x) else True

    def constant_folded(self, x: Array) -> np.ndarray | None:
        return self.to_numpy(x)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return self.namespace.reshape(x, tuple(shape))

    def stack(self, arrays: Sequence[Array], axis: int = 0) -> Array:
        if all(map(self.is_array, arrays)) and have_one_dtype(arrays):
            return self.namespace.stack(list(arrays), axis=axis)
        return self.xp.stack(arrays, axis=axis)

    def broadcast_to(self, x: Array, shape: Sequence[int]) -> Array:
        return self.namespace.broadcast_to(x, tuple(shape))

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        leaves, structure = self.leaves(x)  # copied, as the standard has no arrays that refuse to be written to
        return function(self.unleaves(structure, [self.copy(leaf) for leaf in leaves]), *args)

    # --- elementwise and reductions -------------------------------------------------------------------------------

    def where(self, condition: Array, a: Any, b: Any) -> Array:
        if not self.is_array(condition) or self._unlike(a, b):
            return self.xp.where(condition, a, b)
        like = a if self.is_array(a) else b
        return self.namespace.where(condition, self._beside(a, like), self._beside(b, like))

    def maximum(self, a: Array, b: Any) -> Array:
        if not self._has_maximum or not self.is_array(a) or self._unlike(a, b):
            return self.xp.maximum(a, b)
        return self.namespace.maximum(a, self._beside(b, a))

    def _unlike(self, a: Any, b: Any) -> bool:
        """Does it need promotion: arrays of two dtypes, of NumPy beside the library's, or a number of a higher kind?"""
        if self.is_array(a) and self.is_array(b):
            return bool(a.dtype != b.dtype)
        array, other = (a, b) if self.is_array(a) else (b, a)
        if not self.is_array(array) or not is_number(other):  # NumPy's numbers have a dtype
            return True
        return self.library.kinds[array.dtype] not in ("c" if isinstance(other, complex) else "fc")

    def _beside(self, x: Any, like: Array) -> Array:
        """A number as an array like another one, since the standards before 2024 take arrays only."""
        return x if self.is_array(x) else self.asarray(x, self.dtype(like), like)

    def sqrt(self, x: Array) -> Array:
        return self.namespace.sqrt(x) if self.library.kinds[x.dtype] in "fc" else self.xp.sqrt(x)

    def abs(self, x: Array) -> Array:
        return self.namespace.abs(x)

    def isfinite(self, x: Array) -> Array:
        return self.namespace.isfinite(x)

    def real(self, x: Array) -> Array:
        return self.namespace.real(x) if self._is_complex(x) else x

    def conj(self, x: Array) -> Array:
        return self.namespace.conj(x) if self._is_complex(x) else x

    def _is_complex(self, x: Array) -> bool:
        return self.library.kinds[x.dtype] == "c"

    def any(self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
        found = self.namespace.any(x, axis=tuple(axis) if isinstance(axis, Sequence) else axis, keepdims=keepdims)
        return bool(found) if axis is None and not keepdims else found

    def max_abs(self, v: Array) -> Array:
        sizes = self.namespace.abs(v)
        if not int(v.shape[1]):
            return self.namespace.zeros((int(v.shape[0]), 1), dtype=sizes.dtype, device=v.device)
        return self.namespace.max(sizes, axis=1, keepdims=True)

    def dot(self, a: Array, b: Array) -> Array:
        """Row by row: a library may sum several rows in another order than one."""
        a, b = in_order(self.namespace, a), in_order(self.namespace, b)
        rows = [self.namespace.matmul(self.conj(a[i, :]), b[i, :]) for i in range(int(a.shape[0]))]
        return self.reshape(self.stack(rows), (-1, 1)) if rows else self.zeros((0, 1), self.dtype(a), a)

    def sum(
        self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False, dtype: Any = None
    ) -> Array:
        axes = tuple(axis) if isinstance(axis, Sequence) else axis
        if dtype is not None or self.library.kinds[x.dtype] not in "fc":
            return self.xp.sum(x, axis=axes, keepdims=keepdims, dtype=dtype)
        if axes == ():
            return x
        return self.namespace.sum(in_order(self.namespace, x), axis=axes, dtype=x.dtype, keepdims=keepdims)

    def unit_in_first_place(self, x: Array) -> Array:
        """By bisection with powers of two: the standard has no view of the bits."""
        limits = np.finfo(self.dtype(x))
        power, scaled, step = self.full_like(x, 1), x, int(limits.maxexp) // 2
        with self.errstate():  # what is not chosen may overflow
            while step:  # then 1/2 <= scaled < 2, and scaled times power is x
                factor = 2.0**step
                large, small = scaled >= factor, scaled < 1 / factor
                power = self.where(large, power * factor, self.where(small, power / factor, power))
                scaled = self.where(large, scaled / factor, self.where(small, scaled * factor, scaled))
                step //= 2
        power = self.where(scaled < 1, power * 0.5, power)
        power = self.where(x < float(limits.tiny), self.zeros_like(x), power)
        return self.where(self.isfinite(x), power, x)

    # --- dense matrices and states --------------------------------------------------------------------------------

    def product(self, matrix: Array, x: Array) -> Array:
        """Row by row, see `dot`."""
        x, several = in_order(self.namespace, x), len(matrix.shape) == 3
        rows = [
            self.namespace.matmul(matrix[min(i, int(matrix.shape[0]) - 1), ...] if several else matrix, x[i, :])
            for i in range(int(x.shape[0]))
        ]
        return self.stack(rows) if rows else self.zeros((0, int(matrix.shape[-2])), self.dtype(x), x)

    def matrix_transpose(self, matrix: Array) -> Array:
        return self.namespace.matrix_transpose(matrix)

    def diagonal(self, matrix: Array, offset: int = 0) -> Array:
        n, shape = int(matrix.shape[-1]), tuple(matrix.shape)
        if offset or shape[-2] != n:
            return self.xp.linalg.diagonal(matrix, offset=offset)
        return self.reshape(matrix, (*shape[:-2], n * n))[..., :: n + 1]

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        there = self._numbers(int(buffer.shape[0]), row)[:, None] == self.matrix_transpose(row)
        return self.where(there & self.matrix_transpose(active), self.matrix_transpose(values), buffer)

    def put_row(self, stack: Array, row: Array, values: Array) -> Array:
        there = self._numbers(int(stack.shape[1]), row)[None, :, None] == row[:, :, None]
        return self.where(there, values[:, None, :], stack)

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        first = int(start[0])
        return self.concat([rows[:, :first], values, rows[:, first + int(values.shape[1]) :]], 1)

    def _numbers(self, count: int, like: Array) -> Array:
        return self.namespace.arange(count, dtype=like.dtype, device=like.device)

    def errstate(self) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")  # of libraries that compute with NumPy

    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        raise TypeError(
            f"The transpose of a function on arrays of {self.name} is not known, as the array API standard has no "
            "derivatives. Give the matrix, or use JAX, PyTorch or TensorFlow arrays."
        )
