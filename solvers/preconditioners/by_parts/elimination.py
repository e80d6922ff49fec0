"""Inverses of small dense matrices inside of `map_parts`, by elimination in a loop of the program.

LAPACK's routines wait for threads of a pool in which other virtual devices of a CPU may wait for this one's messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....backends import Array

_SINGULAR = 0.1  # over the rounding unit: the condition from which an inverse holds nothing but rounding


class _Step(NamedTuple):
    a: Array
    i: Array


def eliminated(bk: Any, blocks: Array) -> tuple[Array, Array]:
    """Inverses of `(m, k, k)`, and the mask `(m, 1, 1)` of those that are numerically singular, or need pivots.

    Source: Golub & Van Loan, Matrix Computations, 4th ed., section 3.4 (Gauss-Jordan elimination, without pivots).
    """
    k = int(blocks.shape[-1])
    numbers = bk.asarray(np.arange(k, dtype=np.int32), like=blocks)

    def step(s: _Step) -> _Step:
        here = bk.astype(numbers == s.i, bk.dtype(s.a))
        other = 1 - here
        row, column = (bk.reshape(bk.take_in_bounds(s.a, s.i, axis), (-1, k)) for axis in (1, 2))
        pivot = bk.sum(row * here, 1)[:, None]
        row = (row * other + here) / pivot
        kept = s.a * other[:, None] * other[None, :]
        return _Step(kept + (here - column * other)[:, :, None] * row[:, None, :], s.i + 1)

    found = bk.for_loop(k, step, _Step(blocks, bk.asarray(np.zeros(1, np.int32), like=blocks))).a
    condition = _norm(bk, blocks) * _norm(bk, found)
    limit = _SINGULAR / float(np.finfo(bk.dtype(blocks)).eps)
    return found, (condition >= limit) | ~bk.isfinite(condition)


def _norm(bk: Any, blocks: Array) -> Array:
    return bk.max(bk.sum(bk.abs(blocks), -1), -1)[:, None, None]
