"""Rules for sums, multiples, dtypes, sums over axes, and for operations that change no value."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends import get_backend
from .....backends.tensorflow.program import evaluate
from ....errors import UnsupportedOperation
from ...engine import coefficients as co
from ...engine.arithmetic import (
    cumulative_sum,
    divide,
    imaginary_part,
    negate,
    real_part,
    reduce_sum,
    scale,
    subtract,
)
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import NotLinear, complex_of, integers, plus
from ...engine.products import multiply, quotient
from ...engine.structural import broadcast_to, pad
from ...interpreter import conjugated


def coefficient(x: tf.Tensor) -> Any:
    """A tensor that was computed of coefficients, as one."""
    return x if tf.is_symbolic_tensor(x) or get_backend("tensorflow").tracks(x) else x.numpy()


def _sum_of_all(op: tf.Operation, *parts: Any) -> Any:
    return reduce(plus, parts)


def _power(op: tf.Operation, a: Any, b: Any) -> Any:
    if isinstance(b, Linear) or not co.known(b) or not np.all(np.asarray(b) == 1):
        raise NotLinear()
    return broadcast_to(a, np.broadcast_shapes(a.shape, np.shape(b)))


def _convert(op: tf.Operation, x: Linear) -> Any:
    dtype = op.outputs[0].dtype
    if not (dtype.is_floating or dtype.is_complex):
        raise NotLinear(f"{dtype.name} rounds")
    return real_part(x) if x.dtype.kind == "c" and not dtype.is_complex else x


def _complex(op: tf.Operation, real: Any, imaginary: Any) -> Any:
    dtype = np.dtype(op.outputs[0].dtype.as_numpy_dtype)
    return complex_of(linear_among([real, imaginary], "complex").bk, real, imaginary, dtype)


def _same(op: tf.Operation, x: Any, *others: Any) -> Any:
    return x


def _bias_add(op: tf.Operation, x: Any, bias: Any) -> Any:
    ndim = len(op.inputs[0].shape)
    if op.get_attr("data_format") == b"NCHW":
        shape = (1, -1, *[1] * (ndim - 2))
        if isinstance(bias, Linear):
            bias = reshape(bias, (1, bias.size, *shape[2:]))
        else:
            bias = bias.reshape(shape) if co.known(bias) else tf.reshape(bias, shape)
    return plus(x, bias)


def _bias_add_gradient(op: tf.Operation, x: Linear) -> Any:
    channel = 1 if op.get_attr("data_format") == b"NCHW" else x.ndim - 1
    return reduce_sum(x, [a for a in range(x.ndim) if a != channel])


def axes_of(x: Linear, axis: Any) -> list[int]:
    """The axes that an operand names."""
    return [a % x.ndim for a in integers("axis", axis)] if x.ndim else []


def _sum(op: tf.Operation, x: Any, axis: Any) -> Any:
    if not isinstance(x, Linear):
        raise NotLinear("the axis depends on it")
    return reduce_sum(x, axes_of(x, axis), bool(op.get_attr("keep_dims")))


def _mean(op: tf.Operation, x: Any, axis: Any) -> Any:
    total = _sum(op, x, axis)
    return divide(total, float(math.prod(x.shape[a] for a in set(axes_of(x, axis)))))


def _cumulative_sum(op: tf.Operation, x: Any, axis: Any) -> Any:
    if not x.ndim:
        return x
    (axis,), backwards = axes_of(x, axis), bool(op.get_attr("reverse"))
    sums = cumulative_sum(x, axis, backwards)
    if not op.get_attr("exclusive") or not x.shape[axis]:
        return sums
    width = (-1, 1, 0) if backwards else (1, -1, 0)
    return pad(sums, [width if a == axis else (0, 0, 0) for a in range(x.ndim)])


def pointwise(*places: int) -> Callable[..., Any]:
    """A rule for an operation on single elements that is linear in the operands at these places: a factor for each."""

    def rule(op: tf.Operation, *values: Any) -> Any:
        linear = [k for k, value in enumerate(values) if isinstance(value, Linear)]
        if len(linear) != 1 or linear[0] not in places:
            raise NotLinear()
        x = values[linear[0]]
        ones = np.ones(x.shape, x.dtype)
        factor = evaluate(op, [ones if k == linear[0] else value for k, value in enumerate(values)])[0]
        return scale(x, coefficient(factor))

    return rule


def normalised(op: tf.Operation, x: Any, *settings: Any) -> list[Any]:
    """Batch normalisation by known means and variances: a factor and a bias for each channel."""
    if op.get_attr("is_training") or not isinstance(x, Linear) or any(isinstance(s, Linear) for s in settings):
        raise NotLinear("" if op.get_attr("is_training") else "what it is scaled by depends on it")
    channels = x.shape[1] if op.get_attr("data_format") == b"NCHW" else x.shape[-1]
    shape = (1, channels, 1, 1) if op.get_attr("data_format") == b"NCHW" else (1, 1, 1, channels)
    zero, one = (evaluate(op, [np.full(shape, c, x.dtype), *settings])[0] for c in (0, 1))
    why = UnsupportedOperation("it is no result of a normalisation that depends on the input linearly.")
    return [plus(scale(x, coefficient(one - zero)), coefficient(zero)), *[why] * (len(op.outputs) - 1)]


_IDENTITIES = (
    *("Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape", "DebugIdentityV2"),
    *("DeepCopy", "PlaceholderWithDefault", "OptimizationBarrier", "Copy", "CopyHost", "DebugGradientIdentity"),
)
_GRADIENTS = ("TanhGrad", "SigmoidGrad", "InvGrad", "ReciprocalGrad", "SqrtGrad", "RsqrtGrad")
_GRADIENTS_FIRST = (*("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"),)

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": _sum_of_all,
    "AddV2": _sum_of_all,
    "AddN": _sum_of_all,
    "AccumulateNV2": _sum_of_all,
    "Sub": lambda op, a, b: subtract(a, b),
    "Mul": lambda op, a, b: multiply(a, b),
    "RealDiv": lambda op, a, b: quotient(a, b),
    "Div": lambda op, a, b: quotient(a, b),
    "Neg": lambda op, x: negate(x),
    "Pow": _power,
    "Cast": _convert,
    "Complex": _complex,
    "Real": lambda op, x: real_part(x),
    "Imag": lambda op, x: imaginary_part(x),
    "Conj": lambda op, x: conjugated(x.bk, x),
    "BiasAdd": _bias_add,
    "BiasAddV1": _bias_add,
    "BiasAddGrad": _bias_add_gradient,
    "Sum": _sum,
    "Mean": _mean,
    "Cumsum": _cumulative_sum,
    "DivNoNan": pointwise(0),
    "MulNoNan": pointwise(0, 1),
    "Xdivy": pointwise(0),
    "Xlogy": pointwise(0),
    "Xlog1py": pointwise(0),
    "FusedBatchNormV3": normalised,
    "IdentityN": lambda op, *values: list(values),
    **dict.fromkeys(_IDENTITIES, _same),
    **dict.fromkeys(_GRADIENTS, pointwise(1)),
    **dict.fromkeys(_GRADIENTS_FIRST, pointwise(0)),
}
