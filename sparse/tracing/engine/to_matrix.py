"""The matrix of a traced function: terms into diagonals where these are few, else into sorted entries.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.arithmetic import add, scale
>>> from krylix.sparse.tracing.engine.linear import identity
>>> from krylix.sparse.tracing.engine.structural import pad, slice_
>>> bk = get_backend("numpy")
>>> u = identity(bk, (3,), float)
>>> f = add(scale(u, 2.0), pad(slice_(u, [1], [3]), [(0, 1, 0)]))  # 2 u + the next element
>>> matrix, biases = to_matrix([f], 3, bk, np.dtype(float))
>>> matrix.toarray()
array([[2., 1., 0.],
       [0., 2., 1.],
       [0., 0., 2.]])
>>> biases
[array([0., 0., 0.])]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend
from ...formats import SparseMatrix, from_diagonals, from_entries, stencil_of
from ...formats.entries.integers import affine
from . import coefficients as co
from .coefficients import Coefficient
from .limits import check_rows
from .linear import Linear, add_box, join_entries, masked_values, sum_numbers
from .terms import Box, Entries, Term, diagonal_of, follows_rows, has_axes

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


# --- the matrix -------------------------------------------------------------------------------------------------------


def blocks_of(outputs: Sequence[Linear | Coefficient], prune: bool = True, columns: int = 0) -> list[Block]:
    """The terms of each output, with plain numbers added up; those that are zero are left out if `prune`.

    Without, `columns`, the number of elements of the input, tells which entries there can be.
    """
    blocks, first_row = [], 0
    for output in outputs:
        if isinstance(output, Linear):
            boxes = sum_numbers(term for term in output.terms if isinstance(term, Box))
            if not prune:
                boxes = [_with_zeros(output.bk, box, columns) for box in boxes]
            terms: list[Term] = [*boxes, *(term for term in output.terms if not isinstance(term, Box))]
            kept = [term for term in terms if not prune or term.factor != 0]
            blocks.append(Block(first_row, output.base, tuple(kept)))
            first_row += output.size
        else:
            first_row += math.prod(co.shape_of(output))
    check_rows((first_row,), "The output")
    return blocks


def _with_zeros(bk: Backend, box: Box, columns: int) -> Box:
    """Zeros in place of the mask, so that they are stored, unless the mask hides what is no column of the matrix."""
    if box.mask is None:
        return box
    values = 1.0 if box.values is None else box.values
    own = affine(box.offset, box.strides, box.shape)
    inside = (own >= 0) & (own < columns)
    return box._replace(values=co.where(bk, box.mask, values, 0), mask=None if inside.all() else inside)


def entries_of(bk: Backend, blocks: Sequence[Block], dtype: np.dtype) -> Entries:
    """All entries of the matrix, in any order, with duplicates; `values` of `dtype`, factor 1."""
    parts: list[Entries] = []
    for block in blocks:
        if block.terms:
            part = join_entries(bk, block.terms, block.base, dtype)
            parts.append(part._replace(rows=part.rows + np.int32(block.first_row)) if block.first_row else part)
    if not parts:
        none = np.zeros(0, np.int32)
        return Entries(none, none, 1, np.zeros(0, dtype))
    rows = sum(block.size for block in blocks)
    joint = parts[0] if len(parts) == 1 else join_entries(bk, parts, (rows,), dtype)
    if joint.values is None:
        return joint._replace(factor=1, values=np.full(joint.size, joint.factor, dtype))
    values = co.broadcast_to(bk, co.cast(bk, joint.values, dtype), joint.rows.shape)
    return joint._replace(factor=1, values=values if joint.factor == 1 else co.multiply(bk, values, joint.factor))


def biases_of(outputs: Sequence[Linear | Coefficient]) -> list[Coefficient]:
    """What each output is for an input of zeros."""
    return [output.plain() if isinstance(output, Linear) else output for output in outputs]


def in_grids(box: Box, columns: int, in_shape: Any) -> list[tuple[int, ...]]:
    """Grids of the input on which a box may be a box, too: its shape, or what the strides of the columns tell."""
    grids = []
    if isinstance(in_shape, tuple) and len(in_shape) == len(box.shape):
        grids.append(in_shape)
    steps = (columns, *box.strides)
    if (
        box.strides
        and box.strides[-1] == 1
        and all(s > 0 and before % s == 0 for before, s in itertools.pairwise(steps))
    ):
        grids.append(tuple(before // s for before, s in itertools.pairwise(steps)))
    return [grid for grid in grids if math.prod(grid) == columns]


def _is_number(box: Box) -> bool:
    """Is it one number, without a mask? Zero is left to formats that can store it."""
    return box.factor != 0 and box.mask is None and not has_axes(box.values)


def _stencil(
    blocks: Sequence[Block], bk: Backend, shape: tuple[int, int], dtype: np.dtype, like: Array | None, **shapes: Any
) -> SparseMatrix | None:
    """Boxes with a number each, kept as they are; None where there is more, or where another format is faster."""
    if len(blocks) != 1 or blocks[0].size != shape[0]:
        return None
    boxes = [term for term in blocks[0].terms if isinstance(term, Box) and _is_number(term)]
    if not boxes or len(boxes) < len(blocks[0].terms):
        return None
    largest = max(boxes, key=lambda box: box.size)
    for grid in in_grids(largest, shape[1], shapes["in_shape"]):
        found = stencil_of(bk, boxes, grid, blocks[0].base, dtype=dtype, like=like)
        if found is not None:
            return found.on_grids(**shapes, reason=found.reason)
    return None


def to_matrix(
    outputs: Sequence[Linear | Coefficient],
    columns: int,
    bk: Backend,
    dtype: np.dtype,
    in_shape: Any = None,
    out_shape: Any = None,
    *,
    format: str | None = None,
    prune: bool = True,
    like: Array | None = None,
) -> tuple[SparseMatrix, list[Coefficient]]:
    """The matrix and the biases of what a traced function returns.

    Args:
        outputs: the arrays that it returns, whose elements are the rows of the matrix one after the other; those that
            do not depend on the input are coefficients.
        columns: number of elements of its input.
        bk: backend of the matrix.
        dtype: of the entries.
        in_shape, out_shape: of the arrays that the matrix maps, `(columns,)` and `(rows,)` if not given.
        format: of the matrix; None: what suits.
        prune: drop known entries that are zero. Without, the structure does not depend on the values of coefficients.
        like: array on whose device the entries go.

    Cost: nothing for stencils of numbers where the backend compiles their products; for boxes on up to 40 diagonals
    one pass over these; else a sort in linear time of all entries.
    """
    blocks = blocks_of(outputs, prune, columns)
    biases = biases_of(outputs)
    rows = sum(math.prod(co.shape_of(bias)) for bias in biases)
    shape, shapes = (rows, columns), {"in_shape": in_shape, "out_shape": out_shape}
    if format in (None, "stencil"):
        stencil = _stencil(blocks, bk, shape, dtype, like, **shapes)
        if stencil is not None:
            return stencil, biases
    options: dict[str, Any] = {"prune": prune, "like": like, **shapes}
    plan = plan_diagonals(bk, blocks, dtype, rows)
    if plan is not None:
        data = write_diagonals(bk, plan, rows, dtype)
        if not (prune and co.known(data)):  # values do not tell
            options["present"] = partial(present_in, plan, rows)
        return from_diagonals(bk, plan.offsets, data, shape, format=format, **options), biases
    entries = entries_of(bk, blocks, dtype)
    return from_entries(bk, entries.rows, entries.columns, entries.values, shape, format=format, **options), biases
