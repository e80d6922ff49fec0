"""Direct methods' shortcut: no loop where one application of the factors suffices, as it mostly does."""

from __future__ import annotations

from typing import NamedTuple

from ...backends import Array
from ..methods.method import apply
from .stages import StageSolve

_SMALL = 1e-6  # scales between this and its inverse are not needed: powers of two change no digit


class Solved(NamedTuple):
    """x and its true residual."""

    x: Array
    r: Array
    norm: Array


def solved_at_once(this: StageSolve, x0: Array | None, r: Array) -> Solved:
    """`x0 + M r` and its residual, bitwise as from a round of iterative refinement.

    Args:
        x0: None stands for zero.
        r: `b - A x0`.

    Cost: one application of M and one product, wasted if the residual norm is too large; no norms of a round.
    """
    bk, r = this.bk, this.in_range(r)
    scale = bk.binary_scale(r)
    if bk.is_concrete(scale) and not bk.any(~((scale > _SMALL) & (scale < 1 / _SMALL))):  # two passes over r less
        x = apply(this.M, r)
    else:
        x = bk.times(scale, apply(this.M, bk.times(1 / scale, r)))
    x = this.without_null(x if x0 is None else x0 + x)
    residual = this.b - this.A.apply(x)
    return Solved(x, residual, bk.norm(residual))
