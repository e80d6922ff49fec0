"""Results of non-linear solves and of minimisation, with their messages.

A message is one sentence; after a failure it also says what to try.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from ...backends import Array, Backend, choose_backend
from ...backends.settings import QUIET
from ..results.messages import EXPLANATION, failed_in_words, furthest, norms_in_words, success_in_words
from ..results.on_failure import Ending, raise_or_warn
from ..run.outcome import Status, has_failed, iterations_in_words
from .scipy_search import EVALUATIONS, EVALUATIONS_A_STEP, SCIPY_METHODS

Words = tuple[str, str, dict[Status, tuple[str, str]]]
_OF_EQUATIONS = {
    Status.MAX_ITER: (
        EXPLANATION[Status.MAX_ITER],
        "raise max_iter, start closer to the solution, or look at result.history (history=True)",
    ),
    Status.STAGNATED: (
        "stopped: no step along its direction makes |f(x)| smaller",
        "start elsewhere, because |f(x)| may have a minimum here that is no solution; or loosen rtol, check that f is "
        "differentiable, or use double precision",
    ),
    Status.BREAKDOWN: (
        "stopped: the linear system of a step was not solved",
        "check that the Jacobian is not singular here, start elsewhere, or give linear_solver={'method': ..., "
        "'preconditioner': ...}",
    ),
    Status.DIVERGED: (
        "did not start: f(x0) is not finite",
        "check x0 and f for NaN and infinity",
    ),
}
_OF_SEARCHES = {
    Status.MAX_ITER: (
        EXPLANATION[Status.MAX_ITER],
        "raise max_iter, loosen rtol, bring the unknowns to one scale, or check that f has a lower bound",
    ),
    Status.STAGNATED: (
        "stopped: no step makes f smaller",
        "loosen rtol, use double precision, or check that f is differentiable and that its gradient is right",
    ),
    Status.DIVERGED: (
        "met NaN or infinity in f or its gradient",
        "check x0 and f for NaN and infinity, give bounds, or check that f has a lower bound",
    ),
}


class ArrayResult(ABC):
    """Frozen dataclass of arrays, None for those that were not requested, and the name of the `method`."""

    status: Array
    iterations: Array
    tolerance: Array
    method: str
    _norm: ClassVar[str]  # the attribute that is compared with the tolerance

    @property
    @abstractmethod
    def _words(self) -> Words:
        """The method and its norm in words; for each failure what happened and what to do."""

    def _end_state(self) -> tuple[Array, ...]:
        return self.status, self.iterations, getattr(self, self._norm), self.tolerance

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        return _described(self._words, *[np.asarray(bk.to_numpy(a)) for a in self._end_state()])

    def judged(self, bk: Backend, policy: str, title: str) -> Self:
        """Apply the policy `on_failure`; `title` names the message in stored programs."""
        if policy in QUIET:
            return self
        return raise_or_warn(bk, policy, self, Ending(self._end_state(), partial(_described, self._words), title))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.message}>"

    # TensorFlow's protocol for containers.

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
    """Register a class of results as a container of arrays for transformations of the library."""
    bk.register(cls, _flatten, partial(_unflatten, cls))


@dataclass(frozen=True, eq=False, repr=False)
class NonlinearResult(ArrayResult):
    """Result of `solve_nonlinear`, with one entry per system of the batch (a scalar without batch axes).

    Usable as the return value of compiled functions and as a container of arrays.

    Attributes:
        x: the solution, in the type, shape, dtype and device of `x0`; NaN where a system failed, with
            `on_failure="nan"`.
        residual: `f(x)` of the returned x.
        residual_norm: 2-norm of the residual.
        tolerance: largest residual norm that counts as converged: `max(rtol |f(x0)|, atol)`, or `attainable` if that
            decided.
        attainable: if rtol was not given and the steps ended above the tolerance, twice the change of `f(x)` by
            rounding x; else 0.
        iterations: steps of Newton's method.
        function_evaluations: calls of f for values, including the line search but not Jacobians.
        converged: whether `residual_norm <= tolerance`.
        diverged: whether `f(x0)` is not finite.
        status: values of `Status`.
        history: residual norms, `(max_iter + 1, *batch)`, NaN after the last one of a system; None unless requested.
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

    _norm = "residual_norm"

    @property
    def _words(self) -> Words:
        return "Newton's method", "|f(x)|", _OF_EQUATIONS


@dataclass(frozen=True, eq=False, repr=False)
class MinimizeResult(ArrayResult):
    """Result of `minimize`, with one entry per system of the batch (a scalar without batch axes).

    Usable as the return value of compiled functions and as a container of arrays.

    Attributes:
        x: the minimiser, in the type, shape, dtype and device of `x0`; NaN where a search failed, with
            `on_failure="nan"`.
        value: `f(x)` of the returned x, with derivatives like x.
        gradient: gradient of f at x, in the shape of x, with derivatives in unknowns at an active bound. In free
            unknowns it is zero, and so are its derivatives.
        gradient_norm: 2-norm of the projected gradient, without components that are blocked by bounds.
        tolerance: largest norm that counts as converged: `max(rtol |gradient at x0|, atol)`, or `attainable` if that
            decided.
        attainable: if rtol was not given and the search ended above the tolerance, the norm below which rounding of f
            hides the possible decrease; else 0.
        iterations: accepted steps.
        function_evaluations: evaluations of f with its gradient.
        converged: whether `gradient_norm <= tolerance`.
        diverged: whether f or its gradient overflowed.
        status: values of `Status`.
        history: values of f, `(iterations + 1, *batch)`, NaN after the last one of a system; None unless requested.
        trajectory: x of each step in the same form, `(iterations + 1, *shape of x)`.
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

    _norm = "gradient_norm"

    @property
    def _words(self) -> Words:
        if self.method not in SCIPY_METHODS:
            return self.method, "|gradient|", _OF_SEARCHES
        what, to_do = _OF_SEARCHES[Status.MAX_ITER]
        what += f", or of evaluations ({EVALUATIONS}, and {EVALUATIONS_A_STEP} for each iteration),"
        return self.method, "|gradient|", {**_OF_SEARCHES, Status.MAX_ITER: (what, to_do)}


def _described(words: Words, *numbers: np.ndarray) -> str:
    method, measure, failures = words
    status, steps, norm, tolerance = np.broadcast_arrays(*map(np.atleast_1d, numbers))
    if not status.size:
        return f"{method}: no systems to solve."
    failed = has_failed(status)
    if not failed.any():
        return success_in_words(f"{method} converged", measure, steps, norm, tolerance)
    worst = furthest(failed, norm, tolerance)
    what, to_do = failures[Status(int(status.flat[worst]))]
    taken = iterations_in_words(int(steps.flat[worst]))
    norms = norms_in_words(measure, norm.flat[worst], tolerance.flat[worst])
    return f"{method}{failed_in_words(failed, worst)} {what} after {taken}: {norms} To do: {to_do}."
