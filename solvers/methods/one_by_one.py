"""Methods of other libraries on the host, which solve one system after the other.

The tolerance is ours: the true residual decides, and the method is called again on the residual where it stopped early.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from ..run.watch import InnerSteps
from .method import Goal, Method

See = Callable[[np.ndarray, int, Callable[[], np.ndarray]], None]
"""Tells an iteration: x of one system, the iterations so far, and a function that returns its residual."""


class LoopStopped(Exception):
    """Raised in a callback to end a solve."""


class OneByOneState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    rr: Array
    broken: Array
    goal: Array
    left: Array
    taken: Array
    products: Array


class OneByOne(Method):
    """A method whose step solves each system to the goal of the round, by a function of another library."""

    on_host = True
    can_pause = False

    @abstractmethod
    def solve_system(
        self, A: Operator, M: Operator | None, b: np.ndarray, goal: float, limit: int, i: int, see: See | None
    ) -> tuple[np.ndarray, int, int]:
        """Solve system `i` to the residual norm `goal` in at most `limit` iterations.

        Args:
            see: to be called after each iteration; may raise `LoopStopped`.

        Returns:
            x, iterations, products with A.
        """

    def told(self) -> InnerSteps | None:
        """What is told of iterations, in a monitored solve."""
        return None

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> OneByOneState:
        rr = bk.square_norm(r)
        none = np.zeros(rr.shape, np.int32)
        return OneByOneState(np.zeros_like(r), r, rr, rr < 0, goal.norm + 0 * rr, none, none, none)

    def limited(self, bk: Backend, state: OneByOneState, left: Array) -> OneByOneState:
        return state._replace(left=np.array(left))

    def steps_taken(self, state: OneByOneState) -> Array:
        return state.taken

    def products_made(self, state: OneByOneState) -> Array:
        return state.products

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: OneByOneState) -> OneByOneState:
        x, taken, products, least = s.x.copy(), np.zeros_like(s.taken), np.zeros_like(s.products), 1
        inner, rr = self.told(), s.rr.copy()
        for i in np.flatnonzero((s.rr > s.goal * s.goal)[:, 0] & (s.left > 0)[:, 0]):
            see = None if inner is None else partial(_see, bk, inner, x, taken, rr, int(i))
            found, taken[i, 0], products[i, 0] = self.solve_system(
                A, M, s.r[i], float(s.goal[i, 0]), int(s.left[i, 0]), int(i), see
            )
            x[i] += found.astype(x.dtype)
            if inner is not None and inner.reason:
                least = 0  # the others have not begun
                break
        r = s.r - A.apply(x - s.x)
        rr = bk.square_norm(r)
        # The library gave up, or has nothing more to give: the true residual decides what that means.
        return OneByOneState(
            x, r, rr, rr > s.goal * s.goal, s.goal, s.left, np.clip(taken, least, np.maximum(s.left, 1)), products + 1
        )


def _see(
    bk: Backend, inner: InnerSteps, x: np.ndarray, taken: np.ndarray, rr: np.ndarray, i: int,
    own: np.ndarray, steps: int, residual: Callable[[], np.ndarray],
) -> None:  # fmt: skip
    """Tell an iteration of system `i`, at x + own.

    Raises:
        LoopStopped: it was the last one.
    """
    active, count, rows = np.zeros(taken.shape, bool), taken.copy(), x
    active[i, 0], count[i, 0] = True, steps
    if inner.takes_x:
        rows = x.copy()
        rows[i] += own.astype(x.dtype)
        rr[i, 0] = bk.norm(residual()[None])[0, 0] ** 2
    if inner.after(count, active, rows, rr):
        raise LoopStopped
