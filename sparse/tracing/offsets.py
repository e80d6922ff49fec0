"""Offsets of a function on a grid: from which points each point of its image is made, by tracing.

Where coefficients are numbers they are told, too; arrays of coefficients are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import Backend
from ..errors import NonlinearError, UnsupportedOperation
from ..formats.boxes import Shifted
from ..formats.stencil import shifted_box
from .engine.linear import Linear
from .engine.terms import Box, has_axes, to_entries
from .engine.to_matrix import blocks_of
from .front_end import FrontEnd

_MOST = 64  # different offsets: more are no stencil


class TracedBox(NamedTuple):
    """Part of a function.

    Attributes:
        shift: from points of the image to points of the argument.
        box: rows that have an entry, where all in a box have the coefficient `number`; None: some rows, any numbers.
        number: known, or traced.
    """

    shift: tuple[int, ...]
    box: Shifted | None
    number: Any


def traced_boxes(front_end: FrontEnd, function: Callable[[Any], Any], like: Any) -> list[TracedBox] | None:
    """The parts of a linear or affine function of one array like `like` that returns another one of its shape.

    None where it cannot be followed, or is no stencil. A row may have several parts of one offset, which add up.

    Cost: one trace; for gathers also a pass over positions.
    """
    try:
        traced = front_end.trace(function, like, (), {}, keep_zeros=False)
        grid = tuple(like.shape)
        if len(traced.outputs) != 1 or traced.out_shape != grid or not isinstance(traced.outputs[0], Linear):
            return None
        parts = [
            _parts(traced.bk, term, grid, block.base) for block in blocks_of(traced.outputs) for term in block.terms
        ]
    except (NonlinearError, UnsupportedOperation):
        return None
    found = [box for part in parts for box in part or ()]
    complete = all(part is not None for part in parts) and len({box.shift for box in found}) <= _MOST
    return found if complete else None


def _parts(bk: Backend, term: Any, grid: tuple[int, ...], base: Sequence[int]) -> list[TracedBox] | None:
    if tuple(base) != grid:
        return None
    box = shifted_box(term, grid) if isinstance(term, Box) else None
    if box is not None:
        is_number = term.mask is None and not has_axes(term.values)
        return [TracedBox(box.shift, box if is_number else None, term.coefficient if is_number else None)]
    places = to_entries(bk, term, base)
    if not places.size:
        return []
    steps = [
        there - here
        for here, there in zip(np.unravel_index(places.rows, grid), np.unravel_index(places.columns, grid), strict=True)
    ]
    return [TracedBox(tuple(map(int, shift)), None, None) for shift in np.unique(np.stack(steps), axis=1).T]
