"""Rules for operations that are linear in one operand, by their images of its unit vectors; and for all without a rule.

The images are a dense matrix, so this is for small arrays: interpolation, solves with a known matrix, and derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends.tensorflow.program import evaluate
from ...engine.linear import Linear
from ...engine.operations.unit_images import along_axes, by_unit_images, seems_linear
from ...engine.refusals import NoRule, NotLinear, integers
from .arithmetic import coefficient
from .structure import linear_operand


def by_images(place: int) -> Callable[..., Any]:
    """A rule for an operation that is linear in the operand at this place."""

    def rule(op: tf.Operation, *values: Any) -> Any:
        if [k for k, value in enumerate(values) if isinstance(value, Linear)] != [place]:
            raise NotLinear()
        given = list(values)

        def image(unit: np.ndarray) -> Any:
            given[place] = unit
            return coefficient(evaluate(op, given)[0])

        return by_unit_images(values[place], image)

    return rule


def _separable(op: tf.Operation, x: Any, size: Any) -> Any:
    """Interpolation of images `(batch, rows, columns, channels)`: along one axis after the other."""

    def images(k: int, n: int, m: int) -> np.ndarray:
        units = np.eye(n, dtype=np.float32).reshape((n, n, 1, 1) if k == 0 else (n, 1, n, 1))
        wanted = np.asarray([m, 1] if k == 0 else [1, m], np.int32)
        found: np.ndarray = evaluate(op, [units, wanted], {op.inputs[0].dtype: tf.float32})[0].numpy()
        return found

    return along_axes(linear_operand(x, size), (1, 2), integers("size", size), images)


def without_rule(op: tf.Operation, values: Sequence[Any]) -> Exception:
    """The error for an operation without a rule: it is not linear, or it only might be."""

    def image(value_of: Callable[[Any], Any]) -> np.ndarray:
        found = evaluate(op, [value_of(value) for value in values])[0]
        if tf.is_symbolic_tensor(found) or not (found.dtype.is_floating or found.dtype.is_complex):
            raise TypeError("No floating numbers.")
        numbers: np.ndarray = found.numpy()
        return numbers

    try:
        is_linear = seems_linear(image)
    except Exception:  # whatever an unknown operation does with such operands
        is_linear = all(x.dtype.is_floating or x.dtype.is_complex for x in op.outputs)
    return NoRule() if is_linear else NotLinear()


LOCAL: dict[str, Callable[..., Any]] = {
    "ResizeBilinear": _separable,
    "ResizeBicubic": _separable,
    **dict.fromkeys(("ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad"), by_images(0)),
    **dict.fromkeys(("ScaleAndTranslate", "ScaleAndTranslateGrad", "ResizeArea"), by_images(0)),
    **dict.fromkeys(
        ("MatrixSolve", "MatrixTriangularSolve", "TridiagonalSolve", "BandedTriangularSolve"), by_images(1)
    ),
    "TridiagonalMatMul": by_images(3),
    **dict.fromkeys(("MaxPoolGrad", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPool3DGradGrad"), by_images(2)),
    **dict.fromkeys(("DepthwiseConv2dNativeBackpropFilter",), by_images(2)),
}
