"""`solve_nonlinear`: f(x) = 0 by Newton's method with a line search, for all systems of a batch at once.

Each step solves `J(x) p = -F(x)` and goes to `x + t p` with the largest t of 1, 1/2, 1/4, ... for which
`|F(x + t p)| <= (1 - t / 10000) |F(x)|` (C. T. Kelley, Iterative Methods for Linear and Nonlinear Equations, 1995,
section 8.1). Systems that have finished are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, get_on_failure, without_compilers
from ...backends.profile.spans import span
from ...backends.settings import checked_policy, run_for
from ..names import with_our_names
from ..read.arguments import default_rtol
from ..results.on_failure import with_nan
from ..results.result import outcome_facts
from ..run.outcome import Status
from .arguments import UserFunction, checked_limit, checked_method, read_problem
from .equations import LinearSolver, NonlinearEquations, implicit_root, residual_of
from .results import NonlinearResult, register_result

_MOST_STEPS = 50  # default limit; near a root 3 to 8 steps are needed, with damped steps before it some tens
_DECREASE = 1e-4  # decrease of the residual norm relative to the linear model (Eisenstat and Walker 1994)
_MOST_HALVINGS = 30  # down to 1e-9 of Newton's step
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _BREAKDOWN, _DIVERGED = map(
    int, (Status.RUNNING, Status.CONVERGED, Status.MAX_ITER, Status.STAGNATED, Status.BREAKDOWN, Status.DIVERGED)
)


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

    Converged means `|f(x)| <= max(rtol |f(x0)|, atol)` in the 2-norm, for the returned x. If rtol is not given, x also
    counts as converged if `|f(x)|` is at most its change by rounding x (`NonlinearResult.attainable`), for example if
    x0 is a solution already. Each system of a batch has its own steps, status and history.

    Args:
        f: a differentiable function with as many real equations as unknowns, called as `f(x, *args)` with all systems
            at once and batch axes in front. It returns arrays in the shape of x0.
        x0: initial guess: an array of floats of any shape, or a container of arrays.
        args: further arguments of f.
        method: "Newton".
        rtol: relative tolerance below 1, one number or one per system. If None, 1e-5 in single and 1e-10 in double
            precision, or the attainable accuracy.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of steps, 50 if None.
        linear_solver: how `linear_solve` solves for a step: a method, or a dictionary of its arguments `method`,
            `preconditioner`, `rtol`, `atol`, `max_iter`, `nullspace` and `matrix_offset`. If None, `linear_solve`
            chooses. The Jacobian is dense for up to 200 unknowns, and for more a sparse matrix traced from f. For a
            batch, or if f cannot be traced, only products with it are used.
        batch_ndim: number of leading axes of x0 that count independent systems.
        on_failure: "raise", "warn", "status" or "nan", as in `linear_solve`.
        history: record residual norms.

    x has exact derivatives with respect to args and the arrays that f closes over, by the implicit function theorem, in
    JAX of any order, in PyTorch and TensorFlow up to the third. There are none with respect to x0 and the tolerances.
    Derivatives of failed systems are NaN.

    Returns:
        NonlinearResult; `x` has the type, shape, dtype and device of x0.

    Raises:
        NotConverged, Diverged: the tolerance was not reached (the result is in `.result`). Compiled functions raise an
            error of their library with the same text at run time.
        ValueError, TypeError, NoBackendFound, UnsupportedOperation: an input is invalid; raised before any step.

    Cost: for each step a Jacobian, a linear solve and 1 call of f, and 1 more for each halving of the step. NumPy has
    no derivatives, and forward differences take a call of f for each unknown of one system, of which 200 are allowed.

    Examples:
        >>> import numpy as np, krylix
        >>> roots = krylix.solve_nonlinear(lambda x, c: x**2 - c, np.ones(2), args=(np.array([4.0, 9.0]),)).x
        >>> np.round(roots, 6)
        array([2., 3.])
    """
    policy = checked_policy(get_on_failure() if on_failure is None else on_failure)
    checked_method("solve_nonlinear", method, ("Newton",))
    user, x0, tolerances = read_problem(f, x0, args, batch_ndim, rtol, atol, default_rtol)
    limit, solver = checked_limit(max_iter, _MOST_STEPS), LinearSolver.of(linear_solver)
    newton = Newton(limit, rtol is None, bool(history), solver, policy)
    with span("solve", "solve_nonlinear", facts=outcome_facts) as done:
        return done(without_compilers(run_for)(policy, newton.result, user, x0, *tolerances))


solve_nonlinear._torchdynamo_disable = True  # type: ignore[attr-defined]  # a graph break in torch.compile


class NewtonState(NamedTuple):
    """Rows `(systems, n)` and numbers `(systems, 1)`."""

    x: Array
    f: Array
    norm: Array  # |f|
    status: Array
    steps: Array
    evaluations: Array
    small: Array  # whether the last correction was below sqrt(eps) |x|
    history: Any  # norms `(max_iter + 1, systems)`, or ()


class _LineSearchState(NamedTuple):
    x: Array
    f: Array
    norm: Array
    t: Array
    pending: Array
    evaluations: Array
    count: Array


@dataclass(frozen=True)
class Newton:
    """Settings of Newton's method; hashable if those of the linear solver are.

    Attributes:
        max_iter: limit of steps.
        by_default: whether rtol was not given, so that attainable accuracy counts as converged.
        history: whether norms are recorded.
        linear_solver: solves for the steps.
        policy: the user's `on_failure`.
    """

    max_iter: int
    by_default: bool
    history: bool
    linear_solver: LinearSolver
    policy: str

    def result(self, user: UserFunction, x: Array, rtol: Array, atol: Array) -> NonlinearResult:
        bk, layout = user.bk, user.layout
        register_result(bk, NonlinearResult)
        state, bound, attainable = user.program(_run, self, x)(x, rtol, atol)

        def each(values: Array) -> Array:
            return bk.reshape(values, layout.batch)

        x = with_nan(bk, state.x, state.status) if self.policy == "nan" else state.x
        lines = bk.reshape(state.history, (self.max_iter + 1, *layout.batch)) if self.history else None
        return NonlinearResult(
            layout.unflatten(bk, x), layout.unflatten(bk, state.f), each(state.norm), each(bound), each(attainable),
            each(state.steps), each(state.evaluations), each(state.status == _CONVERGED),
            each(state.status == _DIVERGED), each(state.status), lines, "Newton",
        ).judged(bk, self.policy, "solve_nonlinear")  # fmt: skip

    def run(
        self, equations: NonlinearEquations, x: Array, rtol: Array, atol: Array
    ) -> tuple[NewtonState, Array, Array]:
        """Return the last state, the tolerance on the norm, and the attainable norm or 0."""
        bk = equations.bk
        first = self._start(equations, x)
        tolerance = bk.maximum(rtol * first.norm, atol + 0 * first.norm)
        finite = bk.isfinite(first.norm)
        status = bk.where(finite, first.status, _DIVERGED)
        status = bk.where(finite & (first.norm <= tolerance), _CONVERGED, status)
        if self.max_iter == 0:
            status = bk.where(status == _RUNNING, _MAX_ITER, status)
        state = bk.while_loop(
            lambda s: bk.any(s.status == _RUNNING),
            lambda s: self.step(equations, s, tolerance),
            first._replace(status=status),
        )
        return self._to_precision(equations, state, first.norm, tolerance)

    def _start(self, equations: NonlinearEquations, x: Array) -> NewtonState:
        bk, systems = equations.bk, int(x.shape[0])
        f = bk.constant(equations.residual(x))
        norm = bk.norm(f)
        zero = bk.zeros((systems, 1), np.dtype(np.int32), x)
        lines: Any = ()
        if self.history:
            lines = bk.full((self.max_iter + 1, systems), np.nan, bk.dtype(norm), x)
            lines = bk.put(lines, zero, norm, zero == 0)
        return NewtonState(x, f, norm, zero + _RUNNING, zero, zero + 1, zero != 0, lines)

    def step(self, equations: NonlinearEquations, state: NewtonState, tolerance: Array) -> NewtonState:
        """One step of the running systems."""
        bk = equations.bk
        active = state.status == _RUNNING
        p, solved = self._correction(equations, state, active)
        goes = active & solved
        search = self._line_search(equations, state, p, goes)
        moved = goes & ~search.pending
        steps = state.steps + bk.where(moved, 1, 0 * state.steps)
        status = bk.where(steps < self.max_iter, state.status, _MAX_ITER)
        status = bk.where(search.norm <= tolerance, _CONVERGED, status)
        status = bk.where(search.pending, _STAGNATED, status)
        status = bk.where(solved, status, _BREAKDOWN)
        small = bk.norm(p) <= float(np.sqrt(np.finfo(bk.dtype(p)).eps)) * bk.norm(state.x)
        history = state.history
        if self.history:
            history = bk.put(history, steps, search.norm, moved)
        return NewtonState(
            search.x, search.f, search.norm, bk.where(active, status, state.status), steps, search.evaluations,
            bk.where(goes, small, state.small), history,
        )  # fmt: skip

    def _correction(self, equations: NonlinearEquations, state: NewtonState, active: Array) -> tuple[Array, Array]:
        """Newton's step p, and the systems for which it was found."""
        bk, x, systems = equations.bk, state.x, int(state.x.shape[0])
        rhs = bk.where(active, -state.f, bk.zeros_like(state.f))
        policy = "nan" if self.policy == "nan" else "status"
        if equations.is_dense:
            matrix = bk.constant(equations.jacobian(x, state.f))
            regular = active & bk.isfinite(bk.max_abs(bk.reshape(matrix, (systems, -1))))
            identity = bk.asarray(np.eye(int(x.shape[1]), dtype=bk.dtype(x)), like=x)
            matrix = bk.where(bk.reshape(regular, (-1, 1, 1)), matrix, identity[None])
            p, solved = self.linear_solver.solve_arrays(bk, matrix, rhs, policy)
            solved = solved & regular
        else:
            product = equations.linearised(x)
            J = product if systems == 1 else lambda v: bk.where(active, product(v), v)
            p, solved = self.linear_solver.solve(bk, equations.layout, J, rhs, policy)
        p = bk.constant(p)
        return p, solved & bk.isfinite(bk.max_abs(p))

    def _line_search(
        self, equations: NonlinearEquations, state: NewtonState, p: Array, goes: Array
    ) -> _LineSearchState:
        bk = equations.bk

        def halve(s: _LineSearchState) -> _LineSearchState:
            x = state.x + s.t * p
            f = bk.constant(equations.residual(x))
            norm = bk.norm(f)
            enough = bk.isfinite(norm) & (norm <= (1 - _DECREASE * s.t) * state.norm)
            take = s.pending & enough
            return _LineSearchState(
                bk.where(take, x, s.x), bk.where(take, f, s.f), bk.where(take, norm, s.norm), 0.5 * s.t,
                s.pending & ~enough, s.evaluations + bk.where(s.pending, 1, 0 * s.evaluations), s.count + 1,
            )  # fmt: skip

        whole = bk.full_like(state.norm, 1.0)
        count = bk.zeros((), np.dtype(np.int32), state.x)
        search = _LineSearchState(state.x, state.f, state.norm, whole, goes, state.evaluations, count)
        return bk.while_loop(lambda s: bk.any(s.pending) & (s.count <= _MOST_HALVINGS), halve, search)

    def _to_precision(
        self, equations: NonlinearEquations, state: NewtonState, first: Array, tolerance: Array
    ) -> tuple[NewtonState, Array, Array]:
        """Unless rtol is given, count systems as converged if rounding x changes F by as much as the remaining F.

        This change must also be small relative to the first residual, or the last correction small relative to x.
        """
        bk = equations.bk
        attainable = 0 * tolerance
        stopped = (state.status == _STAGNATED) | (state.status == _MAX_ITER)
        if not self.by_default or (not bk.compiled(state.x) and not bk.any(stopped)):
            return state, tolerance, attainable
        signs = np.where(np.arange(int(state.x.shape[1])) % 3 == 1, -1.0, 1.0)  # irregular on any grid
        eps = float(np.finfo(bk.dtype(state.x)).eps)
        factor = bk.asarray(np.asarray(1 + eps * signs, bk.dtype(state.x)), like=state.x)
        change = 2 * bk.norm(bk.constant(equations.residual(state.x * factor)) - state.f)
        can = stopped & bk.isfinite(change) & (state.small | (change <= 0.05 * first))
        attainable = bk.where(can, change, attainable)
        within = can & (state.norm <= attainable)
        status = bk.where(within, _CONVERGED, state.status)
        evaluations = state.evaluations + bk.where(stopped, 1, 0 * state.evaluations)
        tolerance = bk.where(within, bk.maximum(tolerance, attainable), tolerance)
        return state._replace(status=status, evaluations=evaluations), tolerance, attainable


def _run(user: UserFunction, newton: Newton, x: Array, rtol: Array, atol: Array) -> tuple[NewtonState, Array, Array]:
    """Newton's method as a program, with derivatives of x."""
    bk = user.bk
    with bk.errstate():
        constants = NonlinearEquations(bk, residual_of(user.with_constants()), user.layout).with_rule(x)
        state, bound, attainable = newton.run(constants, x, rtol, atol)
    equations = NonlinearEquations(bk, residual_of(user), user.layout, constants.reverse)
    root = implicit_root(equations, newton.linear_solver, state.x, state.status != _CONVERGED, newton.policy)
    return state._replace(x=root), bound, attainable
