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


NUMPY_DTYPES = {np.dtype(char): np.dtype(char) for char in "?iqefdFD"}
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


# --- Bounds checks of index arrays from outside: products then read and write memory unchecked ------------------------
# Cost: each function passes over its array once, 0.1 ms for a million entries.


def check_range(indices: np.ndarray, limit: int | None, what: str) -> np.ndarray:
    """Check that an index array of any shape lies in 0 ... `limit` - 1 (None: no upper bound), and return it.

    Raises:
        TypeError: they are no integers.
        ValueError: one is out of range.
    """
    kind = indices.dtype.kind
    if kind not in "iu" and indices.size:
        raise TypeError(f"{what} have the dtype {indices.dtype}; expected integers.")
    if not indices.size:
        return indices
    highest = 2 ** (8 * indices.dtype.itemsize - 1) if limit is None else limit
    # one pass: read as unsigned, a negative number is larger than all others
    unsigned = indices.view(indices.dtype.str.replace("i", "u")) if kind == "i" else indices
    if np.maximum.reduce(unsigned, axis=None) >= highest:
        bad = indices.min() if indices.min() < 0 else indices.max()
        wanted = "numbers from 0 on" if limit is None else f"numbers from 0 to {limit - 1}" if limit else "none"
        raise ValueError(f"{what} contain {bad}; expected {wanted}.")
    return indices


def check_rising(starts: Any, lines: int, nnz: int, what: str, *, spare: bool = False) -> np.ndarray:
    """Check row pointers `(rows + 1,)` of nnz entries, and return them; the last may be lower with `spare` entries.

    Raises:
        TypeError: they are no integers.
        ValueError: they are no such list.
    """
    found = np.asarray(starts)
    if found.ndim == 1 and found.dtype.kind in "iu" and len(found) == lines + 1:
        last = found[-1]
        full = last <= nnz if spare else last == nnz
        if found[0] == 0 and full and np.logical_and.reduce(found[1:] >= found[:-1]):
            return found
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"{what} have the dtype {found.dtype}; expected integers.")
    if found.ndim != 1:
        raise ValueError(f"{what} have the shape {found.shape}; expected one axis.")
    got = f"{len(found)} from {found[0]} to {found[-1]}" if len(found) else "none"
    raise ValueError(
        f"{what} are {got}, for {lines} lines and {nnz} entries; expected {lines + 1} that rise from 0 to {nnz}."
    )


def check_count(values: int, places: int, what: str) -> None:
    """Check that there is one index per value.

    Raises:
        ValueError: it is not so.
    """
    if values != places:
        raise ValueError(f"{values} values and {places} {what} were given; expected as many of each.")
