"""Where a transformation runs eagerly in a library that compiles: one program for a solve and its derivatives.

`jax.grad` outside of `jit` runs each operation by itself, and would compile the loops of a solve again in every call. A
compiled function is differentiated once, and what that gives is compiled once, however often it is called.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...backends import Array
from ...sparse import Operator
from ..attempt import Attempt
from ..iteration.method import Method
from ..iteration.outcome import Outcome
from ..setup.iteration_budget import Fallback
from ..setup.problem import Problem
from .implicit import ImplicitSolve

_NO_ARRAYS: dict[str, Any] = dict.fromkeys(("A", "b", "x0", "like", "rtol", "atol", "null", "given", "source"))


def differentiated(attempt: Attempt) -> Outcome:
    """What the attempt finds, with derivatives of x."""
    problem, A, M = attempt.problem, attempt.problem.A, attempt.M
    bk = problem.bk
    if bk.compiles_solves and not bk.in_program() and attempt.monitor is None:
        A, M = A.as_container(), None if M is None else M.as_container()
        if A.is_container and (M is None or (M.is_container and M.bk is bk)):  # factors of the host are none to JAX
            arrays = (problem.b, problem.x0, problem.rtol, problem.atol)
            null = None if problem.null is None else problem.null.as_container()
            rest = replace(problem, **_NO_ARRAYS, compiled=True)
            told = attempt.on_failure, attempt.history, attempt.fallback, attempt.may_switch
            known = rest, attempt.method, *told
            return bk.compile_if_faster(_program, ("known",))(A, M, *arrays, null, known=known)
    return ImplicitSolve.of(attempt).outcome()


def _program(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    known: tuple[Problem, Method, str, bool, Fallback | None, bool],
) -> Outcome:
    """`known`: what the solve depends on besides arrays; hashable."""
    rest, method, on_failure, history, fallback, may_switch = known
    problem = replace(rest, A=A, b=b, x0=x0, like=b, rtol=rtol, atol=atol, null=null)
    attempt = Attempt(problem, method, M, on_failure, history, fallback=fallback, may_switch=may_switch)
    return ImplicitSolve.of(attempt).outcome()
