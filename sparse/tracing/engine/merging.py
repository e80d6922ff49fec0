"""Merging of terms: boxes with the same columns become one, single entries are added up."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import sorted_entries
from . import coefficients as co
from .coefficients import Coefficient
from .linear import Linear
from .terms import Box, Entries, Term, full_values, has_axes, to_entries

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
