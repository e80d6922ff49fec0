"""The NonlinearResult class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array
from .array_result import ArrayResult
from .describe import describe_equations


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

    def _described(self, *numbers: np.ndarray) -> str:
        return describe_equations(*numbers)
