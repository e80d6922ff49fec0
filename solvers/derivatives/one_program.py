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
from ..iteration_budget import Fallback
from ..methods.method import Method
from ..read.system import System
from ..run.outcome import Outcome
from .implicit import ImplicitSolve

_NO_ARRAYS: dict[str, Any] = dict.fromkeys(("A", "b", "x0", "like", "rtol", "atol", "null", "given", "source"))


def differentiated(attempt: Attempt) -> Outcome:
    """What the attempt finds, with derivatives of x."""
    system, A, M = attempt.system, attempt.system.A, attempt.M
    bk = system.bk
    if bk.compiles_solves and not bk.in_program() and attempt.monitor is None:
        A, M = A.as_container(), None if M is None else M.as_container()
        if A.is_container and (M is None or (M.is_container and M.bk is bk)):  # factors of the host are none to JAX
            arrays = (system.b, system.x0, system.rtol, system.atol)
            null = None if system.null is None else system.null.as_container()
            rest = replace(system, **_NO_ARRAYS, compiled=True)
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
    known: tuple[System, Method, str, bool, Fallback | None, bool],
) -> Outcome:
    """`known`: what the solve depends on besides arrays; hashable."""
    rest, method, on_failure, history, fallback, may_switch = known
    system = replace(rest, A=A, b=b, x0=x0, like=b, rtol=rtol, atol=atol, null=null)
    attempt = Attempt(system, method, M, on_failure, history, fallback=fallback, may_switch=may_switch)
    return ImplicitSolve.of(attempt).outcome()
