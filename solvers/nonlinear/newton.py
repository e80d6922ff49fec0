"""Newton's method with a line search, for all systems of a batch at once.

Each step solves `J(x) p = -F(x)` and goes to `x + t p` with the largest t of 1, 1/2, 1/4, ... for which
`|F(x + t p)| <= (1 - t / 10000) |F(x)|` (C. T. Kelley, Iterative Methods for Linear and Nonlinear Equations, 1995,
section 8.1). Finished systems stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array
from ..run.outcome import Status
from .equations import NonlinearEquations
from .linear_solver import LinearSolver

_DECREASE = 1e-4
_MOST_HALVINGS = 30  # a step of 1e-9 of Newton's
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _BREAKDOWN, _DIVERGED = map(
    int, (Status.RUNNING, Status.CONVERGED, Status.MAX_ITER, Status.STAGNATED, Status.BREAKDOWN, Status.DIVERGED)
)


class NewtonState(NamedTuple):
    """Rows `(systems, n)` and numbers `(systems, 1)`."""

    x: Array
    f: Array
    norm: Array  # |f|
    status: Array
    steps: Array
    evaluations: Array
    small: Array  # was the last correction below sqrt(eps) |x|?
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
    """What Newton's method needs besides the equations and the start; hashable.

    Attributes:
        max_iter: limit of steps.
        by_default: was no rtol given, so that the limit of precision counts as converged?
        history: are norms recorded?
        linear_solver: solves for the steps.
        policy: `on_failure` of linear solves in steps, "status" or "nan".
    """

    max_iter: int
    by_default: bool
    history: bool
    linear_solver: LinearSolver
    policy: str

    def start(self, equations: NonlinearEquations, x: Array, rtol: Array, atol: Array) -> tuple[NewtonState, Array]:
        """The state before the first step, and the norms that count as converged."""
        bk, systems = equations.bk, int(x.shape[0])
        f = bk.constant(equations.residual(x))
        norm = bk.norm(f)
        tolerance = bk.maximum(rtol * norm, atol + 0 * norm)
        zero = bk.zeros((systems, 1), np.dtype(np.int32), x)
        finite = bk.isfinite(norm)
        status = bk.where(finite, zero + _RUNNING, _DIVERGED)
        status = bk.where(finite & (norm <= tolerance), _CONVERGED, status)
        if self.max_iter == 0:
            status = bk.where(status == _RUNNING, _MAX_ITER, status)
        lines: Any = ()
        if self.history:
            lines = bk.full((self.max_iter + 1, systems), np.nan, bk.dtype(norm), x)
            lines = bk.put(lines, zero, norm, zero == 0)
        return NewtonState(x, f, norm, status, zero, zero + 1, zero != 0, lines), tolerance

    def run(
        self, equations: NonlinearEquations, x: Array, rtol: Array, atol: Array
    ) -> tuple[NewtonState, Array, Array]:
        """The last state, the norms that count as converged, and the norms that precision allows, or 0."""
        bk = equations.bk
        state, tolerance = self.start(equations, x, rtol, atol)
        first = state.norm
        state = bk.while_loop(
            lambda s: bk.any(s.status == _RUNNING), lambda s: self.step(equations, s, tolerance), state
        )
        return self._to_precision(equations, state, first, tolerance)

    def step(self, equations: NonlinearEquations, state: NewtonState, tolerance: Array) -> NewtonState:
        """One step of the systems that are running."""
        bk = equations.bk
        active = state.status == _RUNNING
        p, solved = self._correction(equations, state, active)
        goes = active & solved
        found = self._line_search(equations, state, p, goes)
        moved = goes & ~found.pending
        steps = state.steps + bk.where(moved, 1, 0 * state.steps)
        status = bk.where(steps < self.max_iter, state.status, _MAX_ITER)
        status = bk.where(found.norm <= tolerance, _CONVERGED, status)
        status = bk.where(found.pending, _STAGNATED, status)
        status = bk.where(solved, status, _BREAKDOWN)
        small = bk.norm(p) <= float(np.sqrt(np.finfo(bk.dtype(p)).eps)) * bk.norm(state.x)
        history = state.history
        if self.history:
            history = bk.put(history, steps, found.norm, moved)
        return NewtonState(
            found.x, found.f, found.norm, bk.where(active, status, state.status), steps, found.evaluations,
            bk.where(goes, small, state.small), history,
        )  # fmt: skip

    def _correction(self, equations: NonlinearEquations, state: NewtonState, active: Array) -> tuple[Array, Array]:
        """Newton's step p, and where it was found."""
        bk, x, systems = equations.bk, state.x, int(state.x.shape[0])
        rhs = bk.where(active, -state.f, bk.zeros_like(state.f))
        if equations.is_dense:
            matrix = bk.constant(equations.jacobian(x, state.f))
            regular = active & bk.isfinite(bk.max_abs(bk.reshape(matrix, (systems, -1))))
            identity = bk.asarray(np.eye(int(x.shape[1]), dtype=bk.dtype(x)), like=x)
            matrix = bk.where(bk.reshape(regular, (-1, 1, 1)), matrix, identity[None])
            p, solved = self.linear_solver.solve_dense(bk, matrix, rhs, self.policy)
            solved = solved & regular
        else:
            product = equations.linearised(x)
            one = product if systems == 1 else lambda v: bk.where(active, product(v), v)
            p, solved = self.linear_solver.solve(bk, equations.layout, one, rhs, self.policy)
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

        one = bk.full_like(state.norm, 1.0)
        count = bk.zeros((), np.dtype(np.int32), state.x)
        search = _LineSearchState(state.x, state.f, state.norm, one, goes, state.evaluations, count)
        return bk.while_loop(lambda s: bk.any(s.pending) & (s.count <= _MOST_HALVINGS), halve, search)

    def _to_precision(
        self, equations: NonlinearEquations, state: NewtonState, first: Array, tolerance: Array
    ) -> tuple[NewtonState, Array, Array]:
        """Systems that stopped where rounding of x changes F by as much as F is, have converged, if rtol is not given.

        Two things are asked for: such changes are small beside the first residual, or the last correction was small
        beside x.
        """
        bk = equations.bk
        attainable = 0 * tolerance
        stopped = (state.status == _STAGNATED) | (state.status == _MAX_ITER)
        if not self.by_default or (not bk.compiled(state.x) and not bk.any(stopped)):
            return state, tolerance, attainable
        signs = np.where(np.arange(int(state.x.shape[1])) % 3 == 1, -1.0, 1.0)  # fixed, and no pattern of a grid
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
