"""The NonlinearResult class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend
from .describe import describe_equations


@dataclass(frozen=True, eq=False, repr=False)
class NonlinearResult:
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

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        return describe_equations(*[np.asarray(bk.to_numpy(a)) for a in self.end_state()])

    def end_state(self) -> tuple[Array, ...]:
        """Numbers for the message, the status in front."""
        return self.status, self.iterations, self.residual_norm, self.tolerance

    def __repr__(self) -> str:
        return f"<NonlinearResult: {self.message}>"

    # TensorFlow asks the class itself how to take it apart.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        arrays, static = _flatten(self)
        return static, tuple(arrays)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> NonlinearResult:
        return _unflatten(static, arrays)


_ARRAYS = (
    "x", "residual", "residual_norm", "tolerance", "attainable", "iterations", "function_evaluations", "converged",
    "diverged", "status",
)  # fmt: skip


def _flatten(result: NonlinearResult) -> tuple[Sequence[Any], tuple[Any, ...]]:
    arrays = [getattr(result, name) for name in _ARRAYS]
    return [*arrays, *(() if result.history is None else (result.history,))], (result.method,)


def _unflatten(static: Any, arrays: Sequence[Any]) -> NonlinearResult:
    values = dict(zip((*_ARRAYS, "history"), (*arrays, None)[: len(_ARRAYS) + 1], strict=True))
    return NonlinearResult(**values, method=static[0])


def register_nonlinear_result(bk: Backend) -> None:
    """Make `NonlinearResult` a container of arrays for this backend's transformations."""
    bk.register(NonlinearResult, _flatten, _unflatten)
