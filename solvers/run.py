"""Run a method on a problem: in the library itself, compiled once where that pays, or on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..backends import Array, Backend, get_backend, real_dtype
from ..sparse import Operator
from .derivatives.implicit import ImplicitSolve
from .iteration.driver import Iteration, Outcome
from .iteration.method import Method
from .methods.cg import CG
from .methods.direct import Direct
from .setup.nullspace import projection
from .setup.problem import Problem


class _Settings(NamedTuple):
    """What a compiled solve depends on besides arrays; hashable."""

    bk: Backend
    method: Method
    limits: tuple[int, ...]
    history: bool


def run(
    problem: Problem,
    method: Method,
    M: Operator | None,
    history: bool,
    report: Callable[..., None] | None,
    guarded: Callable[[Problem, Outcome, str], Outcome],
) -> Outcome:
    """The outcome; with a first axis for checkpoints if the problem has several limits.

    `guarded(problem, outcome, name)` sees to failures of solves that happen later, or several times: in compiled
    functions, and for derivatives.
    """
    if not problem.is_implicit:
        return _run(problem, method, M, history, report)
    system = derivable(problem, method, M, history, report, guarded)
    x, rest = problem.bk.implicit_solve(system, problem.b)
    lines = (problem.bk.matrix_transpose(rest[-1]),) if history else ((),)
    return Outcome(*(x, *rest[: len(Outcome._fields) - 2], *lines))


def derivable(
    problem: Problem,
    method: Method,
    M: Operator | None,
    history: bool,
    report: Callable[..., None] | None,
    guarded: Callable[[Problem, Outcome, str], Outcome],
) -> ImplicitSolve:
    """The solve with what its derivatives need; arguments as of `run`."""

    def solve(this: Problem, M: Operator | None, derived: bool, transposed: bool) -> Outcome:
        if this.layout is not problem.layout:  # more systems than the method was asked about
            method.check(this.A, M)
        # JAX wants the same outputs of all solves
        recorded = history and not (derived and problem.bk.explicit_derivatives)
        outcome = _run(this, method, M, recorded, None if derived else report)
        if not derived and not problem.compiled:
            return outcome  # whose failure may lead to another method
        name = "the backward solve of " if transposed else "the solve for a derivative of " if derived else ""
        return guarded(this, outcome, name + method.name)

    if isinstance(method, Direct) and problem.layout.size and not (problem.compiled and problem.bk.is_eager):
        with problem.bk.quiet():  # one factorisation for the solve and its derivatives
            M = method.setup(problem.bk, problem.A, M)
    return ImplicitSolve.of(problem, M, method.needs_hermitian, solve)


def _run(
    problem: Problem, method: Method, M: Operator | None, history: bool, report: Callable[..., None] | None
) -> Outcome:
    if problem.layout.size == 0:
        method = CG()  # nothing to factorise
    settings = _Settings(problem.bk, method, problem.limits, history)
    if method.on_host and problem.bk.name != "numpy":
        return _on_host(problem, settings, M, report)
    A, rest = problem.A, (problem.b, problem.x0, problem.rtol, problem.atol)
    if problem.bk.compiles_solves and not problem.compiled and problem.null_basis is None and report is None:
        A, M = A.as_container(), None if M is None else M.as_container()
        if A.is_container and (M is None or M.is_container):
            return problem.bk.compile(_solve, ("settings",))(A, M, *rest, settings=settings)
    project = projection(problem.null_basis, problem.bk, problem.like)
    return _solve(A, M, *rest, settings=settings, project=project, report=report)


def _solve(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    settings: _Settings,
    project: Callable[[Array], Array] = lambda v: v,
    report: Callable[..., None] | None = None,
) -> Outcome:
    bk, method, limits, history = settings
    with bk.quiet():
        inverse = method.setup(bk, A, M)
    outcomes = Iteration(bk, method, A, inverse, b, project, report).run(x0, rtol, atol, limits, history)
    if len(outcomes) == 1:
        return outcomes[0]
    stacked = {field: bk.stack([getattr(o, field) for o in outcomes]) for field in Outcome._fields[:-1]}
    longest = outcomes[-1].history
    lines: Any = () if not history else bk.stack([_lines(bk, o.history, longest) for o in outcomes])
    return Outcome(**stacked, history=lines)


def _lines(bk: Backend, history: Array, longest: Array) -> Array:
    """A history filled up with NaN to the length of the longest."""
    missing = int(longest.shape[0]) - int(history.shape[0])
    if not missing:
        return history
    return bk.concat([history, bk.full((missing, int(history.shape[1])), np.nan, bk.dtype(history), history)], 0)


def _on_host(problem: Problem, settings: _Settings, M: Operator | None, report: Callable[..., None] | None) -> Outcome:
    """The whole solve as one call of the host, which returns the outcome's arrays."""
    bk, host = problem.bk, get_backend("numpy")
    matrix, make_matrix = problem.A.for_host()
    inverse, make_inverse = M.for_host() if M is not None else ((), lambda _: None)
    start = () if problem.x0 is None else (problem.x0,)
    cut = (len(matrix), len(matrix) + len(inverse))
    made: list[Any] = []

    def on_host(*values: np.ndarray) -> Outcome:
        if not made or matrix or inverse:  # an operator without arrays is the same in every call
            made[:] = [make_matrix(values[: cut[0]]), make_inverse(values[cut[0] : cut[1]])]
        b, rtol, atol, *x0 = (np.array(v) for v in values[cut[1] :])
        project = projection(problem.null_basis, host, b)
        found = _solve(
            made[0], made[1], b, x0[0] if x0 else None, rtol, atol, settings._replace(bk=host), project, report
        )
        return found if settings.history else found._replace(history=np.zeros(0, b.real.dtype))

    arrays = (*matrix, *inverse, problem.b, problem.rtol, problem.atol, *start)
    return _named(bk.host_call(on_host, _shapes(problem, settings.history), *arrays), settings.history)


def _named(arrays: tuple[Array, ...], history: bool) -> Outcome:
    values = dict(zip(Outcome._fields, arrays, strict=True))
    return Outcome(**values if history else values | {"history": ()})


def _shapes(problem: Problem, history: bool) -> list[tuple[tuple[int, ...], np.dtype]]:
    bk, (systems, n) = problem.bk, (problem.layout.systems, problem.layout.size)
    lead = (len(problem.limits),) if len(problem.limits) > 1 else ()
    real, integer = real_dtype(bk.dtype(problem.b)), np.dtype(np.int32)
    vector, scalar = (*lead, systems, n), (*lead, systems, 1)
    lines = (*lead, problem.limits[-1] + 1, systems) if history else (0,)
    kinds = {"x": (vector, bk.dtype(problem.b)), "residual": (vector, bk.dtype(problem.b)), "norm": (scalar, real),
             "bound": (scalar, real), "history": (lines, real)}  # fmt: skip
    return [kinds.get(field, (scalar, integer)) for field in Outcome._fields]
