"""Methods of other libraries on the host, which solve one system after the other, and a table of SciPy's.

The true residual decides about convergence. A method that stopped too early is called again for the residual.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg as spl

from ...backends import Array, Backend
from ...sparse import Operator
from ..run.watch import InnerSteps
from .method import Goal, Method, declare

See = Callable[[np.ndarray, int, Callable[[], np.ndarray]], None]
"""Report of an iteration: x of one system, the iterations so far, and a function that returns its residual."""


class LoopStopped(Exception):
    """Raised in a callback to end a solve at the newest x."""


class OneByOneState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    rr: Array
    broken: Array
    goal: Array
    left: Array
    taken: Array
    products: Array


class OneByOne(Method):
    """A method whose step solves each system to the goal of the round, by a function of another library."""

    on_host = True
    can_pause = False

    @abstractmethod
    def solve_system(
        self, A: Operator, M: Operator | None, b: np.ndarray, goal: float, limit: int, i: int, see: See | None
    ) -> tuple[np.ndarray, int, int]:
        """Solve system `i` to the residual norm `goal` in at most `limit` iterations.

        Args:
            see: called after each iteration; it may raise `LoopStopped`.

        Returns:
            x, iterations, products with A.
        """

    def inner_steps(self) -> InnerSteps | None:
        """Monitor of inner iterations; None unless the solve is monitored."""
        return None

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> OneByOneState:
        rr = bk.square_norm(r)
        none = np.zeros(rr.shape, np.int32)
        return OneByOneState(np.zeros_like(r), r, rr, rr < 0, goal.norm + 0 * rr, none, none, none)

    def limited(self, bk: Backend, state: OneByOneState, left: Array) -> OneByOneState:
        return state._replace(left=np.array(left))

    def steps_taken(self, state: OneByOneState) -> Array:
        return state.taken

    def products_made(self, state: OneByOneState) -> Array:
        return state.products

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: OneByOneState) -> OneByOneState:
        x, taken, products, least = s.x.copy(), np.zeros_like(s.taken), np.zeros_like(s.products), 1
        inner, rr = self.inner_steps(), s.rr.copy()
        for i in np.flatnonzero((s.rr > s.goal * s.goal)[:, 0] & (s.left > 0)[:, 0]):
            see = None if inner is None else partial(_report, bk, inner, x, taken, rr, int(i))
            d, taken[i, 0], products[i, 0] = self.solve_system(
                A, M, s.r[i], float(s.goal[i, 0]), int(s.left[i, 0]), int(i), see
            )
            x[i] += d.astype(x.dtype)
            if inner is not None and inner.reason:
                least = 0  # the others have not begun
                break
        r = s.r - A.apply(x - s.x)
        rr = bk.square_norm(r)
        # A system above its goal was given up by the library. The true residual decides what that means.
        return OneByOneState(
            x, r, rr, rr > s.goal * s.goal, s.goal, s.left, np.clip(taken, least, np.maximum(s.left, 1)), products + 1
        )


def _report(
    bk: Backend, inner: InnerSteps, x: np.ndarray, taken: np.ndarray, rr: np.ndarray, i: int,
    step: np.ndarray, count_of_i: int, residual: Callable[[], np.ndarray],
) -> None:  # fmt: skip
    """Report an iteration of system `i`, at x + step; raise LoopStopped after the last one."""
    active, count, rows = np.zeros(taken.shape, bool), taken.copy(), x
    active[i, 0], count[i, 0] = True, count_of_i
    if inner.takes_x:
        rows = x.copy()
        rows[i] += step.astype(x.dtype)
        rr[i, 0] = bk.norm(residual()[None])[0, 0] ** 2
    if inner.after(count, active, rows, rr):
        raise LoopStopped


class _Task(NamedTuple):
    """One system for SciPy: solve A x = b to the residual norm `goal` in at most `limit` iterations."""

    A: Any
    b: np.ndarray
    M: Any
    goal: float
    limit: int
    tick: Callable[..., None]  # called once per iteration
    latest: list[np.ndarray]  # newest x, where SciPy passes it to its callback; at first zero
    see: Callable[[np.ndarray], None] | None = None  # called with x after a tick in a monitored solve

    def after_iteration(self) -> Callable[..., None]:
        """Callback of SciPy that receives x."""
        if self.see is None:
            return self.tick
        see = self.see

        def tick_and_see(x: np.ndarray) -> None:
            self.tick()
            see(x)

        return tick_and_see


def _standard(function: Callable[..., Any], task: _Task) -> np.ndarray:
    return function(task.A, task.b, rtol=0.0, atol=task.goal, maxiter=task.limit, M=task.M,
                    callback=task.after_iteration())[0]  # fmt: skip


def _outer(function: Callable[..., Any], task: _Task) -> np.ndarray:
    """Run a method that calls back at the start of each outer iteration; the last one only tests convergence."""
    calls, after = [0], task.after_iteration()

    def count(x: np.ndarray) -> None:
        calls[0], task.latest[0] = calls[0] + 1, x.copy()
        if calls[0] > 1:
            after(x)

    try:
        x, info = function(task.A, task.b, rtol=0.0, atol=task.goal, maxiter=task.limit, M=task.M, callback=count)
    except RuntimeError:  # of the user, or of LGMRES where M r = 0
        task.tick(times=min(calls[0], 1))
        raise
    task.tick(times=min(calls[0], 1) - (info == 0))
    return x


def _tfqmr(task: _Task) -> np.ndarray:
    if task.M is None:
        return _standard(spl.tfqmr, task)
    product, M, see = task.A @ task.M, task.M, task.see
    inner = task._replace(A=product, M=None, see=None if see is None else lambda x: see(M @ x))
    return M @ _standard(spl.tfqmr, inner)


def _gmres(task: _Task) -> np.ndarray:
    restart = min(20, task.limit, task.A.shape[0])
    x, norm = np.zeros_like(task.b), float("inf")
    for _ in range(max(1, task.limit // restart)):  # the remainder is solved in the next call
        new, info = spl.gmres(task.A, task.b, x0=x, rtol=0.0, atol=task.goal, restart=restart, maxiter=1, M=task.M,
                              callback=task.tick, callback_type="pr_norm")  # fmt: skip
        new_norm = float(np.linalg.norm(task.b - task.A.matvec(new)))
        if not new_norm < norm:
            break
        x, norm = new, new_norm
        if task.see is not None:
            task.see(x)
        if info == 0:
            break
    return x


def _qmr(task: _Task) -> np.ndarray:
    identity = spl.LinearOperator(task.A.shape, matvec=lambda v: v, rmatvec=lambda v: v, dtype=task.A.dtype)
    return spl.qmr(task.A, task.b, rtol=0.0, atol=task.goal, maxiter=task.limit, M1=task.M or identity, M2=identity,
                   callback=task.after_iteration())[0]  # fmt: skip


def _minres(task: _Task) -> np.ndarray:
    # MINRES has its own stopping test, relative to |A| |x|, so the residual is computed after each step.
    after = task.after_iteration()

    def test_residual(x: np.ndarray) -> None:
        task.latest[0] = x.copy()
        after(x)
        if np.linalg.norm(task.b - task.A.matvec(x)) <= task.goal:
            raise LoopStopped

    return spl.minres(task.A, task.b, rtol=1e-300, maxiter=task.limit, M=task.M, callback=test_residual)[0]


def _least_squares(function: Callable[..., Any], limit_name: str, task: _Task) -> np.ndarray:
    goal = task.goal / max(np.linalg.norm(task.b), np.finfo(task.b.real.dtype).tiny)
    result = function(task.A, task.b, atol=0.0, btol=goal, conlim=0.0, **{limit_name: task.limit})
    task.tick(times=result[2])
    return result[0]


# SciPy's methods raise these if a step is impossible.
_OF_SCIPY = (ValueError, np.linalg.LinAlgError, ArithmeticError, RuntimeError)


_TWO_SIDED = {"needs_transpose": True, "may_break_down": True}
_LEAST_SQUARES = {"needs_transpose": True, "takes_preconditioner": False, "minimises_residual": True}

_TABLE: dict[str, tuple[Callable[[_Task], np.ndarray], dict[str, Any]]] = {  # function that runs it, and its facts
    "scipy-CG": (partial(_standard, spl.cg), {"needs_hermitian": True, "needs_definite": True}),
    "scipy-GMres": (_gmres, {"minimises_residual": True}),
    "scipy-lGMres": (partial(_outer, spl.lgmres), {"minimises_residual": True, "steps_per_iteration": 30}),
    "scipy-biCG": (partial(_standard, spl.bicg), _TWO_SIDED),
    "scipy-biCG-stab": (partial(_standard, spl.bicgstab), {"may_break_down": True}),
    "scipy-CGS": (partial(_standard, spl.cgs), {"may_break_down": True, "amplifies_rounding": True}),
    "scipy-QMR": (_qmr, _TWO_SIDED),
    "scipy-TFQMR": (_tfqmr, {"may_break_down": True, "amplifies_rounding": True}),
    "scipy-GCrotMK": (partial(_outer, spl.gcrotmk), {"steps_per_iteration": 40}),
    "scipy-MINRES": (_minres, {"needs_hermitian": True, "takes_complex": False, "minimises_residual": True}),
    "scipy-lsqr": (partial(_least_squares, spl.lsqr, "iter_lim"), _LEAST_SQUARES),
    "scipy-lsmr": (partial(_least_squares, spl.lsmr, "maxiter"), _LEAST_SQUARES),
}
SCIPY_NAMES = tuple(_TABLE)


@dataclass(frozen=True)
class ScipyMethod(OneByOne):
    """One of SciPy's iterative methods, by its name in krylix (`ScipyMethod("scipy-GMres")`).

    It runs on the host, one system after the other. Arrays of other libraries are copied there and back, in compiled
    functions by a callback. The true residual decides about convergence: if SciPy stops too early, the method is called
    again for the residual. `iterations` counts SciPy's callbacks, which are inner steps for GMRES and outer ones for
    LGMRES and GCROT(m,k).

    Cost: the vectors of SciPy's function, for one system at a time, and copies to the host and back; per iteration its
    products with A and M, with a second product with A for the residual in MINRES; per call 1 more product. A callback
    costs one more product for its residual norm whenever SciPy passes x (for GMRES after each cycle, for LSQR and LSMR
    at the end).

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import ScipyMethod
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=ScipyMethod("scipy-GMres"))
        >>> np.allclose(A @ result.x, 1)
        True
    """

    key: str

    def __post_init__(self) -> None:
        if self.key not in _TABLE:
            raise ValueError(f"ScipyMethod wraps {', '.join(_TABLE)}; got {self.key!r}.")
        declare(self, _TABLE[self.key][1])

    @property
    def name(self) -> str:
        return self.key

    @property
    def summary(self) -> str:
        function = self.key.removeprefix("scipy-").replace("-", "").lower()
        return f"scipy.sparse.linalg.{function}, on the host, one system after the other"

    def monitored(self, inner: InnerSteps | None) -> Method:
        return self if inner is None else _MonitoredScipyMethod(self.key, inner)

    def solve_system(
        self, A: Operator, M: Operator | None, b: np.ndarray, goal: float, limit: int, i: int, see: See | None
    ) -> tuple[np.ndarray, int, int]:
        steps, products = [0], [0]

        def count(*_: Any, times: int = 1) -> None:
            steps[0] += times

        user_errors: list[Exception] = []  # of A and M

        def guarded(product: Callable[..., Any], v: np.ndarray) -> np.ndarray:
            try:
                return product(v)
            except Exception as error:
                user_errors.append(error)
                raise

        def counted(product: Callable[..., Any], v: np.ndarray) -> np.ndarray:
            products[0] += 1
            return guarded(product, v)

        def watched(operator: Operator, through: Callable[..., np.ndarray]) -> Any:
            system = spl.aslinearoperator(operator.per_system(i))
            products = {"matvec": partial(through, system.matvec), "rmatvec": partial(through, system.rmatvec)}
            return spl.LinearOperator(system.shape, **products, dtype=system.dtype)

        matrix, preconditioner = watched(A, counted), None if M is None else watched(M, guarded)
        latest = [np.zeros_like(b)]

        def report(x: np.ndarray) -> None:
            latest[0] = x.copy()
            if see is not None:
                guarded(lambda x: see(x, steps[0], lambda: b - matrix.matvec(x)), latest[0])

        task = _Task(matrix, b, preconditioner, goal, limit, count, latest, None if see is None else report)
        try:
            x = _TABLE[self.key][0](task)
        except LoopStopped:
            x = latest[0]
        except _OF_SCIPY:
            if user_errors:
                raise
            x = latest[0]  # SciPy gave up, as MINRES does for an indefinite M. The true residual decides.
        return np.asarray(x), steps[0], products[0]


@dataclass(frozen=True)
class _MonitoredScipyMethod(ScipyMethod):
    inner: InnerSteps | None = None

    def inner_steps(self) -> InnerSteps | None:
        return self.inner
