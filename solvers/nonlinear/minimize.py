"""`minimize`: a minimum of f(x) by SciPy's searches on the host, or by steepest descent in one loop that compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, get_on_failure, without_compilers
from ...backends.profile.spans import span
from ...backends.settings import checked_policy, run_for
from ..names import with_our_names
from ..results.on_failure import with_nan
from ..results.result import outcome_facts
from ..run.outcome import Status
from .arguments import UserFunction, box_of, check_real_array, checked_limit, checked_method, read_problem
from .equations import (
    CUTS,
    DENSE,
    LinearSolver,
    NonlinearEquations,
    implicit_root,
    magnitude,
    perturbation,
    too_many_differences,
)
from .results import MinimizeResult, register_result
from .scipy_search import SCIPY_METHODS, ScipyRun, run_all

_MOST_STEPS = 1000  # default limit, because searches without second derivatives need hundreds
_WITH_BOUNDS = ("L-BFGS-B", "GD")
_ENOUGH = 1e-4  # decrease relative to the linear model (Armijo; Nocedal and Wright, section 3.1)
_MOST_CUTS = 40  # successive reductions of a step of steepest descent
_HOST = np.dtype(np.float64)  # dtype of SciPy's searches
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _DIVERGED = map(
    int, (Status.RUNNING, Status.CONVERGED, Status.MAX_ITER, Status.STAGNATED, Status.DIVERGED)
)


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

    Converged means `|gradient| <= max(rtol |gradient at x0|, atol)` in the 2-norm for any method, without components
    that bounds block. If rtol is not given, x also counts as converged if rounding of f hides any further decrease
    (`MinimizeResult.attainable`). Each system of a batch has its own search, status and history.

    Args:
        f: a differentiable function of real numbers, called as `f(x, *args)` with all systems at once and batch axes in
            front. It returns one number for each system, in the shape of the batch axes.
        x0: start of the search: an array of floats of any shape, or a container of arrays.
        args: further arguments of f.
        method: "L-BFGS-B", "BFGS" or "CG" from SciPy, on the host, or "GD", steepest descent with adaptive steps, which
            can be compiled. With SciPy each system has its own search in a thread, and f is called once for the whole
            batch.
        bounds: `(lower, upper)` for "L-BFGS-B" and "GD", each a number, an array that broadcasts to x0, or None.
        rtol: relative tolerance below 1, one number or one per system. If None, 1e-3 in single and 1e-6 in double
            precision, or the attainable accuracy.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of steps, 1000 if None.
        linear_solver: how `linear_solve` solves with the Hessian, for derivatives of x; see `solve_nonlinear`.
        batch_ndim: number of leading axes of x0 that count independent systems.
        on_failure: "raise", "warn", "status" or "nan", as in `linear_solve`.
        history: record f and x of each step.

    x has exact derivatives with respect to args and the arrays that f closes over, by the implicit function theorem, in
    JAX of any order, in PyTorch and TensorFlow up to the third. `value` and `gradient` have those that follow from x,
    other parts of the result none. There are none with respect to x0, the bounds and the tolerances. Derivatives of
    failed systems are NaN.

    Returns:
        MinimizeResult; `x` has the type, shape, dtype and device of x0.

    Raises:
        NotConverged, Diverged: the tolerance was not reached (the result is in `.result`). Compiled functions raise an
            error of their library with the same text at run time.
        TypeError: an input has the wrong type, or a method of SciPy is used in a compiled function.
        ValueError, NoBackendFound, UnsupportedOperation: an input is invalid; raised before any step.

    Cost: an evaluation of f and its gradient for each trial step. NumPy has no derivatives, and central differences
    take two calls of f for each unknown of one system, of which 200 are allowed.

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
    user, x0, tolerances = read_problem(f, x0, args, batch_ndim, rtol, atol, _default_rtol)
    limit, solver = checked_limit(max_iter, _MOST_STEPS), LinearSolver.of(linear_solver)
    search = Search(method, limit, bounds is not None, rtol is None, bool(history), solver, policy)
    box = box_of(user.bk, bounds, user.layout, x0)
    with span("solve", "minimize", facts=outcome_facts) as done:
        return done(without_compilers(run_for)(policy, search.result, user, x0, *tolerances, *box))


def _default_rtol(dtype: np.dtype) -> float:
    return 1e-3 if dtype.itemsize == 4 else 1e-6


minimize._torchdynamo_disable = True  # type: ignore[attr-defined]  # a graph break in torch.compile


@dataclass(frozen=True)
class Search:
    """Settings of a search; hashable if those of the linear solver are.

    Attributes:
        max_iter: limit of steps.
        bounded: whether there are bounds.
        by_default: whether rtol was not given, so that attainable accuracy counts as converged.
        history: whether f and x of each step are recorded.
        linear_solver: solves with the Hessian, for derivatives.
        policy: the user's `on_failure`.
    """

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
        bk, layout = user.bk, user.layout
        register_result(bk, MinimizeResult)
        user = user.traced(x)  # once, also for derivatives
        with bk.errstate():
            constants = user.with_constants()
            objective = Objective(constants, lower, upper)
            if self.method == "GD":
                end = constants.program(_descend, self, x)(x, rtol, atol, lower, upper)
            else:
                end = search_by_scipy(objective, self, x, rtol, atol)
            if not bk.compiled(end.x):
                _refuse_cut_gradient(objective, end.x, end.gradient)
        if bk.has_derivatives and (not bk.has_root_rule or bk.compiled(end.x, user.args)):
            x, value, gradient = user.program(_with_derivatives, self, end.x)(
                end.x, end.value, end.gradient, end.status, lower, upper
            )
            end = end._replace(x=x, value=value, gradient=gradient)

        def each(values: Array) -> Array:
            return bk.reshape(values, layout.batch)

        x = with_nan(bk, end.x, end.status) if self.policy == "nan" else end.x
        lines = path = None
        if self.history:
            count = int(end.history.shape[0])
            lines = bk.reshape(end.history, (count, *layout.batch))
            path = layout.unflatten(bk, bk.permute_dims(end.path, (1, 0, 2)), (count,))
        return MinimizeResult(
            layout.unflatten(bk, x), each(end.value), layout.unflatten(bk, end.gradient), each(end.norm),
            each(end.tolerance), each(end.attainable), each(end.steps), each(end.evaluations),
            each(end.status == _CONVERGED), each(end.status == _DIVERGED),
            each(end.status), lines, path, self.method,
        ).judged(bk, self.policy, f"minimize, {self.method}")  # fmt: skip


class Minimum(NamedTuple):
    """End of a search: rows `(systems, n)` and numbers `(systems, 1)`."""

    x: Array
    value: Array
    gradient: Array
    norm: Array  # of the projected gradient
    tolerance: Array
    attainable: Array
    status: Array
    steps: Array
    evaluations: Array
    history: Any  # values `(max_iter + 1, systems)`, or ()
    path: Any  # x `(systems, max_iter + 1, n)`, or ()


@dataclass(frozen=True, eq=False)
class Objective:
    """`f(x, *args)` for `lower <= x <= upper` (rows, infinite without bounds)."""

    user: UserFunction
    lower: Array
    upper: Array

    def values(self, rows: Array) -> Array:
        """`(systems,)`, after a check that f returned one real number for each system."""
        bk, batch = self.user.bk, self.user.layout.batch
        image = self.user(rows)
        check_real_array(bk, image)
        shape = tuple(np.shape(image)) if isinstance(image, int | float) else tuple(image.shape)
        if shape != batch:
            raise ValueError(
                f"f returned an array of shape {shape}; expected {batch}, one number for each system"
                f"{' (batch_ndim axes of x0)' if batch else ''}. Sum over the other axes."
            )
        image = image if bk.is_array(image) else bk.asarray(image)
        # f may return the same array in each call.
        return bk.copy(bk.reshape(bk.astype(image, self.user.dtype), (self.user.layout.systems,)))

    def value_and_gradient(self, rows: Array) -> tuple[Array, Array]:
        """f `(systems, 1)`, and its gradient as rows."""
        bk = self.user.bk
        if not bk.has_derivatives:
            return self.values(rows)[:, None], self._by_differences(rows)

        def total(rows: Array) -> tuple[Array, Array]:
            values = self.values(rows)
            return bk.sum(values, 0), values

        _, values, gradient = bk.jacobian(total)(rows)
        return bk.reshape(values, (-1, 1)), gradient

    def gradient(self, rows: Array) -> Array:
        """The gradient in a form that can be differentiated again."""
        bk = self.user.bk
        gradient: Array = bk.jacobian(lambda rows: bk.sum(self.values(rows), 0), get_output=False)(rows)
        return gradient

    def projected(self, rows: Array, gradient: Array) -> Array:
        """Projected gradient: the step along the negative gradient, cut at the bounds, with opposite sign."""
        bk, goal = self.user.bk, rows - gradient
        cut = bk.where(goal < self.lower, rows - self.lower, gradient)
        return bk.where(goal > self.upper, rows - self.upper, cut)

    def inside(self, rows: Array) -> Array:
        rows = self.user.bk.where(rows < self.lower, self.lower, rows)
        return self.user.bk.where(rows > self.upper, self.upper, rows)

    def _by_differences(self, rows: Array) -> Array:
        """Central differences within the bounds, for libraries without derivatives."""
        bk, n = self.user.bk, rows.shape[1]
        if n > DENSE:
            raise too_many_differences(bk, n)
        gradient = np.empty_like(rows)
        step = np.cbrt(np.finfo(rows.dtype).eps) * np.maximum(np.abs(rows), 1)
        for i in range(n):
            above, below = rows.copy(), rows.copy()
            above[:, i] = np.minimum(rows[:, i] + step[:, i], self.upper[:, i])
            below[:, i] = np.maximum(rows[:, i] - step[:, i], self.lower[:, i])
            gap = above[:, i] - below[:, i]
            change = self.values(above) - self.values(below)
            gradient[:, i] = np.where(gap == 0, 0, change / np.where(gap == 0, 1, gap))
        return gradient

    def to_precision(self, end: Minimum) -> Minimum:
        """Count searches as converged that stopped at the attainable accuracy.

        The possible decrease is `|g|^2 / (2 k)`, with the curvature k along the gradient g from one evaluation. Either
        it is below the rounding of f, or g is below its change by rounding x.
        """
        bk = self.user.bk
        stopped = (end.status == _STAGNATED) | (end.status == _MAX_ITER)
        if not bk.compiled(end.x) and not bk.any(stopped):
            return end
        eps, direction = float(np.finfo(self.user.dtype).eps), self.projected(end.x, end.gradient)
        length = np.sqrt(eps) * bk.maximum(bk.norm(end.x), 0 * end.norm + 1)
        shift = length / bk.where(end.norm > 0, end.norm, 0 * end.norm + 1)
        _, other = self.value_and_gradient(end.x - shift * direction)
        curvature = bk.dot(direction, end.gradient - other) / bk.where(end.norm > 0, end.norm * length, 1)
        gain = 8 * eps * bk.abs(end.value)
        curvature = bk.where(curvature > 0, curvature, 0 * curvature)
        attainable = bk.maximum(bk.sqrt(2 * curvature * gain), 2 * eps * curvature * bk.norm(end.x))
        attainable = bk.where(stopped & bk.isfinite(attainable), attainable, 0 * attainable)
        within = stopped & (end.norm <= attainable)
        return end._replace(
            attainable=attainable,
            tolerance=bk.where(within, bk.maximum(end.tolerance, attainable), end.tolerance),
            status=bk.where(within, _CONVERGED, end.status),
            evaluations=end.evaluations + bk.where(stopped, 1, 0 * end.evaluations),
        )


def search_by_scipy(objective: Objective, search: Search, x: Array, rtol: Array, atol: Array) -> Minimum:
    """Search by SciPy, with x in arrays of the library."""
    user, like = objective.user, x
    bk = user.bk
    if bk.in_program() or not all(_has_value(bk, array) for array in (x, *bk.flatten(user.args)[0])):
        raise TypeError(
            f"minimize with method={search.method!r} runs SciPy on the host, which needs values; this call is part of "
            "a compiled, transformed or vectorised function. Use method='GD', or call minimize outside it."
        )

    def host(x: Array) -> np.ndarray:
        return np.asarray(bk.to_numpy(x)).astype(_HOST)

    def place(x: np.ndarray) -> Array:
        return bk.asarray(x, like=like)

    evaluate = user.program(_evaluate, None, x)

    def evaluated(rows: Array) -> tuple[Array, Array]:
        value, gradient = evaluate(rows, objective.lower, objective.upper)
        return bk.constant(value), bk.constant(gradient)

    def evaluated_on_host(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = evaluated(place(rows.astype(user.dtype)))
        return host(values)[:, 0], host(gradients)

    x = objective.inside(x)
    value, gradient = evaluated(x)
    first = host(bk.norm(objective.projected(x, gradient)))
    goals = np.maximum(first * host(rtol), host(atol))
    runs = [ScipyRun(row) for row in host(x)]
    for run, number, slope in zip(runs, host(value)[:, 0], host(gradient), strict=True):
        run.record(run.x, float(number), slope)
        run.path.append(run.x)
        run.values.append(float(number))
    which = (np.isfinite(first) & (first > goals) & np.isfinite(host(value)))[:, 0]
    boxes = [
        list(zip(low, high, strict=True)) if np.isfinite([low, high]).any() else None
        for low, high in zip(host(objective.lower), host(objective.upper), strict=True)
    ]
    if search.max_iter > 0:
        run_all(runs, which, evaluated_on_host, search.method, goals[:, 0], search.max_iter, boxes)
    shape = tuple(int(k) for k in like.shape)
    x = objective.inside(place(np.array([run.x for run in runs], user.dtype).reshape(shape)))
    value, gradient = evaluated(x)
    norm = bk.norm(objective.projected(x, gradient))
    steps, evaluations = (
        np.array(counts, np.int32).reshape(-1, 1)
        for counts in ([run.steps for run in runs], [run.evaluations + 1 for run in runs])
    )
    exhausted = np.array([run.exhausted for run in runs], bool).reshape(-1, 1)
    status = np.where((steps >= search.max_iter) | exhausted, _MAX_ITER, _STAGNATED)
    status = np.where(host(norm) <= goals, _CONVERGED, status)
    status = np.where(np.isfinite(host(norm)) & np.isfinite(host(value)), status, _DIVERGED).astype(np.int32)
    goal = place(goals.astype(user.dtype))
    lines, path = _records(bk, runs, user.dtype, like) if search.history else ((), ())
    end = Minimum(
        x, value, gradient, norm, goal, 0 * goal, place(status), place(steps), place(evaluations), lines, path
    )  # fmt: skip
    return objective.to_precision(end) if search.by_default else end


def _evaluate(user: UserFunction, _: None, rows: Array, *box: Array) -> tuple[Array, Array]:
    return Objective(user, *box).value_and_gradient(rows)


def _has_value(bk: Backend, x: Array) -> bool:
    if bk.is_concrete(x):
        return True
    try:
        return isinstance(bk.to_numpy(x), np.ndarray)
    except Exception:  # each library raises its own error
        return False


def _records(bk: Backend, runs: list[ScipyRun], dtype: np.dtype, like: Array) -> tuple[Array, Array]:
    """Values `(most, systems)` and points `(systems, most, n)`, NaN after the last ones of a system."""
    most = max((len(run.path) for run in runs), default=1)
    values = np.full((most, len(runs)), np.nan, dtype)
    path = np.full((len(runs), most, int(like.shape[1])), np.nan, dtype)
    for i, run in enumerate(runs):
        values[: len(run.values), i] = run.values
        path[i, : len(run.path)] = run.path
    return bk.asarray(values, like=like), bk.asarray(path, like=like)


class _Descent(NamedTuple):
    """State of steepest descent: the present point, the length t of the next step, and how often it was cut."""

    at: Minimum
    t: Array
    cuts: Array


def _descend(user: UserFunction, search: Search, x: Array, rtol: Array, atol: Array, *box: Array) -> Minimum:
    """Steepest descent with adaptive steps, in one loop that compiles.

    The step length of Barzilai and Borwein (IMA J. Numer. Anal. 8, 1988) is `s.s / s.y` for the last move s and the
    change y of the gradient, or twice the last one if f was not convex along s. It is divided by 4 until f decreases
    enough (Armijo). With bounds each move is projected.
    """
    bk, objective = user.bk, Objective(user, *box)
    state = _start(objective, search, objective.inside(x), rtol, atol)
    state = bk.while_loop(lambda s: bk.any(s.at.status == _RUNNING), lambda s: _step(objective, search, s), state)
    return objective.to_precision(state.at) if search.by_default else state.at


def _start(objective: Objective, search: Search, x: Array, rtol: Array, atol: Array) -> _Descent:
    bk, systems, n = objective.user.bk, int(x.shape[0]), int(x.shape[1])
    value, gradient = map(bk.constant, objective.value_and_gradient(x))
    norm = bk.norm(objective.projected(x, gradient))
    zero = bk.zeros((systems, 1), np.dtype(np.int32), x)
    t = 0.1 * bk.maximum(bk.norm(x), 0 * norm + 1) / bk.where(norm > 0, norm, 0 * norm + 1)
    lines: Any = ()
    path: Any = ()
    if search.history:
        lines = bk.full((search.max_iter + 1, systems), np.nan, bk.dtype(x), x)
        lines = bk.put(lines, zero, value, zero == 0)
        path = bk.put_row(bk.full((systems, search.max_iter + 1, n), np.nan, bk.dtype(x), x), zero, x)
    tolerance = bk.maximum(rtol * norm, atol + 0 * norm)
    at = Minimum(x, value, gradient, norm, tolerance, 0 * tolerance, zero, zero, zero + 1, lines, path)
    return _Descent(at._replace(status=_status(objective, search, at, zero)), t, zero)


def _step(objective: Objective, search: Search, s: _Descent) -> _Descent:
    bk, at, (_, t, cuts) = objective.user.bk, s.at, s
    active = at.status == _RUNNING
    trial = objective.inside(at.x - t * at.gradient)
    value, gradient = map(bk.constant, objective.value_and_gradient(trial))
    move, change = trial - at.x, gradient - at.gradient
    finite = bk.isfinite(value) & bk.isfinite(bk.max_abs(gradient))
    take = active & finite & (value <= at.value + _ENOUGH * bk.dot(at.gradient, move))
    curved, square = bk.dot(move, change), bk.square_norm(move)
    longer = bk.where(curved > 0, square / bk.where(curved > 0, curved, 0 * curved + 1), 2 * t)
    t = bk.where(take, longer, bk.where(active, 0.25 * t, t))
    one = 0 * at.steps + 1
    steps = at.steps + bk.where(take, one, 0 * one)
    norm = bk.norm(objective.projected(trial, gradient))
    lines, path = at.history, at.path
    if search.history:
        lines = bk.put(lines, steps, value, take)
        path = bk.put_row(path, bk.where(take, steps, 0 * steps + search.max_iter + 1), trial)
    moved = at._replace(
        x=bk.where(take, trial, at.x),
        value=bk.where(take, value, at.value),
        gradient=bk.where(take, gradient, at.gradient),
        norm=bk.where(take, norm, at.norm),
        steps=steps,
        evaluations=at.evaluations + bk.where(active, one, 0 * one),
        history=lines,
        path=path,
    )
    cuts = bk.where(take, 0 * one, cuts + one)
    status = bk.where(active, _status(objective, search, moved, cuts), at.status)
    return _Descent(moved._replace(status=status), t, cuts)


def _status(objective: Objective, search: Search, at: Minimum, cuts: Array) -> Array:
    """RUNNING, or the reason why a search ends."""
    bk = objective.user.bk
    status = bk.where(at.steps < search.max_iter, _RUNNING + 0 * at.status, _MAX_ITER)
    status = bk.where(cuts > _MOST_CUTS, _STAGNATED, status)
    status = bk.where(at.norm <= at.tolerance, _CONVERGED, status)
    return bk.where(bk.isfinite(at.norm) & bk.isfinite(at.value), status, _DIVERGED)


def _with_derivatives(
    user: UserFunction, search: Search, x: Array, value: Array, gradient: Array, status: Array, *box: Array
) -> tuple[Array, Array, Array]:
    """x with derivatives as a root of the gradient in unknowns without an active bound; f and its gradient there."""
    bk, objective = user.bk, Objective(user, *box)
    blocked = ((x <= objective.lower) & (gradient > 0)) | ((x >= objective.upper) & (gradient < 0))
    free, failed = ~blocked, status != _CONVERGED

    def residual(rows: Array) -> Array:
        return bk.where(free, objective.gradient(rows), rows - x)

    equations = NonlinearEquations(bk, residual, user.layout).with_rule(x)
    x = implicit_root(equations, search.linear_solver, x, failed, search.policy)
    value = _following(bk, value, bk.reshape(objective.values(x), (-1, 1)), failed)
    if search.bounded:  # in free unknowns it stays zero
        gradient = _following(bk, gradient, bk.where(free, gradient, objective.gradient(x)), failed)
    return x, value, gradient


def _following(bk: Backend, values: Array, source: Array, failed: Array) -> Array:
    """The values with the derivatives of the source."""
    change = source - bk.constant(source)
    return bk.without_derivatives(values + bk.where(bk.isfinite(change), change, bk.zeros_like(change)), failed)


def _refuse_cut_gradient(objective: Objective, x: Array, gradient: Array) -> None:
    """Raise ValueError if the gradient at x is zero but f changes with x to first order. Costs 5 calls of f then.

    A first-order change is odd and doubles with the step; at an inflection point it grows eightfold.
    """
    bk = objective.user.bk
    zero = bk.max_abs(gradient) == 0
    if not bk.has_derivatives or not bk.any(zero):
        return
    step = float(np.cbrt(np.finfo(bk.dtype(x)).eps)) * magnitude(bk, x) * perturbation(bk, x)
    small, large = (objective.values(x + k * step) - objective.values(x - k * step) for k in (1, 2))
    small, large = bk.reshape(bk.abs(small), (-1, 1)), bk.reshape(bk.abs(large), (-1, 1))
    noise = 1e3 * float(np.finfo(bk.dtype(x)).eps) * bk.abs(bk.reshape(objective.values(x), (-1, 1)))
    if bk.any(zero & (small > noise) & (large > 1.5 * small) & (large < 3 * small)):
        raise ValueError(f"The gradient of f is zero, but f changes with x. {CUTS}")
