"""An array that depends linearly (or affinely) on the input of a traced function.

The input itself is one box: row i, for all i of its shape, has the column `offset + sum(strides * i)`.

>>> from krylix.backends import get_backend
>>> u = identity(get_backend("numpy"), (2, 3), float)
>>> u.terms
(Box(lo=(0, 0), shape=(2, 3), offset=0, strides=(3, 1), factor=1, values=None, mask=None),)
>>> reshape(u, (6,)).terms
(Box(lo=(0,), shape=(6,), offset=0, strides=(1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import row_strides, sorted_entries
from . import coefficients as co
from .coefficients import Coefficient
from .limits import check_rows
from .terms import Box, Entries, Gathered, Term, full_values, has_axes, reshape_box, to_entries, to_gathered


@dataclass(frozen=True, slots=True)
class Linear:
    """`sum of terms applied to the input + bias`.

    Attributes:
        bk: backend of coefficients that are not known.
        shape: shape of the array.
        base: the shape in which the terms count their rows, with as many elements. A reshape that boxes cannot follow
            (the final `ravel` of a stencil's interior) is only recorded in `shape`; `normal` carries it out.
        dtype: of the array.
        terms: see terms.py.
        bias: coefficient of `shape`, or None for zero.
        real_input: are all inputs that it depends on real?
        settled: number of terms that were left when they were merged last.
    """

    bk: Backend
    shape: tuple[int, ...]
    base: tuple[int, ...]
    dtype: np.dtype
    terms: tuple[Term, ...]
    bias: Coefficient | None = None
    real_input: bool = True
    settled: int = 0

    @property
    def is_zero(self) -> bool:
        """Does it not depend on the input after all? Then `plain()` is all of it.

        Terms with a factor of 0 are kept, so that the structure does not depend on the values of coefficients.
        """
        return all(term.factor == 0 for term in self.terms)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def plain(self) -> Coefficient:
        """The value for an input of zeros: the bias, or zeros (a view of one number)."""
        if self.bias is not None:
            return self.bias
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def changed(self, terms: Iterable[Term], bias: Coefficient | None, **fields: Any) -> Linear:
        """With other terms and bias, and shape, base or dtype if given; a bias that is known to be zero is dropped."""
        new = replace(self, terms=tuple(terms), bias=None if co.is_zero(bias) else bias, **fields)
        return replace(new, terms=()) if 0 in new.shape else new


def identity(bk: Backend, shape: Sequence[int], dtype: Any, first_column: int = 0) -> Linear:
    """The input itself: its elements are the columns from `first_column` on."""
    shape = tuple(int(n) for n in shape)
    check_rows((first_column + math.prod(shape),), "The input")
    box = Box((0,) * len(shape), shape, int(first_column), row_strides(shape))
    dtype = np.dtype(dtype)
    return Linear(bk, shape, shape, dtype, () if 0 in shape else (box,), None, dtype.kind != "c")


def reshape(x: Linear, shape: Sequence[int]) -> Linear:
    """The same elements in row-major order."""
    shape = tuple(int(n) for n in shape)
    bias = None if x.bias is None else co.reshape(x.bk, x.bias, shape)
    if shape == x.shape:
        return x
    terms = _reshaped(x, shape)
    if terms is None:
        return x.changed(x.terms, bias, shape=shape)
    return x.changed(terms, bias, shape=shape, base=shape)


def _reshaped(x: Linear, shape: tuple[int, ...]) -> list[Term] | None:
    """The terms in another base shape; None where a box does not stay one."""
    found: list[Term] = []
    for term in x.terms:
        if isinstance(term, Box):
            box = reshape_box(x.bk, term, x.base, shape)
            if box is None:
                return None
            found.append(box)
        elif isinstance(term, Gathered):
            found.append(_reshape_gathered(x.bk, term, shape))
        else:
            found.append(term)
    return found


def _reshape_gathered(bk: Backend, term: Gathered, shape: Sequence[int]) -> Gathered:
    values = co.reshape(bk, term.values, shape) if has_axes(term.values) else term.values
    return Gathered(term.columns.reshape(tuple(shape)), term.factor, values)


def with_base(x: Linear, base: tuple[int, ...]) -> Linear | None:
    """With the terms in another base shape; None where a box does not stay one."""
    if x.base == base:
        return x
    terms = _reshaped(x, base)
    return None if terms is None else replace(x, base=base, terms=tuple(terms))


def normal(x: Linear) -> Linear:
    """With base and shape the same: boxes that are none in that shape are gathered."""
    if x.base == x.shape:
        return x
    terms: list[Term] = []
    for term in x.terms:
        if isinstance(term, Box):
            box = reshape_box(x.bk, term, x.base, x.shape)
            terms.append(box or _reshape_gathered(x.bk, to_gathered(x.bk, term, x.base), x.shape))
        else:
            terms.append(_reshape_gathered(x.bk, term, x.shape) if isinstance(term, Gathered) else term)
    return replace(x, base=x.shape, terms=tuple(terms))


def aligned(a: Linear, b: Linear) -> tuple[Linear, Linear]:
    """Two arrays of one shape with one base."""
    if a.base == b.base:
        return a, b
    other = with_base(b, a.base)
    if other is not None:
        return a, other
    other = with_base(a, b.base)
    return (other, b) if other is not None else (normal(a), normal(b))


def map_bias(x: Linear, function: Callable[[Coefficient], Coefficient]) -> Coefficient | None:
    """The function of the bias, where there is one."""
    return None if x.bias is None else function(x.bias)


def rows_of(shape: Sequence[int]) -> np.ndarray:
    """The flat position of each element, int32."""
    check_rows(shape, "A traced array")
    return np.arange(math.prod(shape), dtype=np.int32).reshape(tuple(shape))


def linear_among(parts: Sequence[Linear | Coefficient], operation: str) -> Linear:
    """The first part that depends on the input."""
    for part in parts:
        if isinstance(part, Linear):
            return part
    raise TypeError(f"{operation} got coefficients only; at least one part must be a Linear.")


def joint_fields(parts: Sequence[Linear | Coefficient], example: Linear) -> dict[str, object]:
    """dtype and `real_input` of what is made of all parts."""
    dtypes = [p.dtype if isinstance(p, Linear) else co.dtype_of(example.bk, p) for p in parts]
    return {
        "dtype": np.result_type(*dtypes),
        "real_input": all(p.real_input for p in parts if isinstance(p, Linear)),
    }


def joint_bias(parts: Sequence[Linear | Coefficient]) -> list[Coefficient] | None:
    """The parts without what depends on the input; None if they are all zero."""
    values = [p.bias if isinstance(p, Linear) else p for p in parts]
    if all(co.is_zero(value) for value in values):
        return None
    return [p.plain() if isinstance(p, Linear) else p for p in parts]


# --- merging of terms -------------------------------------------------------------------------------------------------

MANY = 48  # terms; fewer are carried along, as merging boxes costs passes over their elements
_LISTS = 8  # terms of single entries; they grow when rows are taken again and again, so they are merged earlier


def settle(x: Linear) -> Linear:
    """Merge terms where there are many, and twice as many as the last merge left."""
    lists = sum(isinstance(term, Entries) for term in x.terms)
    if len(x.terms) <= max(MANY, 2 * x.settled) and lists <= _LISTS:
        return x
    boxes = sum_numbers(term for term in x.terms if isinstance(term, Box))
    loose = [term for term in x.terms if not isinstance(term, Box)]
    if len(boxes) + len(loose) > MANY:
        boxes = _merge_shifts(x, boxes)
    if lists > _LISTS or len(loose) > MANY // 2:
        loose = [merge_entries(x, loose)]
    return replace(x, terms=(*boxes, *loose), settled=len(boxes) + len(loose))


def sum_numbers(boxes: Iterable[Box]) -> list[Box]:
    """Boxes with the same rows and columns and plain numbers as one."""
    found: list[Box] = []
    where: dict[Hashable, int] = {}
    for box in boxes:
        if box.values is not None or box.mask is not None:
            found.append(box)
            continue
        key = (box.lo, box.shape, box.offset, box.strides)
        if key in where:
            other = found[where[key]]
            found[where[key]] = other._replace(factor=other.factor + box.factor)
        else:
            where[key] = len(found)
            found.append(box)
    return found


def _merge_shifts(x: Linear, boxes: Sequence[Box]) -> list[Box]:
    """Boxes whose columns are the same function of the row, on the smallest box around them."""
    groups: dict[Hashable, list[Box]] = {}
    for box in boxes:
        shift = box.offset - sum(s * lo for s, lo in zip(box.strides, box.lo))
        groups.setdefault((shift, box.strides), []).append(box)
    found: list[Box] = []
    for same in groups.values():
        lo = tuple(min(box.lo[a] for box in same) for a in range(len(x.base)))
        hi = [max(box.lo[a] + box.shape[a] for box in same) for a in range(len(x.base))]
        shape = tuple(h - l for l, h in zip(lo, hi))
        around = same[0]._replace(lo=lo, shape=shape, factor=1, values=None, mask=None)
        if len(same) == 1 or around.size > 2 * sum(box.size for box in same):
            found.extend(same)
            continue
        offset = same[0].offset + sum(s * (a - b) for s, a, b in zip(same[0].strides, lo, same[0].lo))
        found.append(sum_boxes(x.bk, same, around._replace(offset=offset), x.dtype))
    return found


def sum_boxes(bk: Backend, boxes: Sequence[Box], around: Box, dtype: np.dtype) -> Box:
    """The sum of boxes with the same columns as one box that holds them all."""
    places = [tuple(slice(a - b, a - b + n) for a, b, n in zip(box.lo, around.lo, box.shape)) for box in boxes]
    covered = np.zeros(around.shape, bool)
    for box, place in zip(boxes, places):
        covered[place] |= True if box.mask is None else box.mask
    values: Coefficient | None = None
    for box, place in zip(boxes, places):
        if box.values is None or co.known(box.values):
            values = np.zeros(around.shape, dtype) if values is None else values
            with np.errstate(all="ignore"):
                part: Any = (*place, ...)
                add_box(values[part], box)
    for box, place in zip(boxes, places):
        if box.values is not None and not co.known(box.values):
            part = masked_values(bk, box, dtype)
            widths = [(s.start, n - s.stop, 0) for s, n in zip(place, around.shape)]
            values = co.add(bk, values, co.pad(bk, part, widths))
    return around._replace(values=values, mask=None if covered.all() else covered)


def masked_values(bk: Backend, box: Box, dtype: np.dtype) -> Coefficient:
    """All values of a box, zero where its mask says so."""
    values = full_values(bk, box, box.shape, dtype)
    return values if box.mask is None else co.where(bk, box.mask, values, 0)


def add_box(target: np.ndarray, box: Box, empty: bool = False) -> None:
    """Add a known box to an array of its shape; `empty`: that holds zeros so far. One pass, without copies."""
    where: dict[str, Any] = {} if box.mask is None else {"where": box.mask}
    values, factor = box.values, box.factor
    if values is None or not np.ndim(values):
        number = factor if values is None else factor * values.item()
        if empty and box.mask is None:
            target[...] = number
        else:
            np.add(target, number, out=target, casting="same_kind", **where)
    elif factor == 1:
        if empty:
            np.copyto(target, values, casting="same_kind", **where)
        else:
            np.add(target, values, out=target, casting="same_kind", **where)
    elif factor == -1:  # from zeros, too: NumPy's `negative` is wrong for some strides
        np.subtract(target, values, out=target, casting="same_kind", **where)
    elif empty:
        np.multiply(values, factor, out=target, casting="same_kind", **where)
    else:
        np.add(target, np.multiply(values, factor), out=target, casting="same_kind", **where)


def merge_entries(x: Linear, terms: Sequence[Term]) -> Entries:
    """Terms written out as one, without duplicates."""
    return without_duplicates(x.bk, join_entries(x.bk, terms, x.base, x.dtype), x.size)


def join_entries(bk: Backend, terms: Sequence[Term], base: Sequence[int], dtype: np.dtype) -> Entries:
    """All entries of several terms; duplicates stay."""
    parts = [to_entries(bk, term, base) for term in terms]
    rows = np.concatenate([part.rows for part in parts])
    columns = np.concatenate([part.columns for part in parts])
    if all(part.values is None for part in parts) and len({part.factor for part in parts}) == 1:
        return Entries(rows, columns, parts[0].factor)
    values = co.concatenate(bk, [full_values(bk, part, (part.size,), dtype) for part in parts])
    return Entries(rows, columns, 1, values)


def without_duplicates(bk: Backend, term: Entries, count: int) -> Entries:
    """Entries of the same row and column added up; sorted by row, then column."""
    width = int(term.columns.max(initial=-1)) + 1
    order = sorted_entries(term.rows, term.columns, (count, width))
    if has_axes(term.values):
        return Entries(order.rows, order.cols, term.factor, order.values(bk, term.values))
    if order.ids is None:
        return Entries(order.rows, order.cols, term.factor, term.values)
    sums = order.values(bk, np.ones(term.size))
    values = sums if term.values is None else co.multiply(bk, co.broadcast_to(bk, term.values, sums.shape), sums)
    return Entries(order.rows, order.cols, term.factor, values)
