"""One method applied to one problem, and its outcome as a result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..backends import Array, agreed, get_backend
from ..backends.on_failure import QUIET
from ..sparse import Layout, NonlinearError, Operator, UnsupportedOperation
from .adapters.devices import replicated, shows_no_progress, solved_by_systems
from .iteration_budget import Fallback
from .methods.bicgstab import BiCGStab
from .methods.cg import CG
from .methods.direct.singular import Singularity
from .methods.direct.superlu import provider_note
from .methods.method import Method
from .null_space.given import null_vectors_in_words
from .on_host import continued_on_host, rescued_on_host, run_on_host
from .preconditioners import Preconditioner
from .preconditioners.amg_after_multigrid import MOST_ITERATIONS, amg_after_multigrid, is_on_grids
from .read.arguments import Request
from .read.system import System
from .results.diagnosis import Look
from .results.failure import apply_policy
from .results.result import SolveResult
from .results.words import MadeBy
from .run.monitor import Monitor, StepReport
from .run.null_part import NullPart
from .run.outcome import Outcome, Status
from .run.run import LoopSettings, run
from .run.stopping import Limits

AS_GIVEN = "it was asked for"
_MOST_ON_HOST = 200  # iterations with classical AMG, in a compiled function


@dataclass(frozen=True, eq=False)
class Attempt:
    """A method applied to a problem.

    Attributes:
        system: A x = b in rows.
        method: what solves it.
        M: a preconditioner, a factorisation made before, or None.
        on_failure: policy for failures, also for those that show later or in several solves; see `guarded`.
        history: are residual norms recorded?
        monitor: what is told after each iteration, and what stops the solve.
        fallback: what to try where the method fails, or takes longer than that would, or None.
        why: this method, in words.
        may_switch: may it end early where another preconditioner will do, see `switch_after`?
    """

    system: System
    method: Method
    M: Operator | None
    on_failure: str
    history: bool = False
    monitor: Monitor | None = None
    fallback: Fallback | None = None
    why: str = AS_GIVEN
    may_switch: bool = False

    @classmethod
    def of(
        cls,
        request: Request,
        system: System,
        method: Method,
        M: Operator | None,
        fallback: Fallback | None = None,
        why: str = AS_GIVEN,
    ) -> Attempt:
        """The attempt with the failure policy, history and monitor that the request asks for."""
        grids = M.__class__ is Preconditioner and M.kind == "multigrid"  # without a call
        return cls(system, method, M, request.on_failure, request.history, request.monitor, fallback, why, grids)

    @cached_property
    def switch_after(self) -> int | None:
        """Iterations with multigrid on grids before classical AMG takes its place; None where that is not to be."""
        system = self.system
        if (
            not self.may_switch
            or system.several
            or not isinstance(self.method, CG | BiCGStab)
            or not is_on_grids(self.M)
        ):
            return None
        return MOST_ITERATIONS if self._is_bounded() and system.limits.most > MOST_ITERATIONS else None

    def amg_after_multigrid(self) -> Preconditioner:
        """The classical AMG that takes the place of M; made once for several solves with one matrix.

        Raises:
            ValueError, UnsupportedOperation, NonlinearError: the entries of A cannot be found, or not coarsened.
        """
        if self._kept_amg is None:
            self.M.__dict__["_kept_amg"] = self.system.A, amg_after_multigrid(self.system.A, self.M)
        made: Any = self._kept_amg
        return made

    @property
    def _kept_amg(self) -> Preconditioner | None:
        """As of an earlier solve with the same matrix, if there was one."""
        A, found = self.M.__dict__.get("_kept_amg", (None, None))
        return found if A is self.system.A else None

    def with_kept_amg(self) -> Attempt:
        """With classical AMG from the start, where it was needed before."""
        needed = self.switch_after is not None and not self.system.compiled and self._kept_amg is not None
        return replace(self, M=self._kept_amg) if needed else self

    @property
    def may_be_stopped(self) -> bool:
        """Is there a callback?"""
        return self.monitor is not None and self.monitor.callback is not None

    def run(self) -> Outcome:
        """Run in the library, compiled once where that pays, or on the host. Without derivatives.

        The outcome has a first axis for checkpoints if the problem has several limits.
        """
        report = self._report()
        found = self._run(report)
        if report is not None and report.errors is not None and not self.system.bk.compiled(found.status):
            self.system.bk.to_numpy(found.status)  # waits for the loop
            agreed(self.system.bk.communicator, "the callback", report.raise_errors)
        return found

    def _run(self, report: StepReport | None) -> Outcome:
        system, A, M = self.system, self.system.A, self.M
        bk, method = system.bk, CG() if system.is_empty else self.method  # CG has nothing to factorise
        settings = self._settings(method, (self.fallback is not None or self.may_switch) and self._is_bounded())
        if method.on_host and not bk.on_host:
            return run_on_host(system, settings, M, report)
        arrays = (system.b, system.x0, system.rtol, system.atol)
        apart = None if system.cut is None or report is not None else solved_by_systems(system, M, settings)
        if apart is not None:
            return apart
        if bk.compiles_solves and not system.compiled and report is None:
            A = A.as_container()
            M, null = (None if one is None else one.as_container() for one in (M, system.null))
            if A.is_container and (M is None or M.is_container):
                return bk.compile_if_faster(run, ("settings",))(A, M, *arrays, null, settings=settings)
        return run(system.A, self.M, *arrays, system.null, settings=settings, report=report)

    def _report(self) -> StepReport | None:
        """What the loop calls after each step.

        Raises:
            ValueError: it could stop a program that cannot ask the host.
        """
        monitor, system = self.monitor, self.system
        if monitor is None:
            return None
        if monitor.may_stop and not system.bk.can_ask_host():
            raise ValueError(
                "callback and time_limit ask the host after each iteration, which a program for XLA alone, for several "
                "processes or inside shard_map cannot. Leave them out, or solve outside of it."
            )
        if monitor.progress is True and shows_no_progress(system.bk):
            monitor = replace(monitor, progress=False)
        present = partial(_presented, system, monitor.in_numpy)
        return StepReport.of(monitor, self.method.name, present, system.layout.batch, system.compiled)

    def _is_bounded(self) -> bool:
        """Does the fallback end it? Not where none can be called, nor in a program that records residual norms, which
        has room for those up to the limit."""
        return not (self.system.compiled and (self.history or not self._may_be_rescued()))

    def _settings(self, method: Method, bounded: bool = False) -> LoopSettings:
        system = self.system
        limits = system.limits.of_systems(system.layout.systems)
        if bounded and self.fallback is not None:
            limits = self.fallback.shortened(limits)
        if bounded and self.may_switch and self.switch_after is not None:
            limits = limits.at_most(self.switch_after)
        cut = None if system.cut is None else (system.layout.shapes[0], system.cut)
        return LoopSettings(system.bk, method, limits, self.history, system.by_default, self.both, system.derived, cut)

    @property
    def both(self) -> bool:
        """Has the transpose the null vectors of A? Those that were given, too, where the method needs a symmetric A."""
        system = self.system
        same = self.method.needs_hermitian or (self.method.needs_symmetric and system.A.dtype.kind != "c")
        return system.both or (system.given is None and same)

    @property
    def solved_b(self) -> Array:
        """The right-hand side without its part in known null vectors of the transpose."""
        system = self.system
        with system.bk.errstate():
            return NullPart.rest_of(system.bk, system.bk.flat(system.b), system.null, self.both)

    def guarded(self, outcome: Outcome, purpose: str = "") -> Outcome:
        """Outcome of a solve in a compiled function or for a derivative, with its failure handled here.

        Args:
            purpose: words that go before the method's name: what the solve is for.
        """
        if self._is_seen_to_converge(outcome):
            return outcome
        last = self
        if self.fallback is not None and not self.system.several and self._may_be_rescued():
            climbed = self._climbed(outcome, self.fallback)
            if climbed is not None:
                outcome, last = climbed, replace(self, method=self.fallback.method, M=None)
        made_by = tuple(one._replace(name=purpose + one.name) for one in self.made_by())
        result = replace(last.result(outcome), _made_by=made_by, x=outcome.x)
        look, bk = last.look(outcome), self.system.bk
        vectors = None if purpose else last.null_vectors()
        return outcome._replace(x=apply_policy(bk, result, self.on_failure, look, self.may_be_stopped, vectors).x)

    def null_vectors(self, part: np.ndarray | None = None) -> str | None:
        """Known null vectors of the transpose, in words; None where there are none. See `null_vectors_in_words`."""
        null = self.system.null if self.both else None
        return None if null is None else null_vectors_in_words(null, part)

    def part_taken_off(self) -> np.ndarray:
        """Part of b in known null vectors of the transpose, in rows of NumPy."""
        bk = self.system.bk
        return bk.to_numpy(bk.flat(self.system.b)) - bk.to_numpy(self.solved_b)

    def continued(self, outcome: Outcome) -> Outcome:
        """Outcome of a solve in a compiled function or for a derivative, after classical AMG if it was to switch."""
        if not self.may_switch or self.switch_after is None or self._is_seen_to_converge(outcome):
            return outcome
        return self._switched_to_amg(outcome, self.switch_after)

    def _is_seen_to_converge(self, outcome: Outcome) -> bool:
        """Have all systems converged, as known without waiting?"""
        bk, status = self.system.bk, outcome.status
        known = not (self.system.compiled or bk.compiled(status)) and bk.is_concrete(status)
        return known and not bk.any(status != int(Status.CONVERGED))

    def look(self, outcome: Outcome) -> Look | None:
        """Function that diagnoses a failure of this attempt; None where it is not needed."""
        if self.system.bk.communicator is not None:  # members would look at their own parts, each on its way
            return None
        compiled = self.system.compiled or self.system.bk.compiled(outcome.status)
        later = self.on_failure in QUIET
        return None if compiled and later else Look.at(self.system, self.method, self.M, outcome, later, self.both)

    def _may_be_rescued(self) -> bool:
        bk, compiled = self.system.bk, self.system.compiled
        return bk.can_rescue() and not (compiled and self.on_failure == "nan")

    def _switched_to_amg(self, outcome: Outcome, switch_after: int) -> Outcome:
        """Go on from x on the host, with classical AMG, where multigrid on grids has used up its iterations."""
        system = self.system
        limit = min(system.limits.most - switch_after, _MOST_ON_HOST)
        settings = self._settings(self.method)._replace(limits=Limits(((limit,),)))
        try:
            return continued_on_host(system, settings, outcome, self.monitor, partial(amg_after_multigrid, M=self.M))
        except (UnsupportedOperation, NonlinearError):
            return outcome

    def _climbed(self, outcome: Outcome, fallback: Fallback) -> Outcome | None:
        system = self.system
        try:
            return rescued_on_host(system, self._settings(fallback.method), outcome, self.monitor, fallback)
        except (UnsupportedOperation, NonlinearError):  # its entries cannot be found, so the first failure stands
            return None

    def made_by(self, taken: int | None = None) -> tuple[MadeBy, ...]:
        """Return what may make x, in the order of `Rung`; only the method where no other can follow.

        Args:
            taken: iterations before factors took over; None: those that they cost.
        """
        system, name, fallback = self.system, self.method.name, self.fallback
        first = MadeBy(name, self.method, self.M.kind if isinstance(self.M, Preconditioner) else None)
        if (fallback is None and not self.may_switch) or (system.compiled and not self._may_be_rescued()):
            return (first,)
        amg = f"{name} (with classical AMG after {self.switch_after} iterations with multigrid)"
        second = first if self.switch_after is None else MadeBy(amg, self.method, "amg")
        if fallback is None:
            return first, second
        taken = fallback.after if taken is None else taken
        whys = f"after {name} had failed", f"after {name} had taken {taken} iterations"
        return first, second, *(MadeBy(f"{fallback.name} ({why})", fallback.method, None) for why in whys)

    def result(
        self, outcome: Outcome, sensitivity: Any = None, made_by: tuple[MadeBy, ...] | None = None
    ) -> SolveResult:
        """The outcome in the shapes of the user's arrays.

        Args:
            made_by: of the first attempt, where this one took over.
        """
        system, M = self.system, self.M
        bk, layout = system.bk, system.layout
        lead = (len(system.limits),) if len(system.limits) > 1 else ()
        outcome = outcome if bk.communicator is None else replicated(bk, outcome)
        if system.several and not lead:
            outcome = Outcome(*(() if isinstance(a, tuple) else bk.reshape(a, (1, *a.shape)) for a in outcome))
            lead = (1,)
        if system.cut is not None and not lead:
            outcome = outcome._replace(x=system.spread_rows(outcome.x), residual=system.spread_rows(outcome.residual))
        shape = (*lead, *layout.batch)
        status, steps = bk.reshape(outcome.status, shape), bk.reshape(outcome.steps, shape)
        may_be_singular = self.method.factorises or self.fallback is not None or system.null is not None
        singular = bk.reshape(outcome.singular, shape) >= int(Singularity.SINGULAR) if may_be_singular else steps < 0
        made_by, rung = made_by or self.made_by(), None
        if len(made_by) > 1:
            rung = bk.reshape(outcome.rung, shape)
            if bk.is_concrete(rung) and not (system.compiled or bk.compiled(rung)):
                numbers = np.unique(bk.to_numpy(rung))
                made_by, rung = ((made_by[numbers[0]],), None) if len(numbers) == 1 else (made_by, rung)
        kind, reason = (M.kind, M.reason) if isinstance(M, Preconditioner) else (None, None)
        why = self.why if reason is None else f"{self.why}; {kind}: {reason}"
        if self.method.names_provider:
            why += provider_note(M)
        return SolveResult(
            x=layout.unflatten(bk, outcome.x, lead),
            residual=layout.unflatten(bk, outcome.residual, lead),
            residual_norm=bk.reshape(outcome.norm, shape),
            tolerance=bk.reshape(outcome.bound, shape),
            attainable=bk.reshape(outcome.attainable, shape),
            null_part=bk.reshape(outcome.null_part, shape),
            consistent=bk.reshape(outcome.consistent, shape) > 0,
            iterations=steps,
            function_evaluations=bk.reshape(outcome.products, shape),
            converged=status == int(Status.CONVERGED),
            diverged=status == int(Status.DIVERGED),
            status=status,
            singular=singular,
            history=None if isinstance(outcome.history, tuple) else self._history(outcome.history, steps, lead),
            _rung=rung,
            least_squares=system.least_squares,
            checkpoints=system.several,
            _made_by=made_by,
            _why=why,
            _parts=bk.communicator is not None,
            _time_limit=None if self.monitor is None else self.monitor.time_limit,
            _sensitivity=sensitivity,
        )

    def _history(self, lines: Array, steps: Array, lead: tuple[int, ...]) -> Array:
        """`(*lead, iterations + 1, *batch)`, cut after the last iteration where that is known."""
        bk, system = self.system.bk, self.system
        if not system.compiled and not bk.compiled(steps):
            longest = int(np.max(bk.to_numpy(steps), initial=0)) + 1
            lines = lines[..., :longest, :]
        return bk.reshape(lines, (*lead, int(lines.shape[-2]), *system.layout.batch))


def _presented(system: System, in_numpy: bool, rows: np.ndarray) -> Any:
    """x of rows of NumPy as the result has it, in memory of its own."""
    bk, layout = system.bk, system.layout
    found, start = [], 0
    for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True):
        own = Layout(layout.batch, (shape,), (dtype,), axis=layout.axis)
        found.append(np.array(own.unflatten(get_backend("numpy"), rows[:, start : start + own.size])))
        start += own.size
    if not (in_numpy or bk.on_host):
        like = None if bk.compiled(system.like) else system.like
        found = [bk.in_host_call(leaf, like) for leaf in found]
    return found[0] if layout.structure is None else bk.unleaves(layout.structure, found)
