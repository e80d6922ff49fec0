"""The matrix of a traced function: terms into diagonals where these are few, else into sorted entries.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import add, identity, pad, scale, slice_
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
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ...formats import SparseMatrix, from_diagonals, from_entries, stencil_of
from ...formats.entries.integers import affine
from . import coefficients as co
from .coefficients import Coefficient
from .diagonals import Block, plan_diagonals, present_in, write_diagonals
from .limits import check_rows
from .linear import Linear
from .merging import join_entries, sum_numbers
from .terms import Box, Entries, Term, has_axes


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

    Raises:
        UnsupportedOperation: rows or entries are too many.

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
