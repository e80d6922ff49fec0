"""What NumPy adds to tracing: its functions as linear maps, and their values for a known input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ...errors import UnsupportedOperation
from ..front_end import FrontEnd
from ..traced import Traced
from .trace import trace_function
from .watch import WatchedArray


class NumpyFrontEnd:
    """Functions of NumPy run once with stand-ins for their arrays."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        return trace_function(function, like, args, kwargs, keep_zeros)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        if not watch:
            return traced.program(leaves), 0.0
        seen = [0.0]
        return traced.program([WatchedArray.of(np.array(leaf), seen) for leaf in leaves]), seen[0]

    def sample(self, traced: Traced, inputs: Any, wanted: Any) -> None:
        """Functions of NumPy compute whole arrays only."""

    def forward_derivative(self, f: Any, x: Any, args: Any, kwargs: Any) -> NoReturn:
        raise UnsupportedOperation(
            "NumPy has no derivatives of functions. Write the function with JAX, and give x as an array of JAX."
        )

    reverse_derivative = forward_derivative

    def has_only_reverse_rule(self, error: Exception) -> bool:
        return False


FRONT_END: FrontEnd = NumpyFrontEnd()
