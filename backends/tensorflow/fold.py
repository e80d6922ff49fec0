"""Constant folding of symbolic tensors.

Inside of `tf.function` even `tf.range(8)` is symbolic. Where a coefficient is such a value the matrix can be known
while the graph is made, and where a mask or an index is, its structure. What the graph captures counts as constant for
integers and booleans only, unless it is asked for: a derivative of the program by it may be wanted later.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .evaluate import evaluate, is_eager, value_of

MAX_OPERATIONS = 2000


class GraphConstantFolder:
    """Constant folder for one trace, with a cache of values."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bool], tuple[Any, Any]] = {}  # with the tensor, so that its id stays its own

    def value(self, x: tf.Tensor, captured: bool = False) -> Any:
        """The value of a tensor; None where it is not known.

        With `captured` also of floating numbers that were computed from what the graph captures, which is the same
        whenever it runs: for what has no derivatives.
        """
        captured = captured or not (x.dtype.is_floating or x.dtype.is_complex)
        pending, count = [x], 0
        while pending:
            tensor = pending[-1]
            if (id(tensor), captured) in self._found:
                pending.pop()
                continue
            sources = self._sources(tensor, captured)
            missing = [s for s in sources or () if (id(s), captured) not in self._found and not is_eager(s)]
            count += 1
            if count > MAX_OPERATIONS:
                return None
            if missing:
                pending += missing
                continue
            self._compute(tensor, sources, captured)
        return self._found[id(x), captured][1]

    def _sources(self, x: tf.Tensor, captured: bool) -> list[tf.Tensor] | None:
        """Tensors from which it is computed; None if unknown."""
        outside = _captured(x)
        if outside is not None:
            return [outside] if captured else None
        op = x.op
        if op.type == "Placeholder" or op.op_def.is_stateful or op.type.endswith(("While", "If", "Case", "Call")):
            return None
        return list(op.inputs)

    def _compute(self, x: tf.Tensor, sources: list[tf.Tensor] | None, captured: bool) -> None:
        values = [s if is_eager(s) else self._found[id(s), captured][1] for s in sources or ()]
        if sources is None or any(value is None for value in values):
            self._found[id(x), captured] = x, None
        elif _captured(x) is not None:
            self._found[id(x), captured] = x, values[0]
        elif x.op.type == "Const":
            self._found[id(x), captured] = x, value_of(x.op)
        else:
            for output, value in zip(x.op.outputs, evaluate(x.op, values)):
                self._found[id(output), captured] = output, value


def _captured(x: tf.Tensor) -> Any:
    """The outer tensor that a graph captures; small ones look like constants."""
    for outside, inside in getattr(x.graph, "captures", ()):
        if inside is x:
            return outside
    return None
