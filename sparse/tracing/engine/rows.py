"""Selection of rows of a term at any positions, for operations that have no rule for boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import rows_first, starts_of
from . import coefficients as co
from .box import is_everything
from .limits import check_entries
from .terms import Box, Entries, Gathered, Term, elements, has_axes, to_gathered


def take_rows(bk: Backend, term: Term, base: Sequence[int], positions: np.ndarray) -> Term:
    """Row `positions[i]` (flat, of the base shape; -1: an empty row) becomes row i of an array of their shape."""
    if isinstance(term, Entries):
        return take_entries(bk, term, math.prod(base), positions.reshape(-1))
    check_entries(positions.size, "Indexing an array")
    if isinstance(term, Gathered):
        return _take_gathered(bk, term, positions)
    if is_everything(term, base):
        columns = positions.astype(np.int32)
        if term.offset:
            columns = np.where(columns >= 0, columns + np.int32(term.offset), np.int32(-1))
        return Gathered(columns, term.factor, term.values)
    if 4 * positions.size < math.prod(base):
        return _take_few(bk, term, base, positions)
    return _take_gathered(bk, to_gathered(bk, term, base), positions)


def _take_gathered(bk: Backend, term: Gathered, positions: np.ndarray) -> Gathered:
    columns = co.take(bk, term.columns.reshape(-1) + np.int32(1), positions) - np.int32(1)
    values = term.values
    if has_axes(values):
        values = co.take(bk, co.reshape(bk, values, (-1,)), positions)
    return Gathered(columns, term.factor, values)


def _take_few(bk: Backend, box: Box, base: Sequence[int], positions: np.ndarray) -> Gathered:
    """Without writing out the rest of the box."""
    inside = positions >= 0
    index = np.unravel_index(np.where(inside, positions, 0), tuple(base)) if base else ()
    columns = np.full(positions.shape, box.offset, np.int64)
    within = []
    for i, lo, n, stride in zip(index, box.lo, box.shape, box.strides):
        inside &= (i >= lo) & (i < lo + n)
        within.append(np.clip(i - lo, 0, n - 1))
        columns += stride * within[-1]
    flat = np.ravel_multi_index(within, box.shape) if base else np.zeros(positions.shape, np.intp)
    if box.mask is not None:
        inside &= box.mask.reshape(-1)[flat]
    values = box.values
    if has_axes(values):
        values = co.take(bk, co.reshape(bk, values, (-1,)), np.where(inside, flat, -1))
    return Gathered(np.where(inside, columns, -1).astype(np.int32), box.factor, values)


def take_entries(bk: Backend, term: Entries, count: int, positions: np.ndarray) -> Entries:
    """Rows of a term with `count` rows, each as often as it is asked for."""
    wanted = np.flatnonzero(positions >= 0)
    sources = positions[wanted]
    asked = np.bincount(sources, minlength=count)
    if asked.max(initial=0) <= 1:  # no row twice: each entry moves, or goes
        target = np.full(count, -1, np.int32)
        target[sources] = wanted
        rows = target[term.rows]
        kept = np.flatnonzero(rows >= 0)
        if len(kept) == len(rows):
            return term._replace(rows=rows)
        return Entries(rows[kept], term.columns[kept], term.factor, elements(bk, term.values, kept))
    by_row = grouped(term.rows, count)
    which, entry = by_row.members(sources, "Indexing an array")
    rows = wanted[which].astype(np.int32)
    return Entries(rows, term.columns[entry], term.factor, elements(bk, term.values, entry))


class Groups(NamedTuple):
    """Things by the group that they belong to, as in CSR: those of group g are `order[starts[g] : starts[g + 1]]`."""

    order: np.ndarray
    starts: np.ndarray

    def members(self, groups: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
        """All pairs `(i, member of groups[i])`, as two arrays.

        Raises:
            UnsupportedOperation: there are too many; `what` says in the message where they come from.
        """
        first = self.starts[groups]
        counts = self.starts[groups + 1] - first
        total = int(counts.sum(dtype=np.int64))
        check_entries(total, what)
        ends = np.cumsum(counts)
        which = np.repeat(np.arange(len(groups)), counts)
        return which, self.order[np.arange(total) + np.repeat(first - (ends - counts), counts)]


def grouped(groups: np.ndarray, count: int) -> Groups:
    """Sort things by their group, stably, in linear time."""
    starts = starts_of(groups, count)
    rising = not np.any(groups[1:] < groups[:-1])
    return Groups(np.arange(len(groups)) if rising else rows_first(groups, count), starts)
