"""Steepest descent with steps that adapt to the function, in one loop that compiles.

The step is that of J. Barzilai and J. M. Borwein (IMA J. Numer. Anal. 8, 1988), `s.s / s.y` for the last move s and the
change y of the gradient, or twice the last one where f was not convex along s; it is divided by 4 until f decreases
enough (Armijo). With bounds each move is projected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends import Array
from ..run.outcome import Status
from .objective import Minimum, Objective

_ENOUGH = 1e-4
_MOST_CUTS = 40  # of a step, one after the other
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _DIVERGED = map(
    int, (Status.RUNNING, Status.CONVERGED, Status.MAX_ITER, Status.STAGNATED, Status.DIVERGED)
)


class _Descent(NamedTuple):
    """Rows `(systems, n)` and numbers `(systems, 1)`."""

    x: Array
    value: Array
    gradient: Array
    norm: Array
    t: Array
    cuts: Array
    status: Array
    steps: Array
    evaluations: Array
    history: Any
    path: Any


def descend(
    objective: Objective, x: Array, rtol: Array, atol: Array, max_iter: int, by_default: bool, history: bool
) -> Minimum:
    """Search from x until the projected gradient is at most `max(rtol |that at x|, atol)`.

    Args:
        by_default: does the limit of precision count as converged?
        history: are values and x of each step recorded?
    """
    bk = objective.user.bk
    state = _start(objective, x, max_iter, history)
    tolerance = bk.maximum(rtol * state.norm, atol + 0 * state.norm)
    state = state._replace(status=_stopped(objective, state, tolerance, max_iter))

    def step(s: _Descent) -> _Descent:
        return _step(objective, s, tolerance, max_iter, history)

    state = bk.while_loop(lambda s: bk.any(s.status == _RUNNING), step, state)
    found = Minimum(
        state.x, state.value, state.gradient, state.norm, tolerance, 0 * tolerance, state.status, state.steps,
        state.evaluations, state.history, state.path,
    )  # fmt: skip
    return objective.to_precision(found) if by_default else found


def _start(objective: Objective, x: Array, max_iter: int, history: bool) -> _Descent:
    bk, systems, n = objective.user.bk, int(x.shape[0]), int(x.shape[1])
    value, gradient = objective.value_and_gradient(x)
    value, gradient = bk.constant(value), bk.constant(gradient)
    norm = bk.norm(objective.projected(x, gradient))
    zero = bk.zeros((systems, 1), np.dtype(np.int32), x)
    t = 0.1 * bk.maximum(bk.norm(x), 0 * norm + 1) / bk.where(norm > 0, norm, 0 * norm + 1)
    lines: Any = ()
    path: Any = ()
    if history:
        lines = bk.full((max_iter + 1, systems), np.nan, bk.dtype(x), x)
        lines = bk.put(lines, zero, value, zero == 0)
        path = bk.put_row(bk.full((systems, max_iter + 1, n), np.nan, bk.dtype(x), x), zero, x)
    return _Descent(x, value, gradient, norm, t, zero, zero + _RUNNING, zero, zero + 1, lines, path)


def _step(objective: Objective, s: _Descent, tolerance: Array, max_iter: int, history: bool) -> _Descent:
    bk = objective.user.bk
    active = s.status == _RUNNING
    trial = objective.inside(s.x - s.t * s.gradient)
    value, gradient = objective.value_and_gradient(trial)
    value, gradient = bk.constant(value), bk.constant(gradient)
    move, change = trial - s.x, gradient - s.gradient
    finite = bk.isfinite(value) & bk.isfinite(bk.max_abs(gradient))
    take = active & finite & (value <= s.value + _ENOUGH * bk.dot(s.gradient, move))
    curved, square = bk.dot(move, change), bk.square_norm(move)
    longer = bk.where(curved > 0, square / bk.where(curved > 0, curved, 0 * curved + 1), 2 * s.t)
    t = bk.where(take, longer, bk.where(active, 0.25 * s.t, s.t))
    one = 0 * s.steps + 1
    steps = s.steps + bk.where(take, one, 0 * one)
    norm = bk.norm(objective.projected(trial, gradient))
    lines, path = s.history, s.path
    if history:
        lines = bk.put(lines, steps, value, take)
        path = bk.put_row(path, bk.where(take, steps, 0 * steps + max_iter + 1), trial)
    moved = _Descent(
        bk.where(take, trial, s.x), bk.where(take, value, s.value), bk.where(take, gradient, s.gradient),
        bk.where(take, norm, s.norm), t, bk.where(take, 0 * one, s.cuts + one), s.status, steps,
        s.evaluations + bk.where(active, one, 0 * one), lines, path,
    )  # fmt: skip
    return moved._replace(status=bk.where(active, _stopped(objective, moved, tolerance, max_iter), s.status))


def _stopped(objective: Objective, s: _Descent, tolerance: Array, max_iter: int) -> Array:
    """RUNNING, or why a search ends."""
    bk = objective.user.bk
    status = bk.where(s.steps < max_iter, _RUNNING + 0 * s.status, _MAX_ITER)
    status = bk.where(s.cuts > _MOST_CUTS, _STAGNATED, status)
    status = bk.where(s.norm <= tolerance, _CONVERGED, status)
    return bk.where(bk.isfinite(s.norm) & bk.isfinite(s.value), status, _DIVERGED)
