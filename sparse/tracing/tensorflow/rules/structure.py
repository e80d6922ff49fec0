"""Rules for operations that move whole blocks of elements, and for those that ask for shapes only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...conjugates import Conjugate, conjugated
from ...engine import coefficients as co
from ...engine.arithmetic import add, scale
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import padded, shape_of
from ...engine.operations.along import pad_by_mode, pad_by_mode_adjoint, roll
from ...engine.operations.choice import where
from ...engine.refusals import integers, static, static_needed
from ...engine.structural import broadcast_to, concatenate, pad, reverse, stack, tile, transpose


def linear_operand(x: Any, *others: Any) -> Linear:
    """The first operand, which is the one that may depend on the input.

    Raises:
        NonlinearError: another one does, which decides the structure.
    """
    if not isinstance(x, Linear):
        other = next(value for value in others if isinstance(value, Linear))
        raise static_needed("structure", other)
    return x


def _reshape(op: tf.Operation, x: Any, shape: Any) -> Any:
    x, lengths = linear_operand(x, shape), integers("shape", shape)
    rest = math.prod(n for n in lengths if n >= 0)
    return reshape(x, [x.size // max(rest, 1) if n < 0 else n for n in lengths])


def _expand(op: tf.Operation, x: Any, axis: Any) -> Any:
    (axis,) = integers("axis", axis)
    axis = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def _squeeze(op: tf.Operation, x: Linear) -> Any:
    axes = [a % x.ndim for a in op.get_attr("squeeze_dims")] or [a for a, n in enumerate(x.shape) if n == 1]
    return reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


def _transpose(op: tf.Operation, x: Any, axes: Any) -> Any:
    x = linear_operand(x, axes)
    return transpose(x, [a % x.ndim for a in integers("order", axes)])


def _conjugate_transpose(op: tf.Operation, x: Any, axes: Any) -> Any:
    return conjugated(x.bk, _transpose(op, x, axes))


def _broadcast(op: tf.Operation, x: Any, shape: Any) -> Any:
    return broadcast_to(linear_operand(x, shape), integers("shape", shape))


def _tile(op: tf.Operation, x: Any, reps: Any) -> Any:
    return tile(linear_operand(x, reps), integers("number of copies", reps))


def _fill(op: tf.Operation, shape: Any, x: Any) -> Any:
    return broadcast_to(x, integers("shape", shape))


# --- joining --------------------------------------------------------------------------------------------------------


def _concatenate(op: tf.Operation, *values: Any) -> Any:
    *parts, axis = values
    (axis,) = integers("axis", axis)
    return concatenate(parts, axis % len(shape_of(parts[0])))


def _pack(op: tf.Operation, *parts: Any) -> Any:
    return stack(parts, op.get_attr("axis") % (len(shape_of(parts[0])) + 1))


def _roll(op: tf.Operation, x: Any, shift: Any, axis: Any) -> Any:
    return roll(linear_operand(x, shift, axis), integers("shift", shift), integers("axis", axis))


def _reverse(op: tf.Operation, x: Any, axes: Any) -> Any:
    x = linear_operand(x, axes)
    return reverse(x, [a % x.ndim for a in integers("axis", axes)])


# --- padding --------------------------------------------------------------------------------------------------------


def _pairs(widths: Any) -> list[tuple[int, int]]:
    return [(int(lo), int(hi)) for lo, hi in static("padding", widths)]


def _pad(op: tf.Operation, x: Any, widths: Any, fill: Any = 0) -> Any:
    config = [(lo, hi, 0) for lo, hi in _pairs(widths)]
    if not isinstance(fill, Linear):
        return pad(x, config, fill)
    around = scale(fill, co.pad_known(np.zeros(shape_of(x), fill.dtype), config, 1))
    return add(padded(fill.bk, x, config), around)


_MODES = {b"REFLECT": "reflect", b"SYMMETRIC": "symmetric"}


def _mirror_pad(by: Callable[..., Linear]) -> Callable[..., Any]:
    return lambda op, x, widths: by(x, _pairs(widths), _MODES[op.get_attr("mode")])


# --- choice ---------------------------------------------------------------------------------------------------------


def _where_first(op: tf.Operation, condition: Any, a: Any, b: Any) -> Any:
    """As TensorFlow did in its first version: a vector chooses rows."""
    if not isinstance(condition, Linear) and len(shape_of(condition)) == 1:
        lengths = (*shape_of(condition), *[1] * (len(shape_of(a)) - 1))
        condition = co.reshape(linear_among([a, b], "where").bk, condition, lengths)
    return where(condition, a, b)


# --- shapes ---------------------------------------------------------------------------------------------------------


def _shape(x: Any) -> tuple[int, ...]:
    return x.linear.shape if isinstance(x, Conjugate) else shape_of(x)


def _integer(op: tf.Operation) -> Any:
    return op.outputs[0].dtype.as_numpy_dtype


SHAPES: dict[str, Callable[..., list[Any]]] = {  # of what may depend on the input; the results do not
    "Shape": lambda op, x: [np.asarray(_shape(x), _integer(op))],
    "ShapeN": lambda op, *xs: [np.asarray(_shape(x), _integer(op)) for x in xs],
    "Size": lambda op, x: [np.asarray(math.prod(_shape(x)), _integer(op))],
    "Rank": lambda op, x: [np.asarray(len(_shape(x)), np.int32)],
    "ZerosLike": lambda op, x: [np.zeros(_shape(x), _integer(op))],
    "OnesLike": lambda op, x: [np.ones(_shape(x), _integer(op))],
}


STRUCTURE: dict[str, Callable[..., Any]] = {
    "Reshape": _reshape,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "ConjugateTranspose": _conjugate_transpose,
    "BroadcastTo": _broadcast,
    "Tile": _tile,
    "Fill": _fill,
    "ConcatV2": _concatenate,
    "Concat": lambda op, axis, *parts: _concatenate(op, *parts, axis),
    "Pack": _pack,
    "Roll": _roll,
    "ReverseV2": _reverse,
    "Pad": _pad,
    "PadV2": _pad,
    "MirrorPad": _mirror_pad(pad_by_mode),
    "MirrorPadGrad": _mirror_pad(pad_by_mode_adjoint),
    "Select": _where_first,
    "SelectV2": lambda op, *values: where(*values),
}
