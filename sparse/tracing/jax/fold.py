"""Values of tracers that were computed from constants only.

Inside `jax.jit` even `jnp.linspace(0, 1, 8)` is a tracer. Where a coefficient is such a value, the matrix can be known
while the program is compiled, and preconditioners are set up then. JAX remembers how each tracer was made, but does not
publish it: whatever is not as expected here leaves the tracer as it is, which is right too, only later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .known.table import as_known

MAX_TRACERS = 2000
_UNKNOWN = object()


class JaxprConstantFolder:
    """Remembers the values found, for one trace.

    Args:
        evaluate: `(equation, known values) -> known results`.
    """

    def __init__(self, evaluate: Callable[[Any, Sequence[Any]], list[Any]]) -> None:
        self._evaluate = evaluate
        self._found: dict[int, tuple[Any, Any]] = {}  # the tracer is kept, so that its id stays its own

    def value(self, x: Any) -> np.ndarray | None:
        """The value of a tracer; None where it depends on an argument of the compiled function, or cannot be found."""
        try:
            value = self._search(_lowered(x))
        except Exception:  # private parts of JAX: anything may be different in another version
            return None
        return value if isinstance(value, np.ndarray) else None

    def _search(self, x: Any) -> Any:
        pending = [x]
        while pending:
            tracer = pending[-1]
            if self._get(tracer) is not None:
                pending.pop()
                continue
            if len(self._found) > MAX_TRACERS:
                return None
            equation = getattr(tracer, "parent", None)
            if equation is None or equation.effects:
                self._put(tracer, _UNKNOWN)
                continue
            sources = [_lowered(source) for source in equation.in_tracers]
            values = [self._get(source) for source in sources]
            if any(value is _UNKNOWN for value in values):
                self._put(tracer, _UNKNOWN)
            elif any(value is None for value in values):
                pending += [source for source, value in zip(sources, values) if value is None]
            else:
                results = self._evaluate(equation, values)
                index = next(i for i, v in enumerate(equation.outvars) if v is tracer.val)
                self._put(tracer, results[index])
        return self._get(x)

    def _get(self, x: Any) -> Any:
        if not isinstance(x, jax.core.Tracer):
            return as_known(x)
        return self._found.get(id(x), (None,))[0]

    def _put(self, tracer: Any, value: Any) -> None:
        self._found[id(tracer)] = (value, tracer)


def _lowered(x: Any) -> Any:
    """The constant, or the tracer of an outer transformation, that a tracer stands for."""
    while isinstance(x, jax.core.Tracer):
        lower = x.full_lower() if hasattr(x, "full_lower") else x
        if lower is x:
            return x
        x = lower
    return x
