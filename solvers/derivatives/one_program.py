"""Where a transformation runs eagerly in a library that compiles: one program for a solve and its derivatives.

`jax.grad` outside of `jit` runs each operation by itself, and would compile the loops of a solve again in every call. A
compiled function is differentiated once, and what that gives is compiled once, however often it is called.
"""

from __future__ import annotations

from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Layout, Operator
from ..attempt import Attempt
from ..iteration.limits import Limits
from ..iteration.method import Method
from ..iteration.outcome import Outcome
from ..setup.problem import Problem
from .implicit import ImplicitSolve


class _Known(NamedTuple):
    """What a differentiated solve depends on besides arrays; hashable."""

    bk: Backend
    method: Method
    layout: Layout
    limits: Limits
    several: bool
    by_default: bool
    has_atol: bool
    least_squares: bool
    on_failure: str
    history: bool
    fallback: Method | None
    both: bool


def differentiated(attempt: Attempt) -> Outcome:
    """What the attempt finds, with derivatives of x."""
    problem, A, M = attempt.problem, attempt.problem.A, attempt.M
    bk = problem.bk
    if bk.compiles_solves and not bk.in_program() and attempt.report is None:
        A, M = A.as_container(), None if M is None else M.as_container()
        if A.is_container and (M is None or (M.is_container and M.bk is bk)):  # factors of the host are none to JAX
            known = _Known(
                bk, attempt.method, problem.layout, problem.limits, problem.several, problem.by_default,
                problem.has_atol, problem.least_squares, attempt.on_failure, attempt.history,
                attempt.fallback, problem.both,
            )  # fmt: skip
            arrays = (problem.b, problem.x0, problem.rtol, problem.atol)
            null = None if problem.null is None else problem.null.as_container()
            return bk.compile(_program, ("known",))(A, M, *arrays, null, known=known)
    return ImplicitSolve.of(attempt).outcome()


def _program(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    known: _Known,
) -> Outcome:
    problem = Problem(
        bk=known.bk, A=A, b=b, x0=x0, layout=known.layout, like=b, rtol=rtol, atol=atol, by_default=known.by_default,
        has_atol=known.has_atol, limits=known.limits, several=known.several, null=null, both=known.both, compiled=True,
        least_squares=known.least_squares,
    )  # fmt: skip
    attempt = Attempt(problem, known.method, M, known.on_failure, known.history, fallback=known.fallback)
    return ImplicitSolve.of(attempt).outcome()
