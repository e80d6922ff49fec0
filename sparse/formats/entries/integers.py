"""Index arrays: validation, conversion to int32, and row pointers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....backends.interface.arrays import check_range

LIMIT = 2**31 - 1


def check_shape(shape: Any) -> tuple[int, int]:
    """A shape `(n, m)` of two numbers that fit in 32 bits.

    Raises:
        ValueError: it has not two axes, a negative one, or one of 2**31 and more.
    """
    try:
        found = tuple(operator.index(n) for n in shape)
    except TypeError as error:
        raise ValueError(f"The shape {shape!r} was given; expected two whole numbers (rows, columns).") from error
    if len(found) != 2 or min(found) < 0:
        raise ValueError(f"The shape {shape!r} was given; expected two numbers (rows, columns), none negative.")
    for n in found:
        check_size(n, "rows or columns")
    return found[0], found[1]


def check_size(count: int, what: str) -> int:
    """`count`, which a 32-bit index must be able to hold.

    Raises:
        ValueError: it cannot.
    """
    if count > LIMIT:
        raise ValueError(
            f"A sparse matrix with {count} {what} was asked for; krylix indexes with 32 bits, up to {LIMIT}. "
            "Split the problem, or give a function instead of a matrix."
        )
    return int(count)


def as_indices(x: Any, limit: int, what: str) -> np.ndarray:
    """Whole numbers `(k,)` from 0 to `limit` - 1 as int32; the same memory where it fits.

    Raises:
        TypeError: they are no integers.
        ValueError: they have several axes, or one is out of range.
    """
    found = np.asarray(x)
    if found.ndim != 1 and (found.dtype.kind in "iu" or not found.size):
        raise ValueError(f"{what} have the shape {found.shape}; expected one axis.")
    return check_range(found, limit, what).astype(np.int32, copy=False)


def starts_of(rows: np.ndarray, n: int) -> np.ndarray:
    """`(n + 1,)` int32: where each row starts in a list of entries in row order."""
    return starts_from(np.bincount(rows, minlength=n))


def starts_from(lengths: np.ndarray) -> np.ndarray:
    """`(n + 1,)` int32: where each row starts, from the lengths `(n,)` of the rows."""
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def places_in_rows(starts: np.ndarray) -> np.ndarray:
    """`(nnz,)` int32: the number of each entry within its row."""
    return np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], np.diff(starts))


def repeat_rows(starts: np.ndarray) -> np.ndarray:
    """`(nnz,)` int32: the row of each entry, from where the rows start."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def is_canonical(rows: np.ndarray, cols: np.ndarray) -> bool:
    """Are the entries in row order, with rising columns and none twice?"""
    if len(rows) < 2:
        return True
    step = rows[1:] - rows[:-1]
    return bool(np.all((step > 0) | ((step == 0) & (cols[1:] > cols[:-1]))))


def lengths_text(lengths: np.ndarray) -> str:
    """Row lengths in a few words."""
    if not len(lengths):
        return "no rows"
    low, middle, high = int(lengths.min()), float(np.median(lengths)), int(lengths.max())
    return f"{low} per row" if low == high else f"{low} to {high} per row, median {middle:g}"


def as_tuple(x: Any) -> tuple[Any, ...]:
    """A single array as a tuple of one, sequences as they are."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)
