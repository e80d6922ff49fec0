"""The MinimizeResult class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend
from .describe import describe_minimum


@dataclass(frozen=True, eq=False, repr=False)
class MinimizeResult:
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

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        return describe_minimum(self.method, *[np.asarray(bk.to_numpy(a)) for a in self.end_state()])

    def end_state(self) -> tuple[Array, ...]:
        """Numbers for the message, the status in front."""
        return self.status, self.iterations, self.gradient_norm, self.tolerance

    def __repr__(self) -> str:
        return f"<MinimizeResult: {self.message}>"

    # TensorFlow asks the class itself how to take it apart.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        arrays, static = _flatten(self)
        return static, tuple(arrays)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> MinimizeResult:
        return _unflatten(static, arrays)


_ARRAYS = (
    "x", "value", "gradient", "gradient_norm", "tolerance", "attainable", "iterations", "function_evaluations",
    "converged", "diverged", "status",
)  # fmt: skip
_RECORDS = ("history", "trajectory")


def _flatten(result: MinimizeResult) -> tuple[Sequence[Any], tuple[Any, ...]]:
    names = _ARRAYS if result.history is None else (*_ARRAYS, *_RECORDS)
    return [getattr(result, name) for name in names], (result.method, result.history is not None)


def _unflatten(static: Any, arrays: Sequence[Any]) -> MinimizeResult:
    method, recorded = static
    values = dict(zip((*_ARRAYS, *_RECORDS), arrays if recorded else (*arrays, None, None), strict=True))
    return MinimizeResult(**values, method=method)


def register_minimize_result(bk: Backend) -> None:
    """Make `MinimizeResult` a container of arrays for this backend's transformations."""
    bk.register(MinimizeResult, _flatten, _unflatten)
