"""Backend for any library of the array API standard: eager, made of the standard's functions only.

Functions of arrays are called, and never traced or differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..interface.arrays import Array, Integers, native_order
from ..interface.backend import Backend
from ..interface.devices import DeviceModule
from .kernels import ArrayApiFourier, ArrayApiLinalg
from .segments import Halving, halving, in_order, scatter_rows
from .standard import ArrayApiDevices, ArrayApiLibrary, NoSparse

_REFUSALS = (AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError)


def on_host(x: Array, library: str) -> np.ndarray:
    """The array as one of NumPy, by DLPack, or as CuPy copies it.

    Raises:
        TypeError: the library gives no copy on the host.
    """
    reason: Exception | None = None
    for copy in (lambda: np.from_dlpack(x, device="cpu"), lambda: np.from_dlpack(x), lambda: x.get()):
        try:
            return np.asarray(copy())
        except _REFUSALS as error:
            reason = error
    raise TypeError(
        f"An array of {library} on the device {getattr(x, 'device', None)} is needed on the host, which the library "
        f"refuses ({reason}). Give a NumPy array in its place, or choose a method and a preconditioner that need no "
        "matrix on the host: method='CG' or 'GMRES' with preconditioner=None or 'jacobi'."
    ) from reason


class _MadeOfIndices(NamedTuple):
    owner: Any  # weak reference to the array with the memory
    copy: np.ndarray  # its numbers, as its owner may write to it
    made: Any


class OfIndices:
    """What was made of index arrays of NumPy, until these are gone: products of a matrix ask each time.

    What a matrix of SciPy has may be written to between two solves, so that numbers are compared each time: a pass over
    them, which is less than what a product does.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[Any, ...], _MadeOfIndices] = {}

    def get(self, index: np.ndarray, key: tuple[Any, ...], make: Callable[[np.ndarray], Any]) -> Any:
        """`make(index)`, made once for each `key`."""
        owner = index
        while isinstance(owner.base, np.ndarray):  # views are made anew for each product
            owner = owner.base
        whole = (id(owner), index.ctypes.data, index.shape, index.strides, index.dtype.str, *key)
        entry = self._entries.get(whole)
        if entry is not None and entry.owner() is owner and np.array_equal(entry.copy, index):
            return entry.made
        copy = index.copy()
        made = make(copy)
        self._entries[whole] = _MadeOfIndices(ref(owner, lambda _: self._entries.pop(whole, None)), copy, made)
        return made


class ArrayApiBackend(Backend):
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

    # --- making and reading -------------------------------------------------------------------------------------------

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

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        leaves, structure = self.leaves(x)  # copied, as the standard has no arrays that refuse to be written to
        return function(self.unleaves(structure, [self.copy(leaf) for leaf in leaves]), *args)

    # --- elementwise and reductions -----------------------------------------------------------------------------------

    def _is_complex(self, x: Array) -> bool:
        return self.library.kinds[x.dtype] == "c"

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

    # --- dense matrices and states ------------------------------------------------------------------------------------

    def product(self, matrix: Array, x: Array) -> Array:
        """Row by row, see `dot`."""
        x, several = in_order(self.namespace, x), len(matrix.shape) == 3
        rows = [
            self.namespace.matmul(matrix[min(i, int(matrix.shape[0]) - 1), ...] if several else matrix, x[i, :])
            for i in range(int(x.shape[0]))
        ]
        return self.stack(rows) if rows else self.zeros((0, int(matrix.shape[-2])), self.dtype(x), x)

    def diagonal(self, matrix: Array, offset: int = 0) -> Array:
        n, shape = int(matrix.shape[-1]), tuple(matrix.shape)
        if offset or shape[-2] != n:
            return self.xp.linalg.diagonal(matrix, offset=offset)
        return self.reshape(matrix, (*shape[:-2], n * n))[..., :: n + 1]  # older standards have no linalg

    # --- moving entries -----------------------------------------------------------------------------------------------

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        shape, axis = tuple(x.shape), axis % len(x.shape)
        taken = self.namespace.take(x, self._positions(index, x), axis=axis)
        if len(index.shape) == 1:
            return taken
        return self.namespace.reshape(taken, (*shape[:axis], *index.shape, *shape[axis + 1 :]))

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        xp, shape = self.namespace, tuple(values.shape)
        zero = xp.zeros((1, *shape[1:]), dtype=values.dtype, device=values.device)
        if not count or not shape[0]:
            return xp.zeros((count, *shape[1:]), dtype=values.dtype, device=values.device)
        host = ids if isinstance(ids, np.ndarray) else on_host(ids, self.name)
        plan: Halving = self.of_indices.get(host, ("halving", count), lambda index: halving(index, count))
        found = values if plan.order is None else self.take_in_bounds(values, plan.order)
        for first, second in plan.steps:
            found = self.take_in_bounds(found, first) + self.take_in_bounds(xp.concat([found, zero], axis=0), second)
        return self.take_in_bounds(xp.concat([found, zero], axis=0), plan.places)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        for axis, (before, after) in enumerate(widths):
            shape = tuple(x.shape)
            edges = [
                self.namespace.zeros((*shape[:axis], width, *shape[axis + 1 :]), dtype=x.dtype, device=x.device)
                for width in (before, after)
            ]
            if before or after:
                x = self.namespace.concat([edges[0], x, edges[1]], axis=axis)
        return x

    def _scatter_rows(self, rows: Array, places: Integers, values: Array, mode: str) -> Array:
        """A copy of rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
        host = places if isinstance(places, np.ndarray) else on_host(places, self.name)
        return scatter_rows(self.namespace, self.take_in_bounds, rows, host, values, mode)

    def _positions(self, index: Integers, like: Array) -> Array:
        """Positions `(count,)` on the device of `like`."""
        if not isinstance(index, np.ndarray):
            return self.namespace.reshape(index, (-1,))
        device = like.device
        return self.of_indices.get(index, ("positions", str(device)), lambda i: self._moved(i, device))

    def _moved(self, index: np.ndarray, device: Any) -> Array:
        flat = np.ascontiguousarray(index.reshape(-1), np.int64)
        return self.namespace.asarray(flat, dtype=self.namespace.int64, device=device)


# --- Backend for any library of the array API standard: eager, made of the standard's functions only ------------------
# Functions of arrays are called, and never traced or differentiated.

_ON_HOST = 1  # DLPack's number of the CPU
