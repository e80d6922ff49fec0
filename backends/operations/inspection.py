"""What arrays are, and conversions to the dtypes of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..interface.arrays import Array


def auto_cast(bk: Any, *arrays: Any, bool_to_int: bool = False, int_to_float: bool = False) -> list[Array]:
    """Arrays and numbers as arrays of the dtype that they have together; of integers also as real numbers."""
    like = next((x for x in arrays if bk.is_array(x)), None)
    if like is None:
        arrays = tuple(map(bk.asarray, arrays))
    dtype = bk.xp.result_type(*arrays)
    if bool_to_int and bk.xp.isdtype(dtype, "bool"):
        dtype = bk.xp.int32
    if int_to_float and bk.xp.isdtype(dtype, ("bool", "integral")):
        dtype = bk.xp.result_type(like if like is not None else arrays[0], 1.0)
    return [bk.xp.in_dtype(x, dtype, like) for x in arrays]


def to_float(bk: Any, x: Array) -> Array:
    """Real numbers of `krylix.precision`, or else of the library's own."""
    return bk.xp.astype(x, bk.float_type, copy=False)


def to_complex(bk: Any, x: Array) -> Array:
    """Complex numbers of `krylix.precision`, or else of the library's own."""
    return bk.xp.astype(x, bk.complex_type, copy=False)


def to_int32(bk: Any, x: Array) -> Array:
    """The numbers without fractions, as int32."""
    return bk.xp.astype(x, bk.xp.int32, copy=False)


def to_int64(bk: Any, x: Array) -> Array:
    """The numbers without fractions, as int64; in JAX without double precision int32."""
    return bk.xp.astype(x, bk.stored_dtype(np.dtype(np.int64)), copy=False)


def staticshape(bk: Any, x: Array) -> tuple[int | None, ...]:
    """The shape as far as it is known, None for the other sizes."""
    return tuple(None if n is None else int(n) for n in x.shape)


def shape(bk: Any, x: Array) -> tuple[Any, ...]:
    """The shape; sizes that only a run of the program tells are arrays."""
    return tuple(map(int, x.shape))


def size(bk: Any, x: Array) -> Any:
    """The number of entries."""
    total = 1
    for n in bk.shape(x):
        total = total * n
    return total


def is_available(bk: Any, x: Any) -> bool:
    """Has an array, or have all in a container, values that can be read now? Not while a function is compiled."""
    return not bk.compiled(*bk.leaves(x)[0])


def is_sparse(bk: Any, x: Any) -> bool:
    """Is `x` a sparse matrix of the library?"""
    return bool(bk.sparse.accepts(x))


def get_sparse_format(bk: Any, x: Any) -> str:
    """The format of a sparse matrix of the library, as "coo", "csr" or "csc"; "dense" of arrays."""
    return "coo" if bk.is_sparse(x) else "dense"


def take_apart(bk: Any, x: Any) -> tuple[Callable[..., Any], tuple[Array, ...]]:
    """The arrays in an array or in a sparse matrix of the library, and what makes such a one of others.

    Returns:
        a function of a backend and the arrays, and the arrays: of a matrix its values, rows and columns.
    """
    if not bk.is_sparse(x):
        return (lambda backend, array: array), (x,)
    entries = bk.sparse.entries(x)
    if len(entries.shape) != 2:
        raise TypeError(f"take_apart got sparse matrices of shape {entries.shape}; expected one, of two axes.")
    rows, cols = (np.asarray(bk.to_numpy(i) if bk.is_array(i) else i).astype(np.int64) for i in entries[1:3])
    matrix_shape = tuple(map(int, x.shape))
    different, place = np.unique(rows * matrix_shape[-1] + cols, return_inverse=True)
    values = bk.segment_sum(entries.values, place.reshape(-1), len(different))
    rows, cols = (i.astype(np.int32) for i in np.divmod(different, max(matrix_shape[-1], 1)))

    def made(backend: Any, values: Array, rows: Array, cols: Array) -> Any:
        places = (np.asarray(backend.to_numpy(i) if backend.is_array(i) else i) for i in (rows, cols))
        return backend.sparse.native(values, *places, matrix_shape)

    return made, (values, bk.asarray(rows, like=values), bk.asarray(cols, like=values))


def variable(bk: Any, x: Array) -> Array:
    """An array whose derivatives the library can record, with the values of `x`: itself in NumPy and JAX."""
    return x
