"""Results of non-linear solves and of searches for minima: containers of arrays, and their messages.

A message is one sentence for success; for a failure it also says what to try.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np

from ...backends import Array, Backend, choose_backend
from ...backends.settings import QUIET
from ..judge import raise_or_warn
from ..results.words import failed_in_words, furthest
from ..run.outcome import Status, iterations_in_words

SCIPY_METHODS = ("L-BFGS-B", "BFGS", "CG")
# A search by SciPy may evaluate f so often, and so often for each step: the line searches of a function without a lower
# bound would go on for ever.
EVALUATIONS, EVALUATIONS_A_STEP = 100, 10
_OF_EQUATIONS = {
    Status.MAX_ITER: (
        "reached the limit of iterations",
        "raise max_iter, start closer to the solution, or look at result.history (history=True)",
    ),
    Status.STAGNATED: (
        "stopped: no step along its direction makes |f(x)| smaller",
        "start elsewhere, as |f(x)| may have a minimum here that is no solution; or loosen rtol, check that f is "
        "differentiable, or use double precision",
    ),
    Status.BREAKDOWN: (
        "stopped: the linear system of a step was not solved",
        "check that the Jacobian is not singular here, start elsewhere, or give linear_solver={'method': ..., "
        "'preconditioner': ...}",
    ),
    Status.DIVERGED: (
        "was not begun: f(x0) is not finite",
        "look in x0 and f for NaN and infinity",
    ),
}
_OF_SEARCHES = {
    Status.MAX_ITER: (
        "reached the limit of iterations",
        "raise max_iter, loosen rtol, bring the unknowns to one scale, or check that f has a lower bound",
    ),
    Status.STAGNATED: (
        "stopped: no step makes f smaller",
        "loosen rtol, use double precision, or check that f is differentiable and that its gradient is right",
    ),
    Status.DIVERGED: (
        "left the finite numbers, or was not begun as f(x0) or its gradient is none",
        "look in x0 and f for NaN and infinity, give bounds, or check that f has a lower bound",
    ),
}


class ArrayResult(ABC):
    """A frozen dataclass of arrays, or None for those that were not asked for, and the name of its `method`."""

    status: Array
    method: str

    @abstractmethod
    def end_state(self) -> tuple[Array, ...]:
        """Numbers for the message, the status in front."""

    @staticmethod
    @abstractmethod
    def _described(method: str, *numbers: np.ndarray) -> str:
        """The message, of `end_state` on the host."""

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        return self._described(self.method, *[np.asarray(bk.to_numpy(a)) for a in self.end_state()])

    def judged(self, bk: Backend, policy: str, title: str) -> Self:
        """Apply the policy `on_failure`; `title` names the message in stored programs.

        Raises:
            NotConverged, Diverged: a system failed.
        """
        if policy in QUIET:
            return self
        return raise_or_warn(bk, self, self.end_state(), policy, partial(self._described, self.method), title)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.message}>"

    # TensorFlow asks the class itself how to flatten it.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        arrays, static = _flatten(self)
        return static, tuple(arrays)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Self:
        return _unflatten(cls, static, arrays)


def _flatten(result: Any) -> tuple[Sequence[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(result) if field.name != "method"]
    known = tuple(name for name in names if getattr(result, name) is not None)
    return [getattr(result, name) for name in known], (result.method, known)


def _unflatten(cls: Any, static: tuple[Any, ...], arrays: Sequence[Any]) -> Any:
    method, known = static
    values = dict.fromkeys(field.name for field in fields(cls))
    return cls(**{**values, **dict(zip(known, arrays, strict=True)), "method": method})


def register_result(bk: Backend, cls: type[ArrayResult]) -> None:
    """Make a class of results a container of arrays for this backend's transformations."""
    bk.register(cls, _flatten, partial(_unflatten, cls))


@dataclass(frozen=True, eq=False, repr=False)
class NonlinearResult(ArrayResult):
    """The outcome of `solve_nonlinear`, one entry per system of the batch (a scalar without batch axes).

    Usable as the return value of compiled functions and as a container of arrays.

    Attributes:
        x: the solution, in the type, shape, dtype and device of `x0`; NaN where a system failed, with
            `on_failure="nan"`.
        residual: `f(x)` of the x that was found.
        residual_norm: its 2-norm.
        tolerance: the residual norm that counts as converged: `max(rtol |f(x0)|, atol)`, or `attainable` where that
            decided.
        attainable: where rtol was not given and the steps came to an end before the tolerance: twice what rounding x
            changes `f(x)` by; else 0.
        iterations: steps of Newton's method.
        function_evaluations: calls of f for a value, those of the line search included; without those for Jacobians.
        converged: is `residual_norm <= tolerance`?
        diverged: was `f(x0)` not finite?
        status: numbers of `Status`.
        history: residual norms, `(max_iter + 1, *batch)`, NaN after a system's last one; None unless asked for.
        method: name of the method.

    Examples:
        >>> import numpy as np, krylix
        >>> result = krylix.solve_nonlinear(lambda x: x**2 - 4, np.ones(3))
        >>> np.round(result.x, 6)
        array([2., 2., 2.])
        >>> bool(result.converged), bool(result.residual_norm <= result.tolerance)
        (True, True)
    """

    x: Any
    residual: Any
    residual_norm: Array
    tolerance: Array
    attainable: Array
    iterations: Array
    function_evaluations: Array
    converged: Array
    diverged: Array
    status: Array
    history: Array | None
    method: str

    def end_state(self) -> tuple[Array, ...]:
        return self.status, self.iterations, self.residual_norm, self.tolerance

    @staticmethod
    def _described(method: str, *numbers: np.ndarray) -> str:
        return _message("Newton's method", "|f(x)|", _OF_EQUATIONS, *numbers)


@dataclass(frozen=True, eq=False, repr=False)
class MinimizeResult(ArrayResult):
    """The outcome of `minimize`, one entry per system of the batch (a scalar without batch axes).

    Usable as the return value of compiled functions and as a container of arrays.

    Attributes:
        x: the minimiser, in the type, shape, dtype and device of `x0`; NaN where a search failed, with
            `on_failure="nan"`.
        value: `f(x)` of the x that was found, with derivatives as x.
        gradient: its gradient there, in the shape of x; derivatives where a bound holds x, else zero as it is.
        gradient_norm: 2-norm of the gradient, without the part that bounds hold back.
        tolerance: the norm that counts as converged: `max(rtol |gradient at x0|, atol)`, or `attainable` where that
            decided.
        attainable: where rtol was not given and the search came to an end before the tolerance: the norm below which
            rounding of f hides what is left to gain; else 0.
        iterations: steps that were accepted.
        function_evaluations: evaluations of f with its gradient.
        converged: is `gradient_norm <= tolerance`?
        diverged: did f or its gradient leave the finite numbers?
        status: numbers of `Status`.
        history: values of f, `(iterations + 1, *batch)`, NaN after a system's last one; None unless asked for.
        trajectory: x likewise, `(iterations + 1, *shape of x)`.
        method: name of the method.

    Examples:
        >>> import numpy as np, krylix
        >>> result = krylix.minimize(lambda x: ((x - 3) ** 2).sum(), np.zeros(2), rtol=1e-6)
        >>> np.round(result.x, 4)
        array([3., 3.])
        >>> bool(result.converged), bool(result.value < 1e-8)
        (True, True)
    """

    x: Any
    value: Array
    gradient: Any
    gradient_norm: Array
    tolerance: Array
    attainable: Array
    iterations: Array
    function_evaluations: Array
    converged: Array
    diverged: Array
    status: Array
    history: Array | None
    trajectory: Any
    method: str

    def end_state(self) -> tuple[Array, ...]:
        return self.status, self.iterations, self.gradient_norm, self.tolerance

    @staticmethod
    def _described(method: str, *numbers: np.ndarray) -> str:
        reasons = _OF_SEARCHES
        if method in SCIPY_METHODS:
            evaluations = f"({EVALUATIONS}, and {EVALUATIONS_A_STEP} for each iteration)"
            limit = f"reached the limit of iterations, or of evaluations {evaluations},"
            reasons = {**reasons, Status.MAX_ITER: (limit, reasons[Status.MAX_ITER][1])}
        return _message(method, "|gradient|", reasons, *numbers)


def _message(
    method: str,
    measure: str,
    reasons: dict[Status, tuple[str, str]],
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    tolerance: np.ndarray,
) -> str:
    status, steps, norm = map(np.atleast_1d, (status, steps, norm))
    bound = np.broadcast_to(tolerance, norm.shape)
    if not status.size:
        return f"{method}: no systems to solve."
    failed = status != Status.CONVERGED
    if not failed.any():
        taken = iterations_in_words(int(steps.min()), int(steps.max()))
        systems = "" if steps.size == 1 else f" for all {steps.size} systems"
        worst = int(norm.argmax())
        return (
            f"{method} converged in {taken}{systems}: {measure} {norm.flat[worst]:.3e}, tolerance "
            f"{bound.flat[worst]:.3e}."
        )
    worst = furthest(failed, norm, bound)
    reason, to_do = reasons[Status(int(status.flat[worst]))]
    return (
        f"{method}{failed_in_words(failed, worst)} {reason} after {iterations_in_words(int(steps.flat[worst]))}: "
        f"{measure} {norm.flat[worst]:.3e}, tolerance {bound.flat[worst]:.3e}. To do: {to_do}."
    )
