"""Steps while every system goes on: no masks, no counts for each system, and numbers for the scalars of one alone.

The general loop begins with such steps, and takes over after the one at which a system ends. That it finds why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...backends.numpy.numbers import Numbers
from ...sparse import Operator
from .method import Method
from .stopping import StoppingRule

_NUMBERS = Numbers()


def has_lean_steps(bk: Backend, method: Method, state: Any, limit: Any) -> bool:
    """Are there such steps?"""
    return method.takes_numbers and bk.on_host and isinstance(limit, int) and type(state.x) is np.ndarray


def lean_steps(
    bk: Backend, method: Method, A: Operator, M: Operator | None, state: Any, rule: StoppingRule, left: int
) -> tuple[Any, int]:
    """The state after the first step at which a system may end, or after `left` steps, and how many there were."""
    enough, largest = rule.enough, np.minimum(rule.largest, np.finfo(rule.largest.dtype).max)
    if len(state.rr) == 1 and state.x.shape[1] > 1 and _NUMBERS.rounds_as_arrays:
        state, taken = _of_one(method, A, M, _NUMBERS.enter(state), enough[0, 0], largest[0, 0], left)
        return _NUMBERS.leave(state), taken
    for taken in range(1, left + 1):
        state = method.step(bk, A, M, state)
        if state.broken.any() or not ((state.rr > enough) & (state.rr <= largest)).all():
            break
    return state, taken


def _of_one(
    method: Method, A: Operator, M: Operator | None, state: Any, enough: Any, largest: Any, left: int
) -> tuple[Any, int]:
    step, taken = method.step, 0
    while True:
        state = step(_NUMBERS, A, M, state)
        taken += 1
        if state.broken or not enough < state.rr <= largest or taken == left:
            return state, taken
