"""Rules for operations that are linear in one operand, by their images of its unit vectors; and for all without a rule.

The images are a dense matrix, so this is for small arrays: interpolation, solves with a known matrix, and derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends.tensorflow.evaluate import evaluate
from ....errors import UnsupportedOperation
from ...engine import coefficients as co
from ...engine.limits import check_entries
from ...engine.linear import Linear, reshape
from ...engine.products.rounding import dense_along
from ...engine.refusals import NoRule, NotLinear, integers
from .arithmetic import coefficient
from .structure import linear_operand

MOST = 2**22  # entries of the matrix of one operation
MOST_UNITS = 4096


def by_images(place: int) -> Callable[..., Any]:
    """A rule for an operation that is linear in the operand at this place."""

    def rule(op: tf.Operation, *values: Any) -> Any:
        linear = [k for k, value in enumerate(values) if isinstance(value, Linear)]
        if linear != [place]:
            raise NotLinear()
        x, given = values[place], list(values)
        if x.size > MOST_UNITS or x.size**2 > 4 * MOST:
            raise UnsupportedOperation(
                f"it has no rule but by its images of all {x.size} unit vectors. Trace a smaller problem, or "
                "solve with the function itself instead of its matrix."
            )

        def image(unit: np.ndarray) -> tf.Tensor:
            given[place] = unit.reshape(x.shape)
            return evaluate(op, given)[0]

        images = [image(unit) for unit in np.eye(max(x.size, 1), x.size, dtype=x.dtype)]
        shape = tuple(images[0].shape)
        columns = [coefficient(found) for found in images[: x.size]]
        count = math.prod(shape)
        if all(map(co.known, columns)):
            matrix: Any = np.stack([c.reshape(-1) for c in columns], 1) if columns else np.zeros((count, 0), x.dtype)
        else:
            matrix = tf.stack([tf.reshape(c, [-1]) for c in images], 1)
        return reshape(dense_along(reshape(x, (x.size,)), [0], matrix, [count]), shape)

    return rule


def _separable(op: tf.Operation, x: Any, size: Any) -> Any:
    """Interpolation of images `(batch, rows, columns, channels)`: along one axis after the other."""
    x = linear_operand(x, size)
    lengths = integers("size", size)
    for axis, m in zip((1, 2), lengths):
        n = x.shape[axis]
        check_entries(n * max(n, m), "Interpolation along an axis")
        units = np.eye(n, dtype=np.float32).reshape((n, n, 1, 1) if axis == 1 else (n, 1, n, 1))
        wanted = np.asarray([m, 1] if axis == 1 else [1, m], np.int32)
        images = evaluate(op, [units, wanted], {op.inputs[0].dtype: tf.float32})[0].numpy()
        x = dense_along(x, [axis], images.reshape(n, m).T.astype(x.dtype), [m])
    return x


def without_rule(op: tf.Operation, values: Sequence[Any]) -> Exception:
    """The error for an operation without a rule: it is not linear, or it only might be."""
    try:
        zero, u, v, both = (_image(op, values, *factors) for factors in ((0, 0), (1, 0), (0, 1), (1, -2)))
        is_linear = np.allclose(both - zero, (u - zero) - 2 * (v - zero), equal_nan=True)
    except Exception:  # whatever an unknown operation does with such operands
        is_linear = all(x.dtype.is_floating or x.dtype.is_complex for x in op.outputs)
    return NoRule() if is_linear else NotLinear()


def _image(op: tf.Operation, values: Sequence[Any], a: float, b: float) -> np.ndarray:
    """The operation of a u + b v for random u and v."""
    rng = np.random.default_rng(0)
    given = []
    for value in values:
        if isinstance(value, Linear):
            u, v = rng.standard_normal((2, *value.shape))
            value = np.asarray(a * u + b * v, value.dtype)
        given.append(value)
    found = evaluate(op, given)[0]
    if tf.is_symbolic_tensor(found) or not (found.dtype.is_floating or found.dtype.is_complex):
        raise TypeError("No floating numbers.")
    image: np.ndarray = found.numpy()
    return image


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
