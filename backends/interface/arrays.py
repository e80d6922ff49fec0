"""Array type alias, conversion of NumPy arrays for a library, and numbers that are the same in every library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # an array of the library
Integers: TypeAlias = Any  # an array of int32 or int64, of NumPy or of the library
Spec: TypeAlias = tuple[tuple[int, ...], np.dtype]  # shape and dtype that a host call returns


_RAISES = {bool: "", int: "biu", float: "biu", complex: "biuf"}  # kinds of arrays, by numbers of Python


def pairs_alike(dtypes: Mapping[Any, np.dtype]) -> frozenset[tuple[Any, Any]]:
    """Pairs of operands for which a library's functions do what promotion asks for, by its dtypes.

    An operand is its dtype, or the class of a number of Python: `getattr(x, "dtype", type(x))`. Two arrays have one
    dtype, and a number is of no higher kind than the array beside it; an int beside integers may not fit: see
    `pairs_with_int`.
    """
    equal = {(dtype, dtype) for dtype in dtypes}
    wide = [(native, dtype.kind) for native, dtype in dtypes.items() if dtype.kind in "bfc" or dtype.itemsize > 2]
    numbers = {(number, native) for number, kinds in _RAISES.items() for native, kind in wide if kind not in kinds}
    return frozenset(equal | numbers | {(native, number) for number, native in numbers})


SMALL = range(-(2**31), 2**31)
"""Ints that fit into every dtype of `pairs_with_int`."""


def pairs_with_int(dtypes: Mapping[Any, np.dtype]) -> frozenset[tuple[Any, Any]]:
    """Likewise, of which one is an int in SMALL: solvers choose between status numbers in each step."""
    wide = {native for native, dtype in dtypes.items() if dtype.kind == "i" and dtype.itemsize >= 4}
    return frozenset({(native, int) for native in wide} | {(int, native) for native in wide})


_dtype_of = attrgetter("dtype")


def have_one_dtype(arrays: Iterable[Any]) -> bool:
    """Are these arrays of the same dtype, and at least one?"""
    try:
        return len(set(map(_dtype_of, arrays))) == 1
    except AttributeError:  # of a number
        return False


def native_order(x: Any) -> Any:
    """Convert a NumPy array to native byte order (files may have another); anything else is returned as it is."""
    return x.astype(x.dtype.newbyteorder("=")) if isinstance(x, np.ndarray) and not x.dtype.isnative else x


WRITES = (
    "The function writes to its argument, which belongs to the solver: an operation such as {}. Make a copy first: "
    "x = {}."
)
"""What is said of a function that does; with examples of operations, and how its library copies."""


def nan_of(dtype: np.dtype) -> float | complex:
    """NaN of a dtype, in both parts of a complex number: a finite part could be mistaken for a result."""
    return complex(np.nan, np.nan) if np.dtype(dtype).kind == "c" else np.nan


def scattered(xp: Any, index: Array) -> Array:
    """Pseudo-random numbers in [-0.5, 0.5); `xp` is NumPy or a library with its names."""
    waves = xp.sin(12.9898 * index) * 43758.5453
    return waves - xp.floor(waves) - 0.5
