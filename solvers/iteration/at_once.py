"""Where one application of the factors is seen to suffice, which it mostly is, the loop has nothing left to do."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ...backends import Array, Backend
from ...sparse import Operator
from .method import apply


class Solve(Protocol):
    """What is known of a solve; see `Iteration`."""

    @property
    def bk(self) -> Backend: ...
    @property
    def A(self) -> Operator: ...
    @property
    def M(self) -> Operator | None: ...
    @property
    def b(self) -> Array: ...
    def without_null(self, x: Array) -> Array: ...
    def in_range(self, r: Array) -> Array: ...


class Solved(NamedTuple):
    """x and its true residual."""

    x: Array
    r: Array
    norm: Array


def solved_at_once(this: Solve, x0: Array, r: Array, bound: Array) -> Solved | None:
    """`x0 + M r` where its residual norm is seen to be within `bound` in every system; else None.

    It is what a round of iterative refinement would find, to the last digit, without its norms. Only where values are
    at hand: in compiled functions a round is cheap and a second way to the same end is not.

    Cost: one application of M and one product, in vain where the answer is None.
    """
    bk, r = this.bk, this.in_range(r)
    scale = bk.binary_scale(r)
    x = this.without_null(x0 + bk.times(scale, apply(this.M, bk.times(1 / scale, r))))
    residual = this.b - this.A.apply(x)
    norm = bk.norm(residual)
    return None if bk.any(~(norm <= bound)) else Solved(x, residual, norm)
