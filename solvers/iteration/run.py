"""A method on arrays: set up, iterated, and what it found at each limit as one outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from .driver import Iteration, Outcome
from .method import Method


class Settings(NamedTuple):
    """What a solve depends on besides arrays; hashable."""

    bk: Backend
    method: Method
    limits: tuple[int, ...]
    history: bool


def run(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    settings: Settings,
    project: Callable[[Array], Array] | None = None,
    report: Callable[..., None] | None = None,
) -> Outcome:
    """The outcome; with a first axis for checkpoints if there are several limits."""
    bk, method, limits, history = settings
    with bk.quiet():
        inverse = method.setup(bk, A, M)
        outcomes = Iteration(bk, method, A, inverse, b, project, report).run(x0, rtol, atol, limits, history)
    return outcomes[0] if len(outcomes) == 1 else _stacked(bk, outcomes)


def _stacked(bk: Backend, outcomes: list[Outcome]) -> Outcome:
    arrays = {field: bk.stack([getattr(o, field) for o in outcomes]) for field in Outcome._fields[:-1]}
    longest = outcomes[-1].history
    if isinstance(longest, tuple):
        return Outcome(**arrays, history=())
    return Outcome(**arrays, history=bk.stack([_filled_up(bk, o.history, longest) for o in outcomes]))


def _filled_up(bk: Backend, history: Array, longest: Array) -> Array:
    """A history filled up with NaN to the length of the longest."""
    missing = int(longest.shape[0]) - int(history.shape[0])
    if not missing:
        return history
    nothing: Any = bk.full((missing, int(history.shape[1])), np.nan, bk.dtype(history), history)
    return bk.concat([history, nothing], 0)
