"""NumPy backend: eager, on the host, vector updates in place (BLAS where it helps)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import blas

from ..communicators import by_mpi
from ..interface.arrays import NUMPY_DTYPES, SMALL, Array, have_one_dtype
from ..interface.backend import Backend
from ..settings import exponent_bits
from . import vectors
from .kernels import COST_OF_STEP, NumpyFourier, NumpyKernels, NumpyLinalg, NumpySparse, recurrence
from .lending import REFUSALS, StandIn, with_copies
from .vectors import BLOCK, times_each, times_rows, vecdot, zeros

AXPY = {"f": blas.saxpy, "d": blas.daxpy, "F": blas.caxpy, "D": blas.zaxpy}
_any_true: Any = np.logical_or.reduce  # as `np.any`, which asks what class has one of its own
_PLAIN = {np.ndarray, np.bool_, np.float64, np.float32, bool, int, float, complex}
_where = getattr(np.where, "_implementation", np.where)  # without the question whether a class has one of its own
_GEMM = {"f": blas.sgemm, "d": blas.dgemm, "F": blas.cgemm, "D": blas.zgemm}
# The length of a row chooses the kernel, never the number of rows: a system takes the same steps alone and in a batch.
LONG = 512  # from this row length on, one BLAS call per row beats one NumPy expression over all rows


class NumpyBackend(NumpyKernels, Backend):
    """NumPy arrays."""

    name = "numpy"
    has_derivatives = False
    is_eager = True
    updates_in_place = True
    on_host = True
    _native_dtypes = NUMPY_DTYPES
    _communicators = "an intracommunicator of mpi4py, such as MPI.COMM_WORLD"
    has_compiled_rows = True
    linalg = NumpyLinalg()
    fourier = NumpyFourier()
    sparse = NumpySparse()

    _communicator = staticmethod(by_mpi)

    def is_array(self, x: Any) -> bool:
        # subclasses have products of their own: np.matrix
        return type(x) is np.ndarray or isinstance(x, (np.generic, StandIn))

    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        return np.asarray(x, dtype)

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.asarray(x)

    def dtype(self, x: Array) -> np.dtype:
        return x.dtype

    def is_concrete(self, x: Array) -> bool:
        return True

    def host_view(self, x: Array) -> np.ndarray | None:
        return x if type(x) is np.ndarray else None

    def astype(self, x: Array, dtype: np.dtype) -> Array:
        return x.astype(dtype, copy=False)

    def zeros(
        self, shape: int | Sequence[int], dtype: Any = None, like: Array | None = None, device: Any = None
    ) -> Array:
        known = isinstance(dtype, np.dtype) and device is None
        return np.zeros(shape, dtype) if known else super().zeros(shape, dtype, like, device)

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        return np.zeros(shape, dtype)

    def zeros_like(self, x: Array, dtype: Any = None) -> Array:
        return zeros(x.shape, x.dtype if dtype is None else np.dtype(dtype))

    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array:
        made = np.empty(shape, dtype)
        made.fill(value)
        return made

    def copy(self, x: Array) -> Array:
        return x.copy()

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(shape)

    def read_only(self, x: Array) -> Array:
        view = x.view()
        view.flags.writeable = False
        return view

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        if isinstance(x, (np.ndarray, StandIn)):
            view = x.view()  # read-only, as `x` belongs to the solver
            view.flags.writeable = False
            try:
                return function(view, *args)
            except REFUSALS as error:
                return with_copies(function, (x,), lambda copies: copies[0], args, error)
        leaves, structure = self.leaves(x)
        try:
            return function(self.unleaves(structure, [self.read_only(leaf) for leaf in leaves]), *args)
        except REFUSALS as error:
            return with_copies(function, leaves, lambda copies: self.unleaves(structure, copies), args, error)

    # Small solves are made of Python's calls: a look at dtypes is cheaper here than a call of the general function.

    def where(self, condition: Array, a: Any, b: Any) -> Array:
        alike, with_int = self._pairs
        pair = (getattr(a, "dtype", type(a)), getattr(b, "dtype", type(b)))
        if pair in alike or (pair in with_int and (a if pair[0] is int else b) in SMALL):
            plain = _PLAIN.issuperset((type(condition), type(a), type(b)))
            return (_where if plain else np.where)(condition, a, b)
        return self.xp.where(condition, a, b)

    def maximum(self, a: Array, b: Any) -> Array:
        alike = (getattr(a, "dtype", type(a)), getattr(b, "dtype", type(b))) in self._pairs[0]
        return np.maximum(a, b) if alike else self.xp.maximum(a, b)

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x) if x.dtype.kind in "fc" else self.xp.sqrt(x)

    isfinite: Any = staticmethod(np.isfinite)

    def conj(self, x: Array) -> Array:
        return np.conj(x) if x.dtype.kind == "c" else x  # NumPy copies real numbers

    def any(self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return _any_true(x, tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)

    def max_abs(self, v: Array) -> Array:
        if v.dtype.kind != "f":
            return np.abs(v).max(axis=1, keepdims=True, initial=0)
        highest, lowest = v.max(axis=1, keepdims=True, initial=0), v.min(axis=1, keepdims=True, initial=0)
        return np.abs(np.maximum(highest, -lowest))  # without an array of all sizes

    def dot(self, a: Array, b: Array) -> Array:
        if a.shape[0] == 1 and a.shape[1] <= BLOCK:
            return np.array([[np.vdot(a, b)]], a.dtype)
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)  # BLAS adds strided numbers up in another order
        return vectors.dot(a, b) if a.shape[1] > BLOCK else vecdot(a, b)[:, None]

    def times(self, scalar: Array, v: Array) -> Array:
        scalar = scalar.astype(v.dtype, copy=False)
        long = v.ndim == 2 and v.shape[1] > BLOCK and scalar.shape in ((1, 1), (len(v), 1))
        return vectors.times(scalar, v) if long else scalar * v

    def square_norm(self, v: Array) -> Array:
        if v.shape[0] == 1 and v.shape[1] <= BLOCK:
            return np.array([[np.vdot(v, v).real]], v.real.dtype)
        return self.dot(v, v).real

    def unit_in_first_place(self, x: Array) -> Array:
        integer, mask = exponent_bits(x.dtype)
        return (x.view(integer) & mask).view(x.dtype)

    def safe_divide(self, a: Array, b: Array) -> Array:
        if not have_one_dtype((a, b)) or a.dtype.kind not in "fc":
            return super().safe_divide(a, b)
        if b.all():
            return a / b
        return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape), a.dtype), where=b != 0)

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        if y.shape[1] < LONG:
            y += a * x
            return y
        y = np.ascontiguousarray(y)  # SciPy would update a copy of a strided row
        if y.shape[1] > BLOCK:
            vectors.axpy(a, x, y)
            return y
        update = AXPY[y.dtype.char]
        for i in range(y.shape[0]):
            update(x[i], y[i], a=a[i, 0])
        return y

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        if y.shape[1] > BLOCK:
            vectors.xpay(x, a, y)
        else:
            y *= a
            y += x
        return y

    def axpy_norm(self, a: Array, x: Array, y: Array) -> tuple[Array, Array]:
        if y.shape[1] > BLOCK and y.flags.c_contiguous:
            return y, vectors.axpy_norm(a, x, y)
        if y.shape[1] < LONG:  # as `axpy`, whose call takes as long there
            y += a * x
        else:
            y = self.axpy(a, x, y)
        return y, self.square_norm(y)

    def axpy_xpay(self, a: Array, p: Array, x: Array, z: Array, b: Array) -> tuple[Array, Array]:
        if p.shape[1] > BLOCK and x.flags.c_contiguous:
            vectors.axpy_xpay(a, p, x, z, b)
            return x, p
        if p.shape[1] < LONG:
            x += a * p
            p *= b
            p += z
            return x, p
        return self.axpy(a, p, x), self.xpay(z, b, p)

    cost_of_step = COST_OF_STEP

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        return recurrence(factors, x, backward)

    def product(self, matrix: Array, x: Array) -> Array:
        if matrix.ndim == 2:
            return times_rows(matrix, x)
        return times_each(matrix, x)

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        columns, multiply = _by_columns(y), _GEMM[y.dtype.char]
        for part in _parts(columns) if y.size else ():
            multiply(1, c, x[:, part], 1, columns[part].T, overwrite_c=True)
        return columns.T

    def xpay_block(self, x: Array | None, c: Array, y: Array) -> Array:
        columns, multiply = _by_columns(y), _GEMM[y.dtype.char]
        for part in _parts(columns) if y.size else ():
            old = columns[part].copy()
            if x is not None:
                columns[part] = x.T[part]
            multiply(1, c, old.T, 0 if x is None else 1, columns[part].T, overwrite_c=True)
        return columns.T

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        """Apply the function block by block, each of which is read once and then stays in the cache."""
        columns = [_by_columns(block) for block in blocks]
        new: tuple[Array, ...] = ()
        sums: tuple[Array, ...] = ()
        for i, part in enumerate(_parts(columns[0])):
            new, found = function(*(c[part].T for c in columns))
            for own, value in zip(columns, new, strict=False):
                if not np.may_share_memory(own, value):
                    own[part] = value.T
            sums = found if i == 0 else tuple(a + b for a, b in zip(sums, found, strict=True))
        return tuple(c.T for c in columns[: len(new)]), sums


def _by_columns(y: Array) -> Array:
    """`(n, k)` in row-major order, as sparse products read it; mostly a view of y."""
    return np.ascontiguousarray(y.T)


def _parts(columns: Array) -> list[slice]:
    """Slices of the long axis that stay in the cache."""
    n, k = columns.shape
    size = 4 * BLOCK // max(k, 1) + 1
    return [slice(0, n)] if n <= size else [slice(start, start + size) for start in range(0, n, size)]
