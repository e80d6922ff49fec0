"""Unmasked first steps, while no system has ended: no masks or counts per system, NumPy scalars for a single one.

A round begins with these. The general loop takes over after the first step at which a system may have ended, of which
it finds why; it has all of them where it must see each one: for histories, checkpoints and reports of progress.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Backend
from ...backends.numpy.one_system import OneSystemBackend
from ...sparse import Operator
from ..methods.method import Method
from .stages import Tally
from .stopping import StoppingRule

_NUMBERS = OneSystemBackend()


def has_lean_steps(bk: Backend, method: Method, state: Any, limit: Any) -> bool:
    """Are unmasked steps possible for a method in this state, with one limit for all systems?"""
    return method.takes_numbers and bk.on_host and isinstance(limit, int) and type(state.x) is np.ndarray


def lean_steps(
    bk: Backend, method: Method, A: Operator, M: Operator | None, state: Any, tally: Tally, rule: StoppingRule
) -> tuple[Any, Tally]:
    """Step until a system may have ended: the state after that step, and the tally before it.

    Args:
        tally: of systems that are all running.
    """
    enough, largest = rule.enough, np.minimum(rule.largest, np.finfo(rule.largest.dtype).max)
    left = int(rule.limit - tally.steps.max())
    if bk.communicator is None and _NUMBERS.serves(state.x):
        state, taken = _of_one(method, A, M, _NUMBERS.enter(state), enough[0, 0], largest[0, 0], left)
        state = _NUMBERS.leave(state)
    else:
        state, taken = _of_several(bk, method, A, M, state, enough, largest, left)
    products = tally.products + (taken - 1) * method.products_made(state)
    return state, tally._replace(steps=tally.steps + (taken - 1), products=products)


def _of_one(
    method: Method, A: Operator, M: Operator | None, state: Any, enough: Any, largest: Any, left: int
) -> tuple[Any, int]:
    step, taken = method.step, 0
    while True:
        state = step(_NUMBERS, A, M, state)
        taken += 1
        if state.broken or not enough < state.rr <= largest or taken == left:
            return state, taken


def _of_several(
    bk: Backend, method: Method, A: Operator, M: Operator | None, state: Any, enough: Any, largest: Any, left: int
) -> tuple[Any, int]:
    step, taken = method.step, 0
    while True:
        state = step(bk, A, M, state)
        taken += 1
        go_on = (state.rr > enough) & (state.rr <= largest) & ~state.broken
        if not go_on.all() or taken == left:
            return state, taken
