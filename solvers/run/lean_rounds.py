"""Unmasked rounds of one system in a compiled program; two short vectors hold its scalars between rounds.

XLA compiles a kernel for each number that a loop hands on, and takes as long for it as for one of vectors. So nothing
is counted in steps but these, status and products are derived after them, and what is known of the system then goes
into one vector of floats and one of integers. The rounds are those of `Iteration`, to the last digit; it has all of
them where there are several systems, histories, checkpoints or reports of progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...backends import Array, Backend
from ..methods.method import Goal
from .attainable import attainable
from .outcome import Status
from .restart import End, later_goal, restart_decision, within_reach
from .stages import Between, StageSolve
from .stopping import StoppingRule

_RUNNING, _DIVERGED, _CANDIDATE = int(Status.RUNNING), int(Status.DIVERGED), int(Status.CANDIDATE)


class _RoundState(NamedTuple):
    """The loop state between rounds."""

    x: Array  # (1, n)
    r: Array
    floats: Array  # (1, 5), see _FLOATS
    integers: Array  # (1, 3), see _INTEGERS
    steps: Array  # (1, 1)

    def number(self, name: str) -> Array:
        """`(1, 1)`."""
        row, names = (self.floats, _FLOATS) if name in _FLOATS else (self.integers, _INTEGERS)
        k = names.index(name)
        return row[:, k : k + 1]


_FLOATS = ("norm", "asked", "bound", "goal", "attainable")  # as in Between
_INTEGERS = ("status", "attempt", "products")


class _Start(NamedTuple):
    """See `restart.Start`."""

    norm: Array
    asked: Array
    attempt: Array


class _Ended(NamedTuple):
    """The iterations of a round."""

    state: Any
    scale: Array
    status: Array
    steps: Array
    products: Array


def has_lean_rounds(bk: Backend, first: Between, limit: Any) -> bool:
    """Are unmasked rounds possible for this start and one limit? A limit of 0 is left to the general loop."""
    alone = int(first.norm.shape[0]) == 1 and isinstance(first.tally.history, tuple)
    return alone and isinstance(limit, int) and limit > 0 and bk.compiles_numbers(first.norm)


def lean_rounds(this: StageSolve, first: Between, limit: int) -> Between:
    """Iterate from `first` to the end of the solve."""
    bk, tally = this.bk, first.tally
    floats = bk.concat([getattr(first, name) for name in _FLOATS], 1)
    integers = bk.concat([tally.status, first.attempt, tally.products], 1)
    rounds = _Rounds(this, first.size, limit)
    end = bk.while_loop(rounds.go_on, rounds.advance, _RoundState(first.x, first.r, floats, integers, tally.steps))
    tally = tally._replace(status=end.number("status"), steps=end.steps, products=end.number("products"))
    changed = {name: end.number(name) for name in ("norm", "attempt", "bound", "attainable")}
    return first._replace(x=end.x, r=end.r, tally=tally, **changed)


@dataclass(frozen=True)
class _Rounds:
    """The constants of the loop, and its two functions."""

    solve: StageSolve
    size: Array  # norm of b
    limit: int

    def go_on(self, known: _RoundState) -> Any:
        status = known.number("status")
        return self.solve.bk.any((status == _RUNNING) | (status == _CANDIDATE))

    def advance(self, known: _RoundState) -> _RoundState:
        """Run another round; for a system that is a candidate from its start, only compute the true residual."""
        return self._finished(known, self._iterated(known))

    def _iterated(self, known: _RoundState) -> _Ended:
        this, limit = self.solve, self.limit
        bk, method, A, M = this.bk, this.method, this.in_steps, this.M
        r = this.in_range(known.r)
        scale = bk.binary_scale(r)
        inverse = 1 / scale
        goal, attempt = self._goal(known) * inverse, known.number("attempt")
        first = method.init(bk, A, M, bk.times(inverse, r), Goal(goal, attempt))
        made = method.products_made(first)  # a number, but for methods whose steps differ in it
        counted = () if isinstance(made, int) else (0 * known.steps,)
        no = bk.full_like(known.steps, False, bool)

        def rule_and_status() -> tuple[StoppingRule, Array]:
            """Computed on request: a scalar passed from outside would be a kernel of its own."""
            goal = Goal(self._goal(known) * inverse, attempt)
            rule = StoppingRule.of(bk, goal, known.number("norm") * inverse, limit)
            return rule, known.number("status")

        def go_on(loop: Any) -> Any:
            state, steps, begun = loop[:3]
            rule, status = rule_and_status()
            (sound, _), (early, _), (unfinished, _), (bounded, _) = rule.conditions(state, steps)
            return bk.any((~begun | (sound & early & unfinished & bounded)) & (status == _RUNNING))

        def advance(loop: Any) -> Any:
            state, steps, _, *products = loop
            state = method.step(bk, A, M, method.limited(bk, state, limit - steps))
            products = [total + method.products_made(state) for total in products]
            return state, steps + method.steps_taken(state), ~no, *products

        state, steps, _, *products = bk.while_loop(go_on, advance, (first, known.steps, no, *counted))
        (rule, status), begin = rule_and_status(), method.products_to_start(this.A)
        running = status == _RUNNING
        total = products[0] if products else made * (steps - known.steps)
        total = total + bk.where(running, begin, 0 * total) if begin else total
        status = bk.where(running, rule.status(state, steps), status)
        return _Ended(state, scale, status, steps, known.number("products") + total)

    def _goal(self, known: _RoundState) -> Array:
        goal, norm = known.number("goal"), known.number("norm")
        return within_reach(self.solve.bk, goal, norm, self.size) if self.solve.started else goal

    def _finished(self, known: _RoundState, ended: _Ended) -> _RoundState:
        """Compute x and its true residual, and decide whether to restart."""
        this, scale, before = self.solve, ended.scale, known.number("norm")
        bk, method, running = this.bk, this.method, known.number("status") == _RUNNING
        d = method.solution(bk, this.M, ended.state)
        x = bk.where(running, this.without_null(known.x + bk.times(scale, d)), known.x)
        image = this.A.apply(x)
        r = this.b - image
        norm = bk.norm(r)
        asked, sound = known.number("asked"), bk.isfinite(norm)
        missed = sound & (norm > asked)
        reached = attainable(bk, this.A, x, image, self.size, missed, not method.factorises)
        settled = method.is_settled(bk, ended.state, x, scale)
        start = _Start(before, asked, known.number("attempt"))
        found = restart_decision(
            bk, start, End(ended.status, ended.steps, norm, reached, settled), self.limit, this.by_default
        )
        status = bk.where(running | sound, found.status, _DIVERGED)
        products = ended.products + this.A.products * bk.where(missed, 2, 0 * status + 1)
        worse = found.worse & running
        x, r = bk.cond(bk.any(worse), lambda: (known.x, known.r), lambda: (x, r))
        norm = bk.where(worse, before, norm)
        floats = bk.concat([norm, asked, found.bound, later_goal(method, found.bound), reached], 1)
        return _RoundState(x, r, floats, bk.concat([status, found.attempt, products], 1), ended.steps)
