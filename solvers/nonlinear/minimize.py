"""`minimize`: the one function that minimises f(x)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_on_failure, without_compilers
from ...backends.profile.spans import span
from ...backends.settings import QUIET, checked_policy, run_for
from ...sparse import Layout
from ..judge import raise_or_warn, with_nan
from ..names import with_our_names
from ..read.arguments import tolerance
from ..results.result import outcome_facts
from ..run.outcome import Status
from .arguments import box_of, checked_limit, checked_method, unknowns
from .array_result import register_result
from .cut_derivatives import refuse_cut_gradient
from .describe import describe_minimum
from .equations import NonlinearEquations
from .gradient_descent import descend
from .implicit import ImplicitRoot
from .linear_solver import LinearSolver
from .minimize_result import MinimizeResult
from .objective import Minimum, Objective
from .scipy_runs import SCIPY_METHODS
from .search_by_scipy import search_by_scipy
from .user_function import UserFunction

_MOST_STEPS = 1000
_WITH_BOUNDS = ("L-BFGS-B", "GD")


@with_our_names
def minimize(
    f: Callable[..., Any],
    x0: Any,
    *,
    args: Sequence[Any] = (),
    method: str = "L-BFGS-B",
    bounds: Any = None,
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | None = None,
    linear_solver: Any = None,
    batch_ndim: int = 0,
    on_failure: str | None = None,
    history: bool = False,
) -> MinimizeResult:
    """Find a local minimum of `f(x)`, from its values and its gradient.

    Converged means `|gradient| <= max(rtol |gradient at x0|, atol)` in the 2-norm, whatever the method says; of what
    bounds hold back nothing is counted. Where rtol is not given, an x counts too where rounding of f hides what is left
    to gain (`MinimizeResult.attainable`). Every system of a batch has its own search, status and history.

    Args:
        f: a differentiable function of real numbers, called as `f(x, *args)` with all systems at once, batch axes in
            front; returns one number for each system, shaped as the batch axes.
        x0: where to begin: an array of floats of any shape, or a container of arrays.
        args: further arguments of f.
        method: "L-BFGS-B", "BFGS" or "CG", which are SciPy's and run on the host, or "GD", steepest descent with steps
            that adapt, which can be compiled. Each system has its own run of SciPy (in a thread), and f is called once
            for the whole batch.
        bounds: `(lower, upper)`, each a number, an array that broadcasts to x0, or None; of "L-BFGS-B" and "GD".
        rtol: relative tolerance below 1, one number or one per system; if None 1e-3 in single and 1e-6 in double
            precision, or what the precision can reach.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of steps, 1000 if None.
        linear_solver: how `linear_solve` solves with the Hessian, for derivatives of x; see `solve_nonlinear`.
        batch_ndim: how many leading axes of x0 are independent systems.
        on_failure: "raise", "warn", "status" or "nan", as in `linear_solve`.
        history: record values of f, and x, of each step.

    x has exact derivatives with respect to args and what f closes over, by the implicit function theorem: JAX to every
    order, PyTorch and TensorFlow to the third. `value` and `gradient` follow x; the other numbers of the result have
    none, nor are there any by x0, the bounds and the tolerances. Derivatives of systems that failed are NaN.

    Returns:
        MinimizeResult; `x` has the type, shape, dtype and device of x0.

    Raises:
        NotConverged, Diverged: the tolerance was not reached (`.result` has what was); a compiled function raises its
            library's error with the same text when it runs.
        TypeError: also for a method of SciPy in a compiled function.
        ValueError, NoBackendFound, UnsupportedOperation: an input that cannot be used, before any step.

    Cost: an evaluation of f and its gradient for each trial step. NumPy has no derivatives: central differences take
    two calls of f for each unknown of one system, of which there may be 200.

    Examples:
        >>> import numpy as np, krylix
        >>> result = krylix.minimize(lambda x: ((x - 3) ** 2).sum(), np.zeros(2), bounds=(None, 2.0))
        >>> np.round(result.x, 4)
        array([2., 2.])
    """
    policy = checked_policy(get_on_failure() if on_failure is None else on_failure)
    method = checked_method("minimize", method, (*SCIPY_METHODS, "GD"))
    if bounds is not None and method not in _WITH_BOUNDS:
        raise ValueError(f"{method} takes no bounds; use method={' or '.join(map(repr, _WITH_BOUNDS))}.")
    bk, x0, layout, dtype = unknowns("f", f, x0, args, batch_ndim)
    tolerances = (
        tolerance(bk, rtol, 1e-3 if dtype.itemsize == 4 else 1e-6, "rtol", layout, x0, dtype),
        tolerance(bk, atol, 0.0, "atol", layout, x0, dtype),
    )
    search = _MinimizeCall(
        method, checked_limit(max_iter, _MOST_STEPS), bounds is not None, rtol is None, bool(history),
        LinearSolver.of(linear_solver), policy,
    )  # fmt: skip
    user, box = UserFunction(bk, f, tuple(args), layout, dtype), box_of(bk, bounds, layout, x0)
    with span("solve", "minimize", facts=outcome_facts) as done:
        return done(without_compilers(run_for)(policy, search.result, user, x0, *map(bk.constant, tolerances), *box))


minimize._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile: make a graph break of the call


@dataclass(frozen=True)
class _MinimizeCall:
    """All but arrays and the function; hashable where the settings of the linear solver are."""

    method: str
    max_iter: int
    bounded: bool
    by_default: bool
    history: bool
    linear_solver: LinearSolver
    policy: str

    def result(
        self, user: UserFunction, x: Array, rtol: Array, atol: Array, lower: Array, upper: Array
    ) -> MinimizeResult:
        bk = user.bk
        register_result(bk, MinimizeResult)
        user = user.explicit(x)  # one trace, also for derivatives
        with bk.errstate():
            constants = user.with_constants()
            objective = Objective(constants, lower, upper)
            if self.method == "GD":
                found = constants.compiled(_descended, x, rtol, atol, lower, upper, known=self)
            else:
                found = search_by_scipy(objective, x, rtol, atol, self.method, self.max_iter, self.history)
                if self.by_default:
                    found = objective.to_precision(found)
            if not bk.compiled(found.x):
                refuse_cut_gradient(objective, found.x, found.gradient)
        if bk.has_derivatives and (not bk.has_root_rule or bk.compiled(found.x, user.args)):
            x, value, gradient = user.compiled(
                _with_derivatives, found.x, found.value, found.gradient, found.status, lower, upper, known=self
            )
            found = found._replace(x=x, value=value, gradient=gradient)
        return self._told(bk, user.layout, found)

    def _told(self, bk: Backend, layout: Layout, found: Minimum) -> MinimizeResult:
        def each(values: Array) -> Array:
            return bk.reshape(values, layout.batch)

        x = with_nan(bk, found.x, found.status) if self.policy == "nan" else found.x
        lines = path = None
        if self.history:
            count = int(found.history.shape[0])
            lines = bk.reshape(found.history, (count, *layout.batch))
            path = layout.unflatten(bk, bk.permute_dims(found.path, (1, 0, 2)), (count,))
        result = MinimizeResult(
            layout.unflatten(bk, x), each(found.value), layout.unflatten(bk, found.gradient), each(found.norm),
            each(found.tolerance), each(found.attainable), each(found.steps), each(found.evaluations),
            each(found.status == int(Status.CONVERGED)), each(found.status == int(Status.DIVERGED)),
            each(found.status), lines, path, self.method,
        )  # fmt: skip
        if self.policy in QUIET:
            return result

        def say(*numbers: np.ndarray) -> str:
            return describe_minimum(self.method, *numbers)

        return raise_or_warn(bk, result, result.end_state(), self.policy, say, f"minimize, {self.method}")


def _descended(user: UserFunction, known: _MinimizeCall, x: Array, rtol: Array, atol: Array, *box: Array) -> Minimum:
    objective = Objective(user, *box)
    return descend(objective, objective.inside(x), rtol, atol, known.max_iter, known.by_default, known.history)


def _with_derivatives(
    user: UserFunction, known: _MinimizeCall, x: Array, value: Array, gradient: Array, status: Array, *box: Array
) -> tuple[Array, Array, Array]:
    """x, with derivatives as the root of the gradient in the unknowns that no bound holds; f and its gradient there."""
    bk, objective = user.bk, Objective(user, *box)
    free, failed = objective.is_free(x, gradient), status != int(Status.CONVERGED)

    def residual(rows: Array) -> Array:
        return bk.where(free, objective.gradient(rows), rows - x)

    equations = NonlinearEquations(bk, residual, user.layout).with_rule(x)
    x = ImplicitRoot(equations, known.linear_solver, failed, known.policy).of(x)
    value = _following(bk, value, bk.reshape(objective.values(x), (-1, 1)), failed)
    if known.bounded:  # of free unknowns it stays zero
        gradient = _following(bk, gradient, bk.where(free, gradient, objective.gradient(x)), failed)
    return x, value, gradient


def _following(bk: Backend, found: Array, again: Array, failed: Array) -> Array:
    """What was found, to the last digit, with the derivatives of the same computed again."""
    change = again - bk.constant(again)
    return bk.without_derivatives(found + bk.where(bk.isfinite(change), change, bk.zeros_like(change)), failed)
