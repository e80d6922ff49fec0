"""The MinimizeResult class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array
from .array_result import ArrayResult
from .describe import describe_minimum


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

    def _described(self, *numbers: np.ndarray) -> str:
        return describe_minimum(self.method, *numbers)
