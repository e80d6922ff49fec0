"""`solve_nonlinear`: the one function that solves f(x) = 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...backends import Array, Backend, get_on_failure, without_compilers
from ...backends.profile.spans import span
from ...backends.settings import QUIET, checked_policy, run_for
from ...sparse import Layout
from ..judge import raise_or_warn, with_nan
from ..names import with_our_names
from ..read.arguments import default_rtol, tolerance
from ..results.result import outcome_facts
from ..run.outcome import Status
from .arguments import checked_limit, checked_method, unknowns
from .array_result import register_result
from .describe import describe_equations
from .equations import NonlinearEquations, residual_of
from .implicit import ImplicitRoot
from .linear_solver import LinearSolver
from .newton import Newton, NewtonState
from .nonlinear_result import NonlinearResult
from .user_function import UserFunction

_MOST_STEPS = 50


@with_our_names
def solve_nonlinear(
    f: Callable[..., Any],
    x0: Any,
    *,
    args: Sequence[Any] = (),
    method: str = "Newton",
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | None = None,
    linear_solver: Any = None,
    batch_ndim: int = 0,
    on_failure: str | None = None,
    history: bool = False,
) -> NonlinearResult:
    """Solve `f(x) = 0` by Newton's method with a line search.

    Converged means `|f(x)| <= max(rtol |f(x0)|, atol)` in the 2-norm, for the returned x. Where rtol is not given, an x
    counts too whose `|f(x)|` is no more than what rounding x changes it by, as a start that is a solution already
    (`NonlinearResult.attainable`). Every system of a batch has its own steps, status and history.

    Args:
        f: a differentiable function, as many real equations as unknowns: called as `f(x, *args)` with all systems at
            once, batch axes in front; returns arrays shaped as x0.
        x0: initial guess: an array of floats of any shape, or a container of arrays.
        args: further arguments of f.
        method: "Newton".
        rtol: relative tolerance below 1, one number or one per system; if None 1e-5 in single and 1e-10 in double
            precision, or what the precision can reach.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of steps, 50 if None.
        linear_solver: how `linear_solve` solves for a step: a method, or a dictionary of its arguments `method`,
            `preconditioner`, `rtol`, `atol`, `max_iter`, `nullspace` and `matrix_offset`. If None its own choice, with
            a dense Jacobian for up to 200 unknowns; for more a sparse matrix that is traced from f, or for a batch, or
            what cannot be traced, products with the Jacobian.
        batch_ndim: how many leading axes of x0 are independent systems.
        on_failure: "raise", "warn", "status" or "nan", as in `linear_solve`.
        history: record residual norms.

    x has exact derivatives with respect to args and what f closes over, by the implicit function theorem: JAX to every
    order, PyTorch and TensorFlow to the third; x0 and the tolerances have none. Derivatives of systems that failed are
    NaN.

    Returns:
        NonlinearResult; `x` has the type, shape, dtype and device of x0.

    Raises:
        NotConverged, Diverged: the tolerance was not reached (`.result` has what was); a compiled function raises its
            library's error with the same text when it runs.
        ValueError, TypeError, NoBackendFound, UnsupportedOperation: an input that cannot be used, before any step.

    Cost: for each step a Jacobian, a linear solve and 1 call of f, and 1 for each halving of the step. NumPy has no
    derivatives: forward differences take a call of f for each unknown of one system, of which there may be 200.

    Examples:
        >>> import numpy as np, krylix
        >>> roots = krylix.solve_nonlinear(lambda x, c: x**2 - c, np.ones(2), args=(np.array([4.0, 9.0]),)).x
        >>> np.round(roots, 6)
        array([2., 3.])
    """
    policy = checked_policy(get_on_failure() if on_failure is None else on_failure)
    checked_method("solve_nonlinear", method, ("Newton",))
    bk, x0, layout, dtype = unknowns("f", f, x0, args, batch_ndim)
    solver = LinearSolver.of(linear_solver)
    limit = checked_limit(max_iter, _MOST_STEPS)
    tolerances = (
        tolerance(bk, rtol, default_rtol(dtype), "rtol", layout, x0, dtype),
        tolerance(bk, atol, 0.0, "atol", layout, x0, dtype),
    )
    newton = Newton(limit, rtol is None, bool(history), solver, "nan" if policy == "nan" else "status")
    user = UserFunction(bk, f, tuple(args), layout, dtype)
    with span("solve", "solve_nonlinear", facts=outcome_facts) as done:
        call = _NewtonCall(newton, policy)
        return done(without_compilers(run_for)(policy, call.result, user, x0, *map(bk.constant, tolerances)))


solve_nonlinear._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile: make a graph break of the call


@dataclass(frozen=True)
class _NewtonCall:
    """All but arrays and the function; hashable where the settings of the linear solver are."""

    newton: Newton
    policy: str

    def result(self, user: UserFunction, x: Array, rtol: Array, atol: Array) -> NonlinearResult:
        register_result(user.bk, NonlinearResult)
        return self._told(user.bk, user.layout, *user.compiled(_run, x, rtol, atol, known=self))

    def found(self, user: UserFunction, x: Array, rtol: Array, atol: Array) -> tuple[Any, ...]:
        """What Newton's method finds, x with derivatives."""
        bk = user.bk
        with bk.errstate():
            constants = NonlinearEquations(bk, residual_of(user.with_constants()), user.layout).with_rule(x)
            state, bound, attainable = self.newton.run(constants, x, rtol, atol)
        failed = state.status != int(Status.CONVERGED)
        equations = NonlinearEquations(bk, residual_of(user), user.layout, constants.reverse)
        root = ImplicitRoot(equations, self.newton.linear_solver, failed, self.policy).of(state.x)
        return state._replace(x=root), bound, attainable

    def _told(
        self, bk: Backend, layout: Layout, state: NewtonState, bound: Array, attainable: Array
    ) -> NonlinearResult:
        def each(values: Array) -> Array:
            return bk.reshape(values, layout.batch)

        x = with_nan(bk, state.x, state.status) if self.policy == "nan" else state.x
        lines = None
        if self.newton.history:
            lines = bk.reshape(state.history, (self.newton.max_iter + 1, *layout.batch))
        result = NonlinearResult(
            layout.unflatten(bk, x), layout.unflatten(bk, state.f), each(state.norm), each(bound), each(attainable),
            each(state.steps), each(state.evaluations), each(state.status == int(Status.CONVERGED)),
            each(state.status == int(Status.DIVERGED)), each(state.status), lines, "Newton",
        )  # fmt: skip
        if self.policy in QUIET:
            return result
        return raise_or_warn(bk, result, result.end_state(), self.policy, describe_equations, _NAME)


_NAME = "solve_nonlinear"  # of the message in stored programs


def _run(user: UserFunction, known: _NewtonCall, x: Array, rtol: Array, atol: Array) -> tuple[Any, ...]:
    return known.found(user, x, rtol, atol)
