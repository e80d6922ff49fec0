"""The three kinds of term that a traced array is a sum of.

A term says which columns of the matrix the rows of an array depend on, and with which entries. An entry is
`factor * values`: the factor is a number that is always known, so that signs and constants cost nothing; `values` is
None (one), an array, or a traced number without axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import affine, row_strides
from . import coefficients as co
from .coefficients import Coefficient, Number
from .limits import check_entries, check_rows


class Box(NamedTuple):
    """Rows `lo + i` with i in a box of `shape`; row i has the column `offset + sum(strides * i)`.

    Rules for boxes cost the same for arrays of any size, so stencils are followed symbolically.

    Attributes:
        lo, shape: the box in the base shape of the array, never empty.
        offset, strides: the columns.
        factor: known number.
        values: None, or array of the box's shape (for known values often a broadcast view), or traced number.
        mask: known bool array of the box's shape that says where entries are; None: everywhere.
    """

    lo: tuple[int, ...]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    factor: Number = 1
    values: Coefficient = None
    mask: np.ndarray | None = None

    @property
    def coefficient(self) -> Coefficient:
        """Factor times values: a number, or an array of the box's shape."""
        if self.values is None:
            return self.factor
        return self.values if self.factor == 1 else self.values * self.factor

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the box lies."""
        return tuple(slice(lo, lo + n) for lo, n in zip(self.lo, self.shape))

    @property
    def size(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)


class Gathered(NamedTuple):
    """One column per element of the array: `columns` of the base shape, -1 where there is none.

    `values` has the base shape, or is None or a traced number.
    """

    columns: np.ndarray
    factor: Number = 1
    values: Coefficient = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.columns.size


class Entries(NamedTuple):
    """Any entries: flat rows and columns, in any order, duplicates add up. `values` has their length."""

    rows: np.ndarray
    columns: np.ndarray
    factor: Number = 1
    values: Coefficient = None

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.rows)


Term: TypeAlias = Box | Gathered | Entries


def has_axes(values: Coefficient) -> bool:
    """Is it an array, so that moving the elements of a term moves its elements too?"""
    return values is not None and len(co.shape_of(values)) > 0


def to_gathered(bk: Backend, box: Box, base: Sequence[int]) -> Gathered:
    """One column per element of the base shape."""
    check_entries(math.prod(base), "Following single elements of an array")
    columns = affine(box.offset, box.strides, box.shape)
    if box.mask is not None:
        columns = np.where(box.mask, columns, np.int32(-1))
    widths = [(lo, n - lo - m, 0) for lo, m, n in zip(box.lo, box.shape, base)]
    if box.shape == tuple(base):
        return Gathered(columns, box.factor, box.values)
    values = co.pad(bk, box.values, widths) if has_axes(box.values) else box.values
    return Gathered(co.pad(bk, columns, widths, -1), box.factor, values)


def to_entries(bk: Backend, term: Term, base: Sequence[int]) -> Entries:
    """Flat rows of the base shape, and columns."""
    check_rows(base, "A traced array")
    if isinstance(term, Box):
        return box_entries(bk, term, row_strides(base))
    if isinstance(term, Entries):
        return term
    columns = term.columns.reshape(-1)
    values = co.reshape(bk, term.values, (-1,)) if has_axes(term.values) else term.values
    rows = np.flatnonzero(columns >= 0).astype(np.int32)
    if len(rows) < len(columns):
        columns, values = columns[rows], elements(bk, values, rows)
    return Entries(rows, columns, term.factor, values)


def box_entries(bk: Backend, box: Box, distances: Sequence[int]) -> Entries:
    """As `to_entries`, where the next row along each axis is `distances` away (0: the same row, a sum)."""
    check_entries(box.size, "Writing out all elements of an array")
    start = sum(lo * distance for lo, distance in zip(box.lo, distances))
    rows = affine(start, distances, box.shape).reshape(-1)
    columns = affine(box.offset, box.strides, box.shape).reshape(-1)
    values = co.reshape(bk, box.values, (-1,)) if has_axes(box.values) else box.values
    if box.mask is not None:
        chosen = np.flatnonzero(box.mask)
        rows, columns, values = rows[chosen], columns[chosen], elements(bk, values, chosen)
    return Entries(rows, columns, box.factor, values)


def elements(bk: Backend, values: Coefficient, chosen: np.ndarray) -> Coefficient:
    """Some elements of flat values; what has no axes stays."""
    return co.take(bk, values, chosen) if has_axes(values) else values


def full_values(bk: Backend, term: Any, shape: Sequence[int], dtype: np.dtype) -> Coefficient:
    """Factor times values as an array of `shape`."""
    if term.values is None:
        return np.broadcast_to(np.asarray(term.factor, dtype), tuple(shape))
    values = term.values if term.factor == 1 else co.multiply(bk, co.cast(bk, term.values, dtype), term.factor)
    return co.broadcast_to(bk, co.cast(bk, values, dtype), shape)
