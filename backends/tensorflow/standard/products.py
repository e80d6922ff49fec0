"""Products of vectors, matrices and tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ...standard.library import axes_of, check_lengths
from .elementwise import conj
from .library import WHOLE, in_int64

# Integers that TensorFlow does not multiply matrices of.
_WIDENED = WHOLE - {tf.int32, tf.int64}


def _matmul(a: Any, b: Any) -> Any:
    if len(a.shape) == len(b.shape) == 1:
        check_lengths("matmul", a, b, 0)
        return tf.reduce_sum(a * b)
    if len(b.shape) == 1:
        return tf.linalg.matvec(a, b)
    return tf.squeeze(tf.matmul(a[..., None, :], b), -2) if len(a.shape) == 1 else tf.matmul(a, b)


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices, or of a matrix and a vector."""
    if not (len(x1.shape) and len(x2.shape)):
        raise ValueError("xp.matmul got an array without axes; expected vectors or matrices. Numbers take xp.multiply.")
    return in_int64(_WIDENED, _matmul)(x1, x2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Products summed over pairs of axes."""
    return in_int64(_WIDENED, tf.tensordot)(x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of conj(x1) x2 over an axis."""
    check_lengths("vecdot", x1, x2, axis)
    return tf.reduce_sum(conj(x1) * x2, axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """All products of an element of each of two vectors."""
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise ValueError(f"xp.linalg.outer got shapes {tuple(x1.shape)} and {tuple(x2.shape)}; expected vectors.")
    return x1[:, None] * x2


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product."""
    check_lengths("linalg.cross", x1, x2, axis, 3)
    axis = axis if axis < 0 else axes_of(axis, len(x1.shape))[0] - len(x1.shape)
    one, two = (lambda x: tf.roll(x, -1, axis)), (lambda x: tf.roll(x, -2, axis))
    return one(x1) * two(x2) - two(x1) * one(x2)
