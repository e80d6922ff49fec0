"""The one loop: step, freeze finished systems, check, record; then the true residual, and a restart if it disagrees.

A solve goes in rounds. A round solves `A d = r` from `d = 0`, where r is the true residual at its start, scaled by a
power of two so that units play no role. When no system is running any more, x + d and its true residual are computed:
a system whose true residual is within the tolerance has converged, whatever its recurrence said; one whose recurrence
had drifted, or broken down, starts another round as long as rounds make progress.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..backends import Array, Backend
from ..sparse import Operator
from .method import Goal, Method
from .status import Status

_PROGRESS = 0.9  # a round that does not reduce the true residual to this part of its start has stalled
# plain integers: arrays of some libraries do not mix with enums
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _BREAKDOWN, _DIVERGED, _CANDIDATE = (int(s) for s in Status)
_PATIENCE = 2  # stalled rounds after a breakdown, each with another left vector, before giving up


class Outcome(NamedTuple):
    """What a solve found; every array may have a first axis for checkpoints."""

    x: Array  # (batch, n)
    residual: Array  # (batch, n), b - A x
    norm: Array  # (batch, 1)
    bound: Array  # (batch, 1), residual norm that counts as converged
    status: Array  # (batch, 1)
    steps: Array  # (batch, 1)
    products: Array  # (batch, 1)
    history: Any  # (most steps + 1, batch), NaN where nothing was recorded, or ()


class _Loop(NamedTuple):
    state: Any
    status: Array
    steps: Array
    products: Array
    history: Any


class _Rounds(NamedTuple):
    base: Array  # x at the start of the round
    start: Array  # residual norm there
    scale: Array
    goal: Goal
    loop: _Loop
    x: Array
    residual: Array
    norm: Array


@dataclass(frozen=True)
class Iteration:
    """One solve: what does not change during it."""

    bk: Backend
    method: Method
    A: Operator
    M: Operator | None
    b: Array
    project: Callable[[Array], Array]
    report: Callable[..., None] | None = None

    def run(self, x0: Array | None, rtol: Array, atol: Array, limits: Sequence[int], history: bool) -> list[Outcome]:
        """The outcome at each of the increasing `limits` of iterations."""
        bk = self.bk
        if len(limits) > 1 and not self.method.can_pause:
            return [self.run(x0, rtol, atol, (limit,), history)[0] for limit in limits]
        with bk.quiet():
            bound = bk.maximum(rtol * bk.norm(self.b), atol)
            rounds = self._begin(x0, bound, limits[-1] if history else None)
            outcomes = []
            for limit in limits:
                rounds = self._until(rounds, bound, limit)
                outcomes.append(self._outcome(rounds, bound))
            return outcomes

    # --- rounds ---

    def _begin(self, x0: Array | None, bound: Array, recorded: int | None) -> _Rounds:
        bk, b = self.bk, self.b
        x = bk.zeros_like(b) if x0 is None else x0
        r = bk.copy(b) if x0 is None else b - self.A.apply(x)
        norm = bk.norm(r)
        none = bk.zeros(tuple(norm.shape), np.dtype(np.int32), norm)
        status = bk.where(norm <= bound, none + _CONVERGED, none + _RUNNING)
        status = bk.where(bk.isfinite(norm) & bk.isfinite(bound), status, none + _DIVERGED)
        lines: Any = ()
        if recorded is not None:
            empty = bk.full((recorded + 1, int(norm.shape[0])), np.nan, bk.dtype(norm), norm)
            lines = bk.put(empty, none, norm, status >= 0)
        loop = _Loop(None, status, none, none if x0 is None else none + 1, lines)
        # A NaN beside good systems must not reach them through a product that sums over the batch by mistake, and a
        # NaN in the state would only cost time: such a system starts from a zero residual and never steps.
        clean = bk.where(status == _DIVERGED, bk.zeros_like(r), r)
        return self._new_round(x, clean, norm, bound, none, loop, r)

    def _new_round(self, x: Array, r: Array, norm: Array, bound: Array, attempt: Array, loop: _Loop, residual: Array) -> _Rounds:
        bk = self.bk
        scale = bk.binary_scale(r)
        goal = Goal(bound / scale, attempt)
        state = self.method.init(bk, self.A, self.M, bk.times(1 / scale, r), goal)
        return _Rounds(x, norm, scale, goal, loop._replace(state=state), x, residual, norm)

    def _until(self, rounds: _Rounds, bound: Array, limit: int) -> _Rounds:
        bk = self.bk
        # Systems that an earlier checkpoint stopped go on where they were.
        status = rounds.loop.status
        waiting = (status == _MAX_ITER) & (rounds.loop.steps < limit)
        rounds = rounds._replace(loop=rounds.loop._replace(status=bk.where(waiting, 0 * status, status)))

        def running(rounds: _Rounds) -> Any:
            return bk.any(rounds.loop.status == _RUNNING)

        def one_round(rounds: _Rounds) -> _Rounds:
            ran = rounds.loop.status == _RUNNING
            loop = bk.while_loop(lambda loop: bk.any(loop.status == _RUNNING), self._advance(rounds, limit), rounds.loop)
            return self._verify(rounds._replace(loop=loop), bound, limit, ran)

        return bk.while_loop(running, one_round, rounds)

    def _advance(self, rounds: _Rounds, limit: int) -> Callable[[_Loop], _Loop]:
        bk, method, goal, scale = self.bk, self.method, rounds.goal, rounds.scale
        enough = goal.norm * goal.norm
        largest = (rounds.start / scale) / np.finfo(bk.dtype(goal.norm)).eps

        def step(state: Any) -> Any:
            return method.step(bk, self.A, self.M, state)

        def advance(loop: _Loop) -> _Loop:
            active = loop.status == _RUNNING
            none = bk.zeros_like(loop.steps)
            state = bk.step_active(step, method.limited(bk, loop.state, limit - loop.steps), active)
            steps = loop.steps + bk.where(active, method.steps_taken(state) + none, none)
            products = loop.products + bk.where(active, method.products_made(state) + none, none)
            norm = bk.sqrt(state.rr)
            status = bk.where(state.broken, none + _BREAKDOWN, none)
            status = bk.where(steps >= limit, none + _MAX_ITER, status)
            status = bk.where(bk.isfinite(norm) & (norm <= largest), status, none + _DIVERGED)
            status = bk.where(state.rr <= enough, none + _CANDIDATE, status)
            history = loop.history
            if not isinstance(history, tuple):
                history = bk.put(history, steps, norm * scale, active)
            if self.report is not None:
                bk.report(self.report, steps, norm, goal.norm, active)
            return _Loop(state, bk.where(active, status, loop.status), steps, products, history)

        return advance

    def _verify(self, rounds: _Rounds, bound: Array, limit: int, ran: Array) -> _Rounds:
        bk, loop = self.bk, rounds.loop
        d = self.method.solution(bk, self.M, loop.state)
        moved = self.project(rounds.base + bk.times(rounds.scale, d))
        x = bk.where(loop.steps > 0, moved, rounds.base)
        r = self.b - self.A.apply(x)
        norm = bk.norm(r)
        none = bk.zeros_like(loop.status)
        good = norm <= bound
        progress = norm <= _PROGRESS * rounds.start
        broken = loop.status == _BREAKDOWN
        attempt = bk.where(progress, none, rounds.goal.attempt + 1)
        may = progress | (broken & (attempt <= _PATIENCE))
        again = ran & ~good & (broken | (loop.status == _CANDIDATE)) & may & (loop.steps < limit)
        # what a candidate becomes whose true residual is too large and who may not go on
        ended = bk.where(loop.steps >= limit, none + _MAX_ITER, none + _STAGNATED)
        ended = bk.where(loop.status == _CANDIDATE, ended, loop.status)
        status = bk.where(again, none + _RUNNING, bk.where(good, none + _CONVERGED, ended))
        status = bk.where(ran, status, loop.status)
        products = loop.products + bk.where(ran, none + 1, none)
        rounds = rounds._replace(x=x, residual=r, norm=norm, loop=loop._replace(status=status, products=products))
        return bk.cond(bk.any(again), lambda: self._restart(rounds, bound, again, attempt), lambda: rounds)

    def _restart(self, rounds: _Rounds, bound: Array, again: Array, attempt: Array) -> _Rounds:
        """A new round for the systems `again`, from the better of its start and its end."""
        bk = self.bk
        better = rounds.norm <= rounds.start
        x = bk.where(again & better, rounds.x, rounds.base)
        r = self.b - self.A.apply(x)
        norm = bk.where(again, bk.norm(r), rounds.start)
        loop = rounds.loop._replace(products=rounds.loop.products + bk.where(again, 1 + 0 * attempt, 0 * attempt))
        clean = bk.where(again, r, bk.zeros_like(r))
        new = self._new_round(x, clean, norm, bound, attempt, loop, rounds.residual)
        return rounds._replace(
            base=bk.select(again, new.base, rounds.base),
            start=bk.select(again, new.start, rounds.start),
            scale=bk.select(again, new.scale, rounds.scale),
            goal=bk.select(again, new.goal, rounds.goal),
            loop=loop._replace(state=bk.select(again, new.loop.state, rounds.loop.state)),
        )

    def _outcome(self, rounds: _Rounds, bound: Array) -> Outcome:
        copy, loop = self.bk.copy, rounds.loop
        history = loop.history if isinstance(loop.history, tuple) else copy(loop.history)
        return Outcome(rounds.x, rounds.residual, rounds.norm, bound, loop.status, loop.steps, loop.products, history)
