"""Rounds of one system in a program that is compiled: no masks, and its numbers between rounds in two short vectors.

XLA compiles a kernel for each number that a loop hands on, and takes as long for it as for one of vectors. So nothing
is counted in steps but these, status and products are derived after them, and what is known of the system then goes
into one vector of floats and one of integers. The rounds are those of `Iteration`, to the last digit; it has all of
them where there are several systems, histories, checkpoints or reports of progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...backends import Array, Backend
from .attainable import attainable
from .method import Goal
from .stages import Between, Solve
from .status import Status
from .stopping import StoppingRule
from .verdict import End, later_goal, verdict

_RUNNING, _DIVERGED, _CANDIDATE = int(Status.RUNNING), int(Status.DIVERGED), int(Status.CANDIDATE)


class _Known(NamedTuple):
    """Between rounds."""

    x: Array  # (1, n)
    r: Array
    floats: Array  # those of `_Floats`
    integers: Array  # those of `_Integers`
    steps: Array  # (1, 1)


class _Floats(NamedTuple):
    norm: Array  # of r
    scale: Array  # the power of two by which it was measured
    bound: Array
    goal: Array
    attainable: Array


class _Integers(NamedTuple):
    status: Array
    attempt: Array
    products: Array


class _Start(NamedTuple):
    """See `verdict.Start`."""

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
    """Are there such rounds, for this start and one limit? Of a limit of 0 the others know what to say."""
    alone = int(first.norm.shape[0]) == 1 and isinstance(first.tally.history, tuple)
    return alone and isinstance(limit, int) and limit > 0 and bk.compiles_numbers(first.norm)


def lean_rounds(this: Solve, first: Between, limit: int) -> Between:
    """The end of the solve that `first` starts."""
    bk, tally = this.bk, first.tally
    rounds = _Rounds(this, first.size, first.asked, limit)
    scale = bk.binary_scale(first.r)
    floats = _packed(bk, _Floats(first.norm, scale, first.bound, first.goal, first.attainable))
    integers = _packed(bk, _Integers(tally.status, first.attempt, tally.products))
    end = bk.while_loop(rounds.go_on, rounds.advance, _Known(first.x, first.r, floats, integers, tally.steps))
    norm, _, bound, goal, reached = _unpacked(bk, end.floats, _Floats._fields)
    status, attempt, products = _unpacked(bk, end.integers, _Integers._fields)
    return first._replace(
        x=end.x, r=end.r, norm=norm, attempt=attempt, bound=bound, goal=goal, attainable=reached,
        tally=tally._replace(status=status, steps=end.steps, products=products),
    )  # fmt: skip


@dataclass(frozen=True)
class _Rounds:
    """What does not change in them."""

    solve: Solve
    size: Array
    asked: Array
    limit: int

    def go_on(self, known: _Known) -> Any:
        status = known.integers[0]
        return (status == _RUNNING) | (status == _CANDIDATE)

    def advance(self, known: _Known) -> _Known:
        """Another round; of a system that is a candidate from its start, only the true residual."""
        bk = self.solve.bk
        floats = _Floats(*_unpacked(bk, known.floats, _Floats._fields))
        integers = _Integers(*_unpacked(bk, known.integers, _Integers._fields))
        return self._finished(known, floats, integers, self._iterated(known, floats, integers))

    def _iterated(self, known: _Known, floats: _Floats, integers: _Integers) -> _Ended:
        this, running = self.solve, integers.status == _RUNNING
        bk, method, A, M = this.bk, this.method, this.in_steps, this.M
        r = this.in_range(known.r)
        scale = floats.scale if r is known.r else bk.binary_scale(r)
        goal = Goal(floats.goal / scale, integers.attempt)
        rule = StoppingRule.of(bk, goal, floats.norm / scale, self.limit)
        first = method.init(bk, A, M, bk.times(1 / scale, r), goal)
        made = method.products_made(first)  # a number, but for methods whose steps differ in it
        counted = () if isinstance(made, int) else (0 * known.steps,)

        def go_on(loop: Any) -> Any:
            state, steps, begun = loop[:3]
            (sound, _), (early, _), (unfinished, _), (bounded, _) = rule.conditions(state, steps)
            return bk.any(running & (~begun | (sound & early & unfinished & bounded)))

        def advance(loop: Any) -> Any:
            state, steps, _, *products = loop
            state = method.step(bk, A, M, method.limited(bk, state, self.limit - steps))
            products = [total + method.products_made(state) for total in products]
            return state, steps + method.steps_taken(state), begun_now, *products

        begun_now = bk.full_like(running, True)
        state, steps, _, *products = bk.while_loop(go_on, advance, (first, known.steps, ~begun_now, *counted))
        total = products[0] if products else made * (steps - known.steps)
        begin = bk.where(running, method.products_to_start(this.A), 0 * total)
        status = bk.where(running, rule.status(state, steps), integers.status)
        return _Ended(state, scale, status, steps, integers.products + begin + total)

    def _finished(self, known: _Known, floats: _Floats, integers: _Integers, ended: _Ended) -> _Known:
        """x and its true residual, and what becomes of the system."""
        this, running, scale = self.solve, integers.status == _RUNNING, ended.scale
        bk, method = this.bk, this.method
        d = method.solution(bk, this.M, ended.state)
        x = bk.where(running, this.without_null(known.x + bk.times(scale, d)), known.x)
        image = this.A.apply(x)
        r = this.b - image
        norm, unit = bk.scaled_norm(r)
        missed = bk.isfinite(norm) & (norm > self.asked)
        reached = attainable(bk, this.A, x, image, self.size, missed, not method.factorises)
        settled = method.is_settled(bk, ended.state, x, scale)
        start = _Start(floats.norm, self.asked, integers.attempt)
        found = verdict(bk, start, End(ended.status, ended.steps, norm, reached, settled), self.limit, this.by_default)
        status = bk.where(~running & ~bk.isfinite(norm), _DIVERGED, found.status)
        products = ended.products + this.A.products * bk.where(missed, 2, 0 * status + 1)
        x, r, norm, unit = bk.cond(
            bk.any(found.worse & running),
            lambda: (known.x, known.r, floats.norm, floats.scale),
            lambda: (x, r, norm, unit),
        )
        told = _packed(bk, _Floats(norm, unit, found.bound, later_goal(method, found.bound), reached))
        return _Known(x, r, told, _packed(bk, _Integers(status, found.attempt, products)), ended.steps)


def _packed(bk: Backend, numbers: Sequence[Array]) -> Array:
    """Arrays `(1, 1)` of one dtype as one vector."""
    return bk.concat([bk.reshape(number, (1,)) for number in numbers])


def _unpacked(bk: Backend, vector: Array, names: Sequence[str]) -> list[Array]:
    return [bk.reshape(vector[k : k + 1], (1, 1)) for k in range(len(names))]
