"""One method on one problem, with its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..backends import Array
from ..sparse import Operator
from .derivatives.sensitivity import Sensitivity
from .iteration.driver import Outcome
from .iteration.method import Method
from .iteration.progress import make_report
from .iteration.status import Status
from .preconditioners import Preconditioner
from .results.failure import apply_policy
from .results.result import SolveResult, register_result
from .run import run
from .setup.problem import Problem
from .setup.requirements import check_requirements

_SEVERAL_LIMITS = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. Give one "
    "limit for the solve that is to be differentiated."
)


class Options(NamedTuple):
    """What a user wants besides the solution."""

    on_failure: str
    history: bool = False
    progress: bool | Callable[[int, float, float], None] = False


def solve_problem(
    problem: Problem, method: Method, M: Operator | None, fallback: Method | None, options: Options
) -> SolveResult:
    """The result, after what `on_failure` says; M is a preconditioner, or a factorisation made before.

    Raises:
        NotConverged, Diverged, ValueError, TypeError, UnsupportedOperation: see `linear_solve`.
    """
    bk = problem.bk
    register_result(bk)
    result = _attempt(problem, method, M, options)
    known = not problem.compiled
    if fallback is not None and known and not np.all(bk.to_numpy(result.status) == Status.CONVERGED):
        second = _attempt(problem, fallback, None, options)
        result = replace(second, method=f"{second.method} (after {result.method} had failed)")
    if not (problem.compiled and problem.is_implicit):  # the solve of a compiled function saw to its failure by itself
        result = apply_policy(bk, result, options.on_failure)
    if problem.is_tracked and not problem.is_implicit:
        sources = (problem.b, *bk.take_apart(problem.A.as_container())[0])
        return replace(result, x=bk.refuse_derivatives(result.x, _SEVERAL_LIMITS, RuntimeError, sources))
    return result


def _attempt(problem: Problem, method: Method, M: Operator | None, options: Options) -> SolveResult:
    check_requirements(problem, method, M)

    def guarded(this: Problem, outcome: Outcome, name: str) -> Outcome:
        result = replace(_result(this, method, M, outcome), method=name, x=outcome.x)
        return outcome._replace(x=apply_policy(this.bk, result, options.on_failure).x)

    outcome = run(problem, method, M, options.history, make_report(options.progress, method.name), guarded)
    sensitivity = Sensitivity.of(problem, method, M, outcome, guarded) if problem.bk.name == "numpy" else None
    result = _result(problem, method, M, outcome, sensitivity)
    if problem.given is None:
        return result
    rows = outcome.x[None] if problem.several and len(problem.limits) == 1 else outcome.x
    return problem.given.restore(problem.bk, result, rows, problem.null_basis is not None)


def _result(
    problem: Problem, method: Method, M: Operator | None, outcome: Outcome, sensitivity: Sensitivity | None = None
) -> SolveResult:
    bk, layout = problem.bk, problem.layout
    lead = (len(problem.limits),) if len(problem.limits) > 1 else ()
    if problem.several and not lead:
        outcome = Outcome(*(() if isinstance(a, tuple) else a[None] for a in outcome))
        lead = (1,)

    def per_system(values: Array) -> Array:
        return bk.reshape(values, (*lead, *layout.batch))

    status = per_system(outcome.status)
    steps = per_system(outcome.steps)
    return SolveResult(
        x=layout.unflatten(bk, outcome.x, lead),
        residual=layout.unflatten(bk, outcome.residual, lead),
        residual_norm=per_system(outcome.norm),
        tolerance=per_system(outcome.bound),
        iterations=steps,
        function_evaluations=per_system(outcome.products),
        converged=status == int(Status.CONVERGED),
        diverged=status == int(Status.DIVERGED),
        status=status,
        history=None if isinstance(outcome.history, tuple) else _history(problem, outcome.history, steps, lead),
        method=method.name,
        preconditioner=M.kind if isinstance(M, Preconditioner) else None,
        least_squares=problem.given is not None,
        _sensitivity=sensitivity,
    )


def _history(problem: Problem, lines: Array, steps: Array, lead: tuple[int, ...]) -> Array:
    """`(*lead, iterations + 1, *batch)`, cut after the last iteration where that is known."""
    bk = problem.bk
    if not problem.compiled and not bk.compiled(steps):
        longest = int(np.max(bk.to_numpy(steps), initial=0)) + 1
        lines = lines[..., :longest, :]
    return bk.reshape(lines, (*lead, int(lines.shape[-2]), *problem.layout.batch))
