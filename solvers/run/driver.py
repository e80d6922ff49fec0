"""The iteration loop: step, freeze finished systems, test, record; then the true residual, and a restart if needed.

A solve goes in rounds. A round solves `A d = r` from `d = 0`, where r is the true residual at its start, scaled by a
power of two so that units play no role. When no system is running any more, x + d and its true residual are computed:
a system whose true residual is within the tolerance has converged, whatever its recurrence said; one whose recurrence
had drifted, or broken down, starts another round as long as rounds make progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from ...backends import Array, Backend, select
from ...sparse import Operator, as_symmetric_dia
from ..log import DEBUG, log
from ..methods.method import Goal, Method
from .at_once import solved_at_once
from .attainable import attainable
from .checkpoints import Checkpoints
from .lean import has_lean_steps, lean_steps
from .lean_rounds import has_lean_rounds, lean_rounds
from .monitor import StepReport
from .outcome import Outcome, Status
from .restart import End, later_goal, restart_decision, within_reach
from .stages import Between, Round, Tally
from .stopping import Limits, StoppingRule
from .told import InnerSteps, after_step, unusable

# plain integers: arrays of some libraries do not mix with enums
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _BREAKDOWN, _DIVERGED, _CANDIDATE, *_ = (int(s) for s in Status)


@dataclass(frozen=True)
class Iteration:
    """One solve: the constants of its loop."""

    bk: Backend
    method: Method
    A: Operator
    M: Operator | None
    b: Array
    null: Operator | None = None  # projects known null vectors out of x ...
    both: bool = False  # ... and out of residuals, where the transpose has them too: outside the range of A
    report: StepReport | None = None
    started: bool = False  # at an x0? Then residuals may be larger than b
    by_default: bool = False  # default tolerance? Then the attainable accuracy counts as converged
    checkpoints: Checkpoints | None = None
    take_off: Callable[[Array], Array] | None = None  # projects the null vectors that factors know out of x
    singular: Array | None = None  # (batch, 1), see Outcome; None: none is known to be

    @cached_property
    def in_steps(self) -> Operator:
        return as_symmetric_dia(self.A.in_steps)

    def run(self, x0: Array | None, rtol: Array, atol: Array, limits: Limits, history: bool) -> Outcome:
        """Run the iteration; outcomes have a leading axis for several limits. Call it inside `bk.errstate()`."""
        bk = self.bk
        size = bk.norm(self.b)
        first = self._first(x0, size, bk.maximum(rtol * size, atol), limits.most if history else None)
        last = limits.last
        limit = last if isinstance(last, int) else bk.asarray(last, like=self.b)
        if len(limits) == 1:
            at_once = not history and self._may_end_at_once(limit)
            return self._outcome(self._at_once(first, x0, limit) if at_once else self._rounds(first, limit))
        this = replace(self, checkpoints=Checkpoints(bk, limits, self.b))
        return this._rounds_with_checkpoints(first, limit)

    def run_each(self, x0: Array | None, rtol: Array, atol: Array, limits: Limits, history: bool) -> Outcome:
        """Solve once per limit, for methods whose intermediate states give no solution."""
        size = self.bk.norm(self.b)
        bound, recorded = self.bk.maximum(rtol * size, atol), limits.most if history else None

        def solved(limit: Array | None) -> Outcome:
            first = self._first(x0, size, bound, recorded)
            return self._outcome(first if limit is None else self._rounds(first, limit))

        return Checkpoints(self.bk, limits, self.b).each(solved)

    def _may_end_at_once(self, limit: int | Array) -> bool:
        """May one application of factors end the solve? In compiled functions only if the extra branch pays."""
        alone = self.report is None and isinstance(limit, int) and limit > 0
        worth = self.method.short_steps or self.bk.is_concrete(self.b)
        return self.method.factorises and alone and worth

    def _at_once(self, first: Between, x0: Array | None, limit: int | Array) -> Between:
        """Finish the systems that one step has converged, and iterate the others."""
        bk, tally = self.bk, first.tally
        is_concrete, running = bk.is_concrete(first.norm), tally.status == _RUNNING
        if is_concrete and bk.any(~running):
            return self._rounds(first, limit)
        found = solved_at_once(self, None if x0 is None else first.x, first.r)
        done = running & (found.norm <= first.asked)
        if is_concrete and bk.any(~done):
            return self._rounds(first, limit)
        one = tally.steps + 1
        ended = tally._replace(status=0 * one + _CONVERGED, steps=one, products=tally.products + self.A.products)
        end = first._replace(**found._asdict(), tally=ended)
        return end if is_concrete else self._rounds(select(bk, done, end, first), limit)

    def without_null(self, x: Array) -> Array:
        """Project known null vectors out of x."""
        x = x if self.null is None else self.null.apply(x)
        return x if self.take_off is None else self.take_off(x)

    def in_range(self, r: Array) -> Array:
        """Project r onto the range of A, as far as its complement is known."""
        return r if self.null is None or not self.both else self.null.apply(r)

    def one_round(self, bound: Array, attempt: Array, limit: Array) -> tuple[Array, Array, Array]:
        """One round from zero, for methods with an inner solve: x, iterations, products.

        Only the recurrence decides when it is done. `attempt` and `limit` are per system.
        """
        bk = self.bk
        first = self._first(None, bk.norm(self.b), bound, None)._replace(attempt=attempt)
        this = self._iterate(self._start(first), limit)
        x = bk.times(this.scale, self.method.solution(bk, self.M, this.state))
        return x, this.tally.steps, this.tally.products

    def _first(self, x0: Array | None, size: Array, bound: Array, recorded: int | None) -> Between:
        bk, b = self.bk, self.b
        x = bk.zeros_like(b) if x0 is None else bk.where(size == 0, bk.zeros_like(b), x0)
        r = bk.copy(b) if x0 is None else b - self.A.apply(x)
        norm = size if x0 is None else bk.norm(r)
        none = bk.zeros(tuple(norm.shape), np.dtype(np.int32), norm)
        # A zero x is a candidate until its product has been seen: a NaN or an infinity in A makes it one.
        status = bk.where(norm <= bound, _CONVERGED if x0 is not None else _CANDIDATE, none + _RUNNING)
        status = bk.where(bk.isfinite(norm) & bk.isfinite(bound) & (bound >= 0), status, _DIVERGED)
        lines: Any = ()
        if recorded is not None:
            empty = bk.full((recorded + 1, int(norm.shape[0])), np.nan, bk.dtype(norm), norm)
            lines = bk.put(empty, none, norm, status >= 0)
        tally = Tally(status, none, none if x0 is None else none + self.A.products, lines, ())
        bound = bound + bk.zeros_like(norm)
        return Between(x, r, norm, none, size, bound, bound, bound, bk.zeros_like(norm), tally)

    def _rounds(self, first: Between, limit: int | Array) -> Between:
        unwatched = self.report is None and self.checkpoints is None
        if unwatched and has_lean_rounds(self.bk, first, limit):
            return lean_rounds(self, first, limit)

        rounds = count()

        def one_round(between: Between) -> Between:
            if next(rounds) and log.isEnabledFor(DEBUG) and self.bk.is_concrete(between.norm):
                most = self.bk.to_numpy(between.norm).max(initial=0)
                log.debug("%s: another round from the residual norm %.3e", self.method.name, most)
            return self._finish(self._iterate(self._start(between), limit), limit)

        return self.bk.while_loop(self._is_running, one_round, first)

    def _rounds_with_checkpoints(self, first: Between, limit: int | Array) -> Outcome:
        points, tally = self.checkpoints, first.tally
        if points is None:
            raise ValueError("Checkpoints need their limits.")
        kept = points.empty(self._outcome(first))
        if points.from_start:
            due = points.due(tally.steps, tally.status == _RUNNING)
            stopped = self._stopped(self._start(first), tally)
            kept = points.keep(kept, stopped, due)
        end = self._rounds(first._replace(tally=tally._replace(kept=kept)), limit)
        return points.all(end.tally.kept, self._outcome(end))

    def _stopped(self, this: Round, tally: Tally) -> Outcome:
        """The outcome of a solve whose limit is the current step."""
        status = self.bk.where(tally.status == _RUNNING, _MAX_ITER, tally.status)
        stopped = this._replace(tally=tally._replace(status=status, history=(), kept=()))
        return self._outcome(self._finish(stopped, tally.steps))

    def _kept(self, this: Round, tally: Tally, state: Any, active: Array) -> Any:
        """Checkpoint buffers, with those that this step has reached."""
        points, bk = self.checkpoints, self.bk
        if points is None:
            return tally.kept
        due = points.due(tally.steps, active)

        def keep(kept: Outcome) -> Outcome:
            return points.keep(kept, self._stopped(this._replace(state=state), tally), due)

        return bk.cond(bk.any(due), keep, lambda kept: kept, tally.kept)

    def _is_running(self, between: Between) -> Any:
        status = between.tally.status
        return self.bk.any((status == _RUNNING) | (status == _CANDIDATE))

    def _start(self, between: Between) -> Round:
        bk = self.bk
        # Systems that are not running, perhaps because of a NaN, stand by with a zero residual.
        r = bk.where(between.tally.status == _RUNNING, self.in_range(between.r), bk.zeros_like(between.r))
        scale = bk.binary_scale(r)
        goal = within_reach(bk, between.goal, between.norm, between.size) if self.started else between.goal
        goal = Goal(goal / scale, between.attempt)
        state = self.method.init(bk, self.in_steps, self.M, bk.times(1 / scale, r), goal)
        tally = between.tally
        made = bk.where(
            tally.status == _RUNNING, 0 * tally.products + self.method.products_to_start(self.A), 0 * tally.products
        )
        return Round(between, scale, goal, state, tally._replace(products=tally.products + made))

    def _iterate(self, this: Round, limit: int | Array) -> Round:
        bk, method = self.bk, self.method
        inner = None if self.report is None else InnerSteps.of(self, self.report, this)
        if inner is not None:
            method = method.monitored(inner)
        rule = StoppingRule.of(bk, this.goal, this.start.norm / this.scale, limit)
        status = this.tally.status
        late = (status == _RUNNING) & (this.tally.steps >= limit)  # a limit of 0 iterations
        tally = this.tally._replace(status=bk.where(late, _MAX_ITER, status))
        records = not (isinstance(tally.history, tuple) and self.checkpoints is None)
        counts_only = bk.updates_in_place and self.report is None and not records

        def advance(loop: tuple[Any, Tally]) -> tuple[Any, Tally]:
            state, tally = loop
            active = tally.status == _RUNNING
            left = bk.where(active, limit - tally.steps, 0 * tally.steps)
            if inner is not None:
                inner.steps = tally.steps
            state = self._advanced(method, method.limited(bk, state, left), active)
            # Where the loop is Python's, a step after which everyone goes on costs no more than this look at it.
            everyone = counts_only and not bk.any(~active)
            while everyone:
                steps = tally.steps + method.steps_taken(state)
                (sound, _), (early, _), (unfinished, _), (bounded, _) = rule.conditions(state, steps)
                if not (sound & early & unfinished & bounded).all():
                    break
                tally = tally._replace(steps=steps, products=tally.products + method.products_made(state))
                state = method.step(bk, self.in_steps, self.M, method.limited(bk, state, limit - steps))
            tally = self._counted(this, tally, state, active, rule, inner)
            return state, tally._replace(kept=self._kept(this, tally, state, active))

        def go_on(loop: tuple[Any, Tally]) -> Any:
            return bk.any(loop[1].status == _RUNNING)

        state = this.state
        if counts_only and has_lean_steps(bk, method, state, limit) and not bk.any(tally.status != _RUNNING):
            state, before = lean_steps(bk, method, self.in_steps, self.M, state, tally, rule)
            tally = self._counted(this, before, state, tally.status == _RUNNING, rule)
        state, tally = bk.while_loop(go_on, advance, (state, tally))
        return this._replace(state=state, tally=tally)

    def _counted(
        self, this: Round, tally: Tally, state: Any, active: Array, rule: StoppingRule, inner: InnerSteps | None = None
    ) -> Tally:  # fmt: skip
        """Update counts, norms and history after a step of the active systems."""
        bk, none = self.bk, 0 * tally.steps
        steps = tally.steps + bk.where(active, self.method.steps_taken(state) + none, none)
        products = tally.products + bk.where(active, self.method.products_made(state) + none, none)
        status = bk.where(active, rule.status(state, steps), tally.status)
        history = tally.history
        if not isinstance(history, tuple):
            history = bk.put(history, steps, bk.sqrt(state.rr) * this.scale, active)
        if self.report is not None:
            status = after_step(self, self.report, this, state, status, steps, active, inner)
        return Tally(status, steps, products, history, tally.kept)

    def _advanced(self, method: Method, state: Any, active: Array) -> Any:
        """Advance the active systems; coupled methods step all, and the finished ones keep their x."""

        def step(state: Any) -> Any:
            return method.step(self.bk, self.in_steps, self.M, state)

        if not method.couples_systems:
            return self.bk.step_active(step, state, active)
        new: list[Any] = []

        def step_all(_: Any) -> tuple[Array, Array]:
            new.append(step(state))
            return new[0].x, new[0].rr

        x, rr = self.bk.step_active(step_all, (state.x, state.rr), active)
        return new[0]._replace(x=x, rr=rr)

    def _finish(self, this: Round, limit: int | Array) -> Between:
        """Compute x and its true residual, and decide for each system: done, failed or restarted."""
        bk, start, tally = self.bk, this.start, this.tally
        running, unseen = start.tally.status == _RUNNING, start.tally.status == _CANDIDATE
        ran = running | unseen
        d = self.method.solution(bk, self.M, this.state)
        x = bk.where(running, self.without_null(start.x + bk.times(this.scale, d)), start.x)
        image = self.A.apply(x)
        r = self.b - image
        norm = bk.norm(r)
        none = bk.zeros_like(tally.status)
        if bk.is_concrete(norm) and not bk.any(~(ran & (norm <= start.asked))):  # mostly; what follows would say so
            products = tally.products + self.A.products
            tally = tally._replace(status=none + _CONVERGED, products=products)
            return start._replace(x=x, r=r, norm=norm, bound=start.asked, attainable=0 * norm, tally=tally)
        missed = ran & bk.isfinite(norm) & (norm > start.asked)
        reached = attainable(bk, self.A, x, image, start.size, missed, not self.method.factorises)
        settled = self.method.is_settled(bk, this.state, x, this.scale)
        found = restart_decision(
            bk, start, End(tally.status, tally.steps, norm, reached, settled), limit, self.by_default
        )
        status = bk.where(unseen & ~bk.isfinite(norm), _DIVERGED, found.status)
        status = bk.where(ran, status, start.tally.status)
        worse = running & found.worse
        if self.report is not None:
            worse = worse | (running & unusable(bk, tally.status, norm))
        x, r, norm = bk.where(worse, start.x, x), bk.where(worse, start.r, r), bk.where(worse, start.norm, norm)
        products = tally.products + bk.where(ran, none + self.A.products, none)
        products = products + bk.where(missed, none + self.A.products, none)
        return Between(
            x, r, norm, found.attempt, start.size, start.asked,
            bound=bk.where(ran, found.bound, start.bound),
            goal=bk.where(ran, later_goal(self.method, found.bound), start.goal),
            attainable=bk.where(ran, reached, start.attainable),
            tally=tally._replace(status=status, products=products),
        )  # fmt: skip

    def _outcome(self, between: Between) -> Outcome:
        x, r, norm, tally = between.x, between.r, between.norm, between.tally
        history = tally.history if isinstance(tally.history, tuple) else self.bk.copy(tally.history)
        zero, none = self.bk.zeros_like(norm), 0 * tally.steps
        singular = none if self.singular is None else self.singular
        numbers = (
            norm, between.bound, between.attainable, zero, none + 1, tally.status, tally.steps, tally.products,
            singular, none,
        )  # fmt: skip
        return Outcome(x, r, *numbers, history)
