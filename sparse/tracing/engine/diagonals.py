"""Assembly of diagonals from boxes: one pass, no sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....backends import Backend
from . import coefficients as co
from .box import diagonal_of, follows_rows
from .coefficients import Coefficient
from .merging import add_box, join_entries, masked_values
from .terms import Box, Entries, Term

MOST = 40  # diagonals; research on products of matrices: beyond, other formats are faster
LEAST_FILL = 0.3  # of the diagonals' elements that are entries
_CHUNK = 1 << 15  # elements that stay in the cache while several boxes are added to one diagonal


class Block(NamedTuple):
    """One output of the traced function: its terms and where its rows begin in the matrix."""

    first_row: int
    base: tuple[int, ...]
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return math.prod(self.base)


class Placed(NamedTuple):
    """A box on the diagonal `offset` of the whole matrix."""

    offset: int
    block: Block
    box: Box


class DiagonalPlan(NamedTuple):
    """Which diagonals to write, and from what.

    Attributes:
        offsets: of the diagonals, rising.
        placed: the boxes that lie on one diagonal.
        rest: all other entries, which lie on the same few diagonals; None if there are none.
    """

    offsets: list[int]
    placed: list[Placed]
    rest: Entries | None


def plan_diagonals(
    bk: Backend,
    blocks: Sequence[Block],
    dtype: np.dtype,
    rows: int,
    most: int = MOST,
    least_fill: float = LEAST_FILL,
) -> DiagonalPlan | None:
    """How to write the terms as diagonals; None where these would be many, or mostly empty."""
    placed: list[Placed] = []
    loose: list[tuple[Block, list[Term]]] = []
    for block in blocks:
        own: list[Term] = []
        for term in block.terms:
            if isinstance(term, Box) and term.mask is not None and not term.mask.any():
                continue  # of a part where nothing is left: its diagonal may lie outside of the matrix
            if isinstance(term, Box) and follows_rows(term, block.base):
                placed.append(Placed(diagonal_of(term, block.base) - block.first_row, block, term))
            else:
                own.append(term)
        if own:
            loose.append((block, own))
    offsets = {p.offset for p in placed}
    stored = sum(p.box.size for p in placed)
    if not offsets or len(offsets) > most:
        return None
    if sum(term.size for _, terms in loose for term in terms) > rows:  # cheaper to sort than to look at one by one
        return None
    others: list[Entries] = []
    for block, terms in loose:
        part = join_entries(bk, terms, block.base, dtype)
        others.append(part._replace(rows=part.rows + np.int32(block.first_row)))
    rest = None
    if others:
        rest = others[0] if len(others) == 1 else join_entries(bk, others, (rows,), dtype)
        offsets |= {int(offset) for offset in np.unique(rest.columns - rest.rows)}
        stored += rest.size
    if len(offsets) > most or stored < least_fill * len(offsets) * rows:
        return None
    return DiagonalPlan(sorted(offsets), placed, rest)


def write_diagonals(bk: Backend, plan: DiagonalPlan, rows: int, dtype: np.dtype) -> Coefficient:
    """`(diagonals, rows)`, row-aligned: element i of a diagonal is the entry of row i."""
    index = {offset: k for k, offset in enumerate(plan.offsets)}
    known = [p for p in plan.placed if _is_known(p.box)]
    traced = [p for p in plan.placed if not _is_known(p.box)]
    rest_known = plan.rest is not None and (plan.rest.values is None or co.known(plan.rest.values))
    data = np.zeros((len(plan.offsets), rows), dtype)
    _write_known(data, known, index)
    if plan.rest is not None and rest_known:
        values = plan.rest.factor if plan.rest.values is None else plan.rest.values * plan.rest.factor
        np.add.at(data, (_slots(plan.rest, plan.offsets), plan.rest.rows), values)
    if not traced and (plan.rest is None or rest_known):
        return data
    return _with_traced(bk, data, plan, traced, None if rest_known else plan.rest)


def present_in(plan: DiagonalPlan, rows: int) -> np.ndarray:
    """`(diagonals, rows)` bool: where the terms have entries, whatever their values."""
    index = {offset: k for k, offset in enumerate(plan.offsets)}
    present = np.zeros((len(plan.offsets), rows), bool)
    for p in plan.placed:
        own = present[index[p.offset], p.block.first_row : p.block.first_row + p.block.size].reshape(p.block.base)
        own[p.box.slices] |= True if p.box.mask is None else p.box.mask
    if plan.rest is not None:
        present[_slots(plan.rest, plan.offsets), plan.rest.rows] = True
    return present


def _is_known(box: Box) -> bool:
    return box.values is None or co.known(box.values)


def _slots(rest: Entries, offsets: Sequence[int]) -> np.ndarray:
    return np.searchsorted(np.asarray(offsets, np.int64), rest.columns.astype(np.int64) - rest.rows)


def _write_known(data: np.ndarray, placed: Sequence[Placed], index: dict[int, int]) -> None:
    groups: dict[tuple[int, int], list[Placed]] = {}
    for p in placed:
        groups.setdefault((index[p.offset], p.block.first_row), []).append(p)
    with np.errstate(all="ignore"):
        for (k, first_row), group in groups.items():
            block = group[0].block
            target = data[k, first_row : first_row + block.size].reshape(block.base)
            _write_group(target, [p.box for p in group])


def _write_group(target: np.ndarray, boxes: Sequence[Box]) -> None:
    """Add boxes to an array of zeros; several large ones part by part, so that each part stays in the cache."""
    if len(boxes) < 3 or target.size <= 2 * _CHUNK or target.shape[0] < 2:
        _write_boxes(target, boxes)
        return
    step = max(1, _CHUNK * target.shape[0] // target.size)
    for start in range(0, target.shape[0], step):
        stop = min(start + step, target.shape[0])
        parts = [_first_axis(box, start, stop) for box in boxes]
        _write_boxes(target[start:stop], [part for part in parts if part is not None])


def _first_axis(box: Box, start: int, stop: int) -> Box | None:
    """The part of a box in a range of the first axis; where it lies and its coefficients only."""
    begin, end = max(start, box.lo[0]), min(stop, box.lo[0] + box.shape[0])
    if end <= begin:
        return None
    cut = slice(begin - box.lo[0], end - box.lo[0])
    return box._replace(
        lo=(begin - start, *box.lo[1:]),
        shape=(end - begin, *box.shape[1:]),
        values=box.values[cut] if np.ndim(box.values) else box.values,
        mask=None if box.mask is None else box.mask[cut],
    )


def _write_boxes(target: Any, boxes: Sequence[Box]) -> None:
    for k, box in enumerate(boxes):
        add_box(target[(*box.slices, ...)], box, empty=all(_disjoint(box, other) for other in boxes[:k]))


def _disjoint(a: Box, b: Box) -> bool:
    return any(i + n <= j or j + m <= i for i, n, j, m in zip(a.lo, a.shape, b.lo, b.shape))


def _with_traced(
    bk: Backend, data: np.ndarray, plan: DiagonalPlan, traced: Sequence[Placed], rest: Entries | None
) -> Coefficient:
    """The known part plus traced boxes, each padded to its diagonal."""
    rows: list[Coefficient] = []
    for k, offset in enumerate(plan.offsets):
        row: Coefficient | None = data[k] if np.any(data[k]) else None
        for p in traced:
            if p.offset == offset:
                row = co.add(bk, row, _padded(bk, p, data.shape[1], data.dtype))
        rows.append(data[k] if row is None else row)
    like = next((row for row in rows if not co.known(row)), None if rest is None else rest.values)
    whole = bk.stack([co.as_array(bk, row, data.dtype, like) for row in rows])
    if rest is None:
        return whole
    ids = _slots(rest, plan.offsets) * data.shape[1] + rest.rows
    values = co.cast(bk, rest.values, data.dtype)
    values = values if rest.factor == 1 else co.multiply(bk, values, rest.factor)
    values = co.broadcast_to(bk, values, rest.rows.shape)
    sums = co.segment_sum(bk, values, ids, data.size)
    return co.add(bk, whole, co.reshape(bk, sums, data.shape))


def _padded(bk: Backend, placed: Placed, rows: int, dtype: np.dtype) -> Coefficient:
    box, block = placed.box, placed.block
    values = masked_values(bk, box, dtype)
    if box.shape != block.base:
        values = co.pad(bk, values, [(lo, n - lo - m, 0) for lo, m, n in zip(box.lo, box.shape, block.base)])
    values = co.reshape(bk, values, (block.size,))
    after = rows - block.first_row - block.size
    return co.pad(bk, values, [(block.first_row, after, 0)]) if block.first_row or after else values
