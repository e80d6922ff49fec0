"""The loop that all methods share: rounds of steps, for one system or several, run eagerly or compiled.

A round solves `A d = r` from `d = 0`, where r is the true residual at its start, scaled by a power of two so that units
play no role. The method steps until its recurrence says that the goal is reached, that it cannot continue, or that the
limit is. Then x + d and its true residual are computed: a system whose true residual is within the tolerance has
converged, whatever the recurrence said; one whose recurrence had drifted, or broken down, starts another round as long
as rounds make progress. Systems that have ended are frozen. A single system is always running, so nothing is masked.

Where the small operations of a library take longer than NumPy's, NumPy iterates on the memory of the library. A step of
CG is about 35 operations on one number for each system: 1 to 9 us each in PyTorch, 10 to 35 in TensorFlow, 0.3 in
NumPy. Rows are then in the memory of the library; A, M and projections get its own arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, Cut, get_backend, select
from ...backends.numpy.one_system import OneSystemBackend
from ...sparse import OnHost, Operator, as_symmetric_dia, on_grid
from ...sparse.operators.cut_grids import InSteps, cut_stencil
from ..factors.inverse import DirectInverse, singularity_of
from ..factors.singularity import Singularity
from ..log import DEBUG, log, timed_set_up
from ..methods.method import Goal, Method, apply
from ..singular.projections import Projected, WithoutConstants, WithoutConstantsInside, WithoutVectors
from .checkpoints import Checkpoints
from .null_part import NullPart
from .outcome import Outcome
from .stopping import (
    BREAKDOWN,
    CONVERGED,
    DIVERGED,
    MAX_ITER,
    RUNNING,
    Limits,
    StoppingRule,
    attainable,
    goal_of_round,
    reached_by,
    verdict,
)
from .watch import InnerSteps, Round, StepReport, ended, unusable

NUMBERS = OneSystemBackend()
_KNOWN = int(Singularity.KNOWN)
_USUAL = 1e-6  # norms between this and its inverse are not scaled: powers of two change no digit


class LoopSettings(NamedTuple):
    """Static settings of a solve; hashable."""

    bk: Backend
    method: Method
    limits: Limits
    history: bool
    by_default: bool  # was the tolerance left to the library?
    both: bool = False  # are the known null vectors also those of the transpose?
    derived: bool = False  # is it the solve for a derivative, of which only the part in the range of A counts?
    cut: tuple[tuple[int, ...], Cut] | None = None  # shape of one system, and how it is distributed over devices


class State(NamedTuple):
    """State of all systems between two rounds, and at the end. Vectors are `(batch, n)`, numbers `(batch, 1)`."""

    x: Array
    residual: Array  # b - A x
    norm: Array
    bound: Array  # residual norm that counts as converged
    attainable: Array  # see Outcome
    status: Array
    steps: Array
    products: Array
    attempt: Array  # rounds that ended in a breakdown or without progress
    history: Any  # (most steps + 1, batch), or ()
    kept: Any  # buffers of checkpoints, or ()


class Unit(NamedTuple):
    """A power of two, so that squares neither overflow nor vanish; None where numbers need none."""

    bk: Backend
    power: Array | None = None  # (batch, 1)
    inverse: Array | None = None

    @classmethod
    def below(cls, bk: Backend, norm: Array, always: bool = False) -> Unit:
        """Just below a norm, where it and its inverse are normal numbers."""
        if not always and bk.is_concrete(norm) and not bk.any(~((norm > _USUAL) & (norm < 1 / _USUAL))):
            return cls(bk)
        tiny = float(np.finfo(bk.dtype(norm)).tiny)
        power, most = bk.maximum(bk.unit_in_first_place(norm), bk.full_like(norm, tiny)), bk.full_like(norm, 1 / tiny)
        power = bk.where(power < most, power, most)
        return cls(bk, power, 1 / power)

    def into(self, a: Array) -> Array:
        """Vectors or numbers in this unit."""
        return a if self.inverse is None else self.bk.times(self.inverse, a)

    def back(self, a: Array) -> Array:
        """Vectors or numbers in the user's units."""
        return a if self.power is None else self.bk.times(self.power, a)

    def size_of(self, v: Array) -> Array:
        """Norms of vectors that are not much larger than the unit; 0 where they are smaller by 19 or 154 orders."""
        return self.bk.norm(v) if self.power is None else self.back(self.bk.sqrt(self.bk.square_norm(self.into(v))))


class _Steps(NamedTuple):
    """State within a round. Fields that nobody needs are (), and not in the program."""

    state: Any  # of the method
    steps: Array
    going: Any  # systems that take another step; () for one system that nobody watches, whose state decides
    products: Any  # in this round, of methods whose steps differ in them
    reason: Any  # status by which a monitor ends a system, or 0
    history: Any
    kept: Any


def run(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    settings: LoopSettings,
    report: StepReport | None = None,
) -> Outcome:
    """Run a method; the outcome has a leading axis for several limits. Its vectors may be kept as grids.

    Args:
        null: projects known null vectors of A out, or None.
    """
    bk, method, limits, history, by_default, both, derived, cut = settings
    with bk.errstate():
        # Projections that are found at run time are mostly the identity, and would cost as much around M as M itself.
        around = both and null is not None and not isinstance(null, WithoutConstantsInside)
        if method.keeps_grids and len(limits) == 1 and not A.only_flat:
            A, M, b, x0, null = _on_grid(bk, A, M, b, x0, null, cut)
        else:
            b, x0 = bk.flat(b), None if x0 is None else bk.flat(x0)
        if around and null is not None and M is not None and not method.keeps_setup:
            M = Projected(null, M)
        if method.keeps_setup and M is None:
            inverse = timed_set_up(f"factors of {method.name}", lambda: method.setup(bk, A, M))
        else:
            inverse = method.setup(bk, A, M)
        if null is not None:
            method.tell_null(inverse, null, both)
        apart = NullPart.of(bk, b, null) if both and null is not None else None
        known = apart is not None or derived
        if apart is None and method.factorises:
            apart = NullPart.by_factors(b, inverse)
        rest = b if apart is None else apart.rest
        singular = _singularity(bk, b, null, inverse) if method.factorises or null is not None else None
        if report is not None:
            report = report.begun(bk, bk.norm(b))
        # Corrections by factors are orthogonal to the null vectors that factors know; an x0 may not be.
        take_off = None
        if x0 is not None and method.factorises and isinstance(inverse, DirectInverse):
            take_off = inverse.without_null
        loop = Loop(bk, method, A, inverse, rest, x0, null, both, by_default, report, take_off)
        if method.applies_once:
            outcome = loop.apply_once(rtol, atol, singular)
        else:
            outcome = _run_loop(loop, rtol, atol, singular, limits, history)
        if apart is None:
            return outcome
        return apart.reported(bk, outcome) if known else apart.judged(bk, outcome, rtol, atol)


def _run_loop(
    loop: Loop, rtol: Array, atol: Array, singular: Array | None, limits: Limits, history: bool
) -> Outcome:  # fmt: skip
    bk, b = loop.bk, loop.bk.rows_on_host(loop.b) if loop.method.applies_only else None
    if b is None:
        return loop.bounded(rtol, atol, limits.last).outcome(singular, limits, history)
    host = get_backend("numpy")

    def numbers(a: Array | None) -> Any:
        return None if a is None else bk.to_numpy(a)

    M, null = (None if operator is None else OnHost(operator) for operator in (loop.M, loop.null))
    on_host = replace(loop, bk=host, A=OnHost(loop.A), M=M, null=null, b=b, x0=numbers(loop.x0))
    with host.errstate():
        on_host = on_host.bounded(numbers(rtol), numbers(atol), limits.last)
        outcome = on_host.outcome(numbers(singular), limits, history)
    return Outcome(*(() if isinstance(a, tuple) else bk.from_host(np.ascontiguousarray(a)) for a in outcome))


@dataclass(frozen=True)
class Loop:
    """One solve: the data that do not change between its rounds."""

    bk: Backend
    method: Method
    A: Operator
    M: Operator | None
    b: Array
    x0: Array | None = None
    null: Operator | None = None  # projects known null vectors out of x ...
    both: bool = False  # ... and out of residuals, where the transpose has them too: outside the range of A
    by_default: bool = False  # default tolerance? Then the attainable accuracy counts as converged
    report: StepReport | None = None
    take_off: Callable[[Array], Array] | None = None  # projects the null vectors that factors know out of x
    size: Any = None  # (batch, 1), norm of b
    unit: Any = None  # of the solve, just below it
    asked: Any = None  # (batch, 1), residual norm by the tolerances
    limit: Any = 0  # iterations: one number, or of each system `(batch, 1)`
    points: Checkpoints | None = None

    @cached_property
    def in_steps(self) -> Operator:
        return as_symmetric_dia(self.A.in_steps)

    @property
    def several(self) -> bool:
        return int(self.b.shape[0]) != 1

    def bounded(self, rtol: Array, atol: Array, limit: int | np.ndarray) -> Loop:
        """With tolerances and limits."""
        bk = self.bk
        size = bk.norm(self.b)
        asked = bk.maximum(rtol * size, atol)
        asked = asked if asked.shape == size.shape else asked + bk.zeros_like(size)
        limit = limit if isinstance(limit, int) else bk.asarray(limit, like=self.b)
        unit = Unit.below(bk, size, self.report is not None)
        return replace(self, size=size, unit=unit, asked=asked, limit=limit)

    def outcome(self, singular: Array | None, limits: Limits, history: bool) -> Outcome:
        """Run to the end; arrays get a leading axis for several limits. Call it inside `bk.errstate()`."""
        bk, first = self.bk, self._first(limits.most if history else None)
        if len(limits) == 1:
            return _outcome(bk, self._end(first), singular)
        points = Checkpoints(bk, limits, self.b)
        if self.method.can_pause:
            kept = points.empty(first[:-2])
            end = replace(self, points=points)._end(first._replace(kept=kept))
            arrays = dict(zip(State._fields[:-2], points.merged(end.kept, end[:-2], end.steps), strict=True))
            lines = points.histories(end.history, arrays["steps"]) if history else ()
            return _outcome(bk, end._replace(**arrays, history=lines), singular)

        def solved(limit: Array) -> list[Array]:
            end = replace(self, limit=limit)._end(self._first(limits.most if history else None))
            return [*end[:-2], bk.matrix_transpose(end.history)] if history else list(end[:-2])

        like = [*first[:-2], bk.matrix_transpose(first.history)] if history else first[:-2]
        results: list[Any] = points.each(solved, like, first.steps)
        *ends, lines = results if history else [*results, ()]
        end = first._replace(**dict(zip(State._fields[:-2], ends, strict=True)))
        return _outcome(bk, end._replace(history=bk.permute_dims(lines, (0, 2, 1)) if history else ()), singular)

    # --- rounds

    def _first(self, recorded: int | None) -> State:
        bk, x0, asked = self.bk, self.x0, self.asked
        none = bk.zeros((int(self.b.shape[0]), 1), np.dtype(np.int32), self.size)
        if x0 is None:
            x, r, norm, status, products = bk.zeros_like(self.b), bk.copy(self.b), self.size, none, none
        else:
            x = bk.where(self.size == 0, bk.zeros_like(self.b), x0)
            r = self.b - self.A.apply(x)
            norm = bk.norm(r)
            status, products = bk.where(norm <= asked, CONVERGED, none), none + self.A.products
        status = bk.where(bk.isfinite(norm) & bk.isfinite(asked) & (asked >= 0), status, DIVERGED)
        lines: Any = ()
        if recorded is not None:
            empty = bk.full((recorded + 1, int(norm.shape[0])), np.nan, bk.dtype(norm), norm)
            lines = bk.put(empty, none, norm, status >= 0)
        return State(x, r, norm, asked, bk.zeros_like(norm), status, none, products, none, lines, ())

    def _end(self, s: State) -> State:
        bk, method = self.bk, self.method
        plain = isinstance(s.history, tuple) and self.report is None and self.points is None
        if method.factorises and plain and isinstance(self.limit, int) and self.limit > 0:
            if bk.is_concrete(s.norm):  # mostly one application of the factors is enough
                fresh = (s.status == RUNNING) & (s.norm > self.asked)
                end = None if bk.any(~fresh) else self._refined_once(s)
                if end is not None and not bk.any(end.status != CONVERGED):
                    return end
            elif method.short_steps:  # in programs an extra branch pays only for these
                end = self._refined_once(s)
                s = select(bk, end.status == CONVERGED, end, s)
        if log.isEnabledFor(DEBUG) and bk.is_concrete(s.norm):
            return self._while(self._logged, s)
        return self._while(self._round, s)

    def _refined_once(self, s: State) -> State:
        """x + M r, bitwise equal to a round of iterative refinement; meaningless for systems that it does not solve.

        Cost: one application of M and one product, wasted if the residual norm is too large.
        """
        bk, unit = self.bk, self._unit(s.norm)
        d = unit.back(apply(self.M, unit.into(self.in_range(s.residual))))
        x = self.without_null(d if self.x0 is None else s.x + d)
        residual = self.b - self.A.apply(x)
        norm = bk.norm(residual)
        done = (s.status == RUNNING) & (s.norm > self.asked) & (norm <= self.asked)
        steps, products = s.steps + 1, s.products + self.A.products
        status = bk.where(done, CONVERGED, s.status)
        return s._replace(x=x, residual=residual, norm=norm, status=status, steps=steps, products=products)

    def _while(self, body: Callable[..., State], s: State) -> State:
        """Run rounds. In programs of one system two vectors hold the numbers: XLA makes a kernel of each array."""
        bk = self.bk

        def running(status: Array) -> Any:
            return bk.any(status == RUNNING)

        if self.several or not bk.compiles_numbers(s.norm):
            return bk.while_loop(lambda s: running(s.status), body, s)
        floats, whole = ("norm", "bound", "attainable"), ("status", "products", "attempt")

        def pack(s: State) -> State:
            own = (bk.concat([getattr(s, name) for name in names], 1) for names in (floats, whole))
            return s._replace(**dict.fromkeys(floats + whole, ()) | dict(zip(("norm", "status"), own)))

        def unpack(p: State) -> State:
            pairs = ((p.norm, floats), (p.status, whole))
            return p._replace(**{name: own[:, k : k + 1] for own, names in pairs for k, name in enumerate(names)})

        end = bk.while_loop(
            lambda p: running(p.status[:, :1]), lambda p: pack(body(unpack(p), lambda: unpack(p))), pack(s)
        )
        return unpack(end)

    def _logged(self, s: State, read: Callable[[], State] | None = None) -> State:
        if self.bk.any(s.steps > 0):
            most = self.bk.to_numpy(s.norm).max(initial=0)
            log.debug("%s: another round from the residual norm %.3e", self.method.name, most)
        return self._round(s, read)

    def _round(self, s: State, read: Callable[[], State] | None = None) -> State:
        unit, t, why, products = self._steps(s, read)
        end = self._finished(s, unit, t.state, why, t.steps, products, self.limit)
        return end._replace(history=t.history, kept=t.kept)

    def _finished(
        self, s: State, unit: Unit, state: Any, why: Array, steps: Array, products: Array, limit: Any
    ) -> State:  # fmt: skip
        """Compute x + d and its true residual, and decide for each system: converged, failed or another round."""
        bk, method = self.bk, self.method
        running = s.status == RUNNING if self.several else None

        def kept(new: Any, old: Any) -> Any:
            return new if running is None else bk.where(running, new, old)

        x = kept(self.without_null(s.x + unit.back(method.solution(bk, self.M, state))), s.x)
        image = self.A.apply(x)
        r = self.b - image
        norm = unit.size_of(r) if unit.power is None else bk.maximum(unit.size_of(r), bk.max_abs(r))
        steps, products = kept(steps, s.steps), kept(products + self.A.products, s.products)
        done = norm <= self.asked
        done = done if running is None else done & running
        if bk.is_concrete(norm) and not bk.any(~done):  # usual, and the lines below would give the same
            return s._replace(
                x=x, residual=r, norm=norm, bound=self.asked, attainable=bk.zeros_like(norm),
                status=0 * s.status + CONVERGED, steps=steps, products=products,
            )  # fmt: skip
        missed = bk.isfinite(norm) & (norm > self.asked)
        missed = missed if running is None else missed & running
        reached = attainable(bk, self.A, x, image, self.size, missed, unit.size_of, not method.factorises)
        settled = method.is_settled(bk, state, x, bk.full_like(norm, 1) if unit.power is None else unit.power)
        status, attempt, bound, worse = verdict(
            bk, s.norm, norm, self.asked, reached, settled, why, s.attempt, steps < limit, self.by_default
        )
        if self.report is not None:
            worse = worse | unusable(bk, why, norm)
        worse = worse if running is None else worse & running
        products = bk.where(missed, products + self.A.products, products)
        x, r, norm = bk.where(worse, s.x, x), bk.where(worse, s.residual, r), bk.where(worse, s.norm, norm)
        return s._replace(
            x=x, residual=r, norm=norm, bound=kept(bound, s.bound), attainable=kept(reached, s.attainable),
            status=kept(status, s.status), steps=steps, products=products, attempt=attempt,
        )  # fmt: skip

    def without_null(self, x: Array) -> Array:
        """Project known null vectors out of x."""
        x = x if self.null is None else self.null.apply(x)
        return x if self.take_off is None else self.take_off(x)

    def in_range(self, r: Array) -> Array:
        """Project r onto the range of A, as far as its complement is known."""
        return r if self.null is None or not self.both else self.null.apply(r)

    def _unit(self, norm: Array) -> Unit:
        # That of the solve, unless residuals may be larger than b, or another library has thresholds of its own.
        own = self.x0 is not None or self.method.on_host
        return Unit.below(self.bk, norm, self.report is not None) if own else self.unit

    # --- steps

    def _steps(
        self, s: State, read: Callable[[], State] | None = None
    ) -> tuple[Unit, _Steps, Array, Array]:  # fmt: skip
        """The steps of a round: their unit, the last one, why they ended, and products with A so far.

        Args:
            read: reads s again from the two vectors of a program, because numbers from outside a loop are separate
                kernels, and numbers that its condition computes are not.
        """
        bk, method, A, M, limit, report = self.bk, self.method, self.in_steps, self.M, self.limit, self.report
        unit, r = self._unit(s.norm), self.in_range(s.residual)
        watched = self.several or report is not None
        looks = watched or not isinstance(s.history, tuple) or self.points is not None
        running: Any = s.status == RUNNING if looks else None
        r = bk.where(running, r, bk.zeros_like(r)) if self.several else r  # the others may have a NaN
        r = unit.into(r) if self.several or unit.power is not None else bk.copy(r)

        def goal_and_rule(s: State) -> tuple[Array, Goal, StoppingRule]:
            aim = goal_of_round(bk, s.norm, s.bound, self.size, s.steps == 0, method.factorises, self.x0 is not None)
            goal = Goal(unit.into(aim), s.attempt)
            return aim, goal, StoppingRule.of(bk, goal, unit.into(s.norm), limit)

        aim, goal, rule = goal_and_rule(s)
        state = method.init(bk, A, M, r, goal)
        reporter: Any = None
        if report is not None:
            reporter = Round(bk, report, s.x, s.norm, aim, unit.power, running, self.without_null)
            if method.on_host and report.monitor.may_stop:
                reporter = InnerSteps(reporter, s.steps)
                method = method.monitored(reporter)
        made = method.products_made(state)
        t = _Steps(
            state, s.steps, running & rule.goes_on(state, s.steps) if watched else (),
            () if isinstance(made, int) else 0 * s.steps,
            0 * s.steps if report is not None and report.monitor.may_stop else (),
            s.history, s.kept,
        )  # fmt: skip

        def products(t: _Steps) -> Array:
            own = t.steps - s.steps if isinstance(t.products, tuple) else t.products
            own = made * own if isinstance(made, int) and made != 1 else own
            begin = method.products_to_start(self.A)
            return s.products + (bk.where(s.norm > self.asked, own + begin, own) if begin else own)

        def why(t: _Steps) -> Array:
            status = rule.status(t.state, t.steps)
            return status if isinstance(t.reason, tuple) else ended(bk, status, t.reason)

        def kept(t: _Steps, active: Array) -> Any:
            points = self.points
            if points is None:
                return t.kept
            due = points.due(t.steps, active)

            def keep(kept: Any) -> Any:
                status = why(t)
                status = bk.where(status == RUNNING, MAX_ITER, status)
                now = self._finished(s, unit, t.state, status, t.steps, products(t), t.steps)
                return points.keep(kept, now[:-2], t.steps, due)

            return bk.cond(bk.any(due), keep, lambda kept: kept, t.kept)

        def advance(t: _Steps) -> _Steps:
            everyone = not self.several or (bk.updates_in_place and not bk.any(~t.going))
            left = limit - t.steps
            left = left if everyone else bk.where(t.going, left, 0 * left)
            if isinstance(reporter, InnerSteps):
                reporter.steps = t.steps
            state = self._stepped(method, method.limited(bk, t.state, left), None if everyone else t.going)

            def counted(number: Any) -> Any:
                return number if everyone else bk.where(t.going, number + 0 * t.steps, 0 * t.steps)

            active = t.going if watched else running
            new = t._replace(state=state, steps=t.steps + counted(method.steps_taken(state)))
            if not isinstance(t.products, tuple):
                new = new._replace(products=t.products + counted(method.products_made(state)))
            if not isinstance(t.history, tuple):
                new = new._replace(history=bk.put(t.history, new.steps, unit.back(bk.sqrt(state.rr)), active))
            going = rule.goes_on(state, new.steps) if watched else ()
            if reporter is not None:
                reason = reporter.after_step(new.steps, state.rr, active, lambda: method.solution(bk, M, state))
                if reason is not None:
                    new, going = new._replace(reason=reason), going & (reason == 0)
            new = new._replace(going=active & going if watched else ())
            return new._replace(kept=kept(new, active))

        def go_on(t: _Steps) -> Any:
            if watched:
                return bk.any(t.going)
            own = rule if read is None else goal_and_rule(read())[2]
            return bk.any(own.goes_on(t.state, t.steps))

        if self.points is not None and self.points.from_start:
            t = t._replace(kept=kept(t, running & (s.steps == 0)))
        plain = report is None and isinstance(s.history, tuple) and self.points is None and isinstance(limit, int)
        plain = plain and method.takes_numbers and bk.on_host and bk.communicator is None
        if plain and type(state.x) is np.ndarray:
            left = limit - int(s.steps.max(initial=0))
            if not self.several and NUMBERS.serves(state.x):
                state, taken = _steps_of_one(method, A, M, NUMBERS.enter(state), rule, left)
                t = t._replace(state=NUMBERS.leave(state), steps=s.steps + np.int32(taken))
            elif self.several and t.going.all():
                state, taken = _steps_of_several(bk, method, A, M, state, rule, left)
                t = t._replace(state=state, steps=s.steps + np.int32(taken))
                t = t._replace(going=rule.goes_on(state, t.steps))
        t = bk.while_loop(go_on, advance, t)
        return unit, t, why(t), products(t)

    def _stepped(self, method: Method, state: Any, going: Array | None) -> Any:
        """Step the systems that are going (None: all). Coupled methods step all, and the others keep their x."""
        bk, A, M = self.bk, self.in_steps, self.M
        if going is None:
            return method.step(bk, A, M, state)
        if not method.couples_systems:
            return bk.step_active(lambda state: method.step(bk, A, M, state), state, going)
        new: list[Any] = []

        def step_all(_: Any) -> tuple[Array, Array, Array]:
            new.append(method.step(bk, A, M, state))
            return new[0].x, new[0].rr, new[0].broken

        x, rr, broken = bk.step_active(step_all, (state.x, state.rr, state.broken), going)
        return new[0]._replace(x=x, rr=rr, broken=broken)

    # --- other uses of the loop

    def apply_once(self, rtol: Array, atol: Array, singular: Array | None) -> Outcome:
        """`x0 + M (b - A x0)` and its true residual, in straight-line code: the part of a direct method in a program.

        Systems that this does not solve get the status BREAKDOWN, and the host solves them; also those with factors
        that are not finite, even for b = 0.

        In single precision the default tolerance is out of reach for condition numbers of 1e2 and more (in double of
        1e5), which must not call the host in each run: one refinement shows whether the precision is the limit.
        """
        bk, A, x0 = self.bk, self.A, self.x0

        def norm(v: Array) -> Array:
            size = bk.sqrt(bk.square_norm(v))
            # Relative to A x0, b may be so small that its squares underflow.
            return size if x0 is None else bk.maximum(size, bk.max_abs(v))

        scale = bk.binary_scale(self.b)
        if x0 is not None:
            scale = bk.maximum(scale, bk.binary_scale(A.apply(x0)))
        inverse = 1 / scale
        b = bk.times(inverse, self.b)
        size = norm(b)
        asked = bk.maximum(rtol * size, atol * inverse)
        sound = bk.isfinite(asked) & (asked >= 0)
        if x0 is None:
            start, r, before = None, b, size
        else:
            start = bk.where(size == 0, bk.zeros_like(b), bk.times(inverse, x0))
            r = b - A.apply(start)
            before = norm(r)
            sound = sound & bk.isfinite(before)
        steps = bk.astype(before > asked, np.dtype(np.int32))
        x = bk.times(bk.astype(steps, bk.dtype(size)), apply(self.M, self.in_range(r)))
        x = self.without_null(x if start is None else start + x)
        x = bk.where(sound, x, bk.zeros_like(x) if start is None else start)
        r = b - A.apply(x)
        left = norm(r)
        missed = sound & (left > asked)

        def refined(x: Array, r: Array, left: Array) -> tuple[Array, ...]:
            x = self.without_null(x + apply(self.M, self.in_range(r)))
            image = A.apply(x)
            r = b - image
            left = norm(r)
            return x, r, left, reached_by(bk, A, x, image, size, False, norm) if self.by_default else zero

        zero = reached = bk.zeros_like(left)
        again: Any = 0
        if bk.dtype(left) == np.float32:
            first = x, r, left
            new = bk.cond(bk.any(missed), refined, lambda *first: (*first, zero), *first)
            new = new if int(left.shape[0]) == 1 else [bk.where(missed, *two) for two in zip(new, (*first, zero))]
            x, r, left, reached = new
            reached, again = bk.where(left > asked, reached, zero), bk.astype(missed, np.dtype(np.int32))
        bound = bk.maximum(asked, reached)
        none = 0 * steps
        status = bk.where(sound, bk.where(left <= bound, none + CONVERGED, BREAKDOWN), DIVERGED)
        numbers = (scale * left, scale * bound, scale * reached, zero, none + 1)
        products = none + A.products * ((1 if x0 is None else 2) + again)
        singular = none if singular is None else singular
        x, r = bk.times(scale, x), bk.times(scale, r)
        return Outcome(x, r, *numbers, status, steps + again, products, singular, none, ())

    def correction(self, attempt: Array) -> tuple[Array, Array, Array]:
        """One round from zero, for methods with an inner solve: x, iterations, products.

        Only the recurrence decides when it is done. `attempt` is that of the `Goal`.
        """
        first = self._first(None)._replace(attempt=attempt)
        unit, t, _, products = self._steps(first)
        return unit.back(self.method.solution(self.bk, self.M, t.state)), t.steps, products


def _steps_of_one(
    method: Method, A: Operator, M: Operator | None, state: Any, rule: StoppingRule, left: int
) -> tuple[Any, int]:
    """All steps of a round with NumPy numbers: a third less time than with arrays of one element."""
    step, taken, enough, largest = method.step, 0, rule.enough[0, 0], rule.largest[0, 0]
    while taken < left and enough < state.rr <= largest and not state.broken:
        state = step(NUMBERS, A, M, state)
        taken += 1
    return state, taken


def _steps_of_several(
    bk: Backend, method: Method, A: Operator, M: Operator | None, state: Any, rule: StoppingRule, left: int
) -> tuple[Any, int]:
    """Steps while all systems continue: a fifth less time than with masks and counts."""
    step, taken = method.step, 0
    while taken < left and ((state.rr > rule.enough) & (state.rr <= rule.largest) & ~state.broken).all():
        state = step(bk, A, M, state)
        taken += 1
    return state, taken


def _outcome(bk: Backend, s: State, singular: Array | None) -> Outcome:
    zero, none = bk.zeros_like(s.norm), 0 * s.steps
    known = none if singular is None else none + singular
    return Outcome(
        s.x, s.residual, s.norm, s.bound, s.attainable, zero, none + 1, s.status, s.steps, s.products, known, none,
        s.history,
    )  # fmt: skip


# --- operands


def _singularity(bk: Backend, b: Array, null: Operator | None, factors: Operator | None) -> Array | None:
    """`(batch, 1)`, numbers of `Singularity`; None where nothing is known."""
    by_factors = singularity_of(factors)
    if null is None and by_factors is None:
        return None
    rows = int(b.shape[0])
    none = bk.zeros((rows, 1), np.dtype(np.int32), b)
    singular = none if by_factors is None else bk.broadcast_to(by_factors, (rows, 1)) + none
    return singular if null is None else bk.where(_has_null_vectors(bk, null, b), none + _KNOWN, singular)


def _has_null_vectors(bk: Backend, null: Operator, b: Array) -> Array:
    """bool, by system: is the projection not the identity?"""
    if isinstance(null, WithoutConstantsInside):
        return null.array("active") > 0
    if isinstance(null, WithoutConstants) and len(null.array("labels").shape) == 2:
        return bk.max_abs(bk.take_in_bounds(null.array("weights"), null.array("labels"), 0)) > 0
    return bk.full_like(bk.max_abs(b), not (isinstance(null, WithoutVectors) and not int(null.basis.shape[0])), bool)


def _on_grid(
    bk: Backend,
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    null: Operator | None,
    known: tuple[tuple[int, ...], Cut] | None,
) -> Any:
    """Operands of a solve, with rows kept as grids where they may be sharded.

    Other rows are grids of one axis, so that stacks of vectors are not flattened.
    """
    if not bk.spreads_arrays() or not A.shape[0]:
        return A, M, b, x0, null
    grid = A.own_grid or A.shape[:1]
    cut = None if known is None else known[1].on(known[0], grid)
    start, b = None if x0 is None else bk.on_grid(x0, grid, cut), bk.on_grid(b, grid, cut)
    own = on_grid(A, grid) if cut is None else _with_cut_product(A, on_grid(A, grid), cut, b)
    return own, on_grid(M, grid), b, start, on_grid(null, grid)


def _with_cut_product(A: Operator, own: Operator, cut: Cut, b: Array) -> Operator:
    """`own`, with products by blocks where A is a stencil."""
    if not cut.all_names or not A.bk.compiled(b):
        return own
    stencil = cut_stencil(A, cut, b)
    if isinstance(stencil, str):
        log.debug("iterations multiply by the function as it is: it %s", stencil)
        return own
    return InSteps(own, stencil)
