"""Norms of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .library import COMPLEX, over
from .linalg import svdvals
from .reductions import max, min, root, sum

_BY_SINGULAR_VALUES = {"nuc": sum, 2: max, -2: min}
_BY_LINES = {1: (max, -2), -1: (min, -2), np.inf: (max, -1), -np.inf: (min, -1)}  # with the axis summed over


def _root_of_squares(x: Any, axes: Any, keepdims: bool) -> Any:
    squares = tf.math.real(x * tf.math.conj(x)) if x.dtype in COMPLEX else tf.square(x)
    return root(tf.reduce_sum(squares, axes, keepdims))


def vector_norm(x: Any, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norms of vectors, over one axis, several or all."""
    if ord == 2:
        return over(_root_of_squares, x, axis, keepdims)
    size = tf.abs(x)
    if ord in (np.inf, -np.inf):
        return (max if ord > 0 else min)(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum(tf.cast(size != 0, size.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis=axis, keepdims=keepdims)
    power = tf.constant(ord, size.dtype)
    return root(sum(size**power, axis=axis, keepdims=keepdims), power)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms of matrices."""
    if ord == "fro":
        return over(_root_of_squares, x, (-2, -1), keepdims)
    if ord in _BY_SINGULAR_VALUES:
        found = _BY_SINGULAR_VALUES[ord](svdvals(x), axis=-1)
        return found[..., None, None] if keepdims else found
    if ord not in _BY_LINES:
        raise ValueError(f"xp.linalg.matrix_norm got ord={ord!r}; expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")
    reduce, axis = _BY_LINES[ord]
    lines = sum(tf.abs(x), axis=axis, keepdims=True)
    return reduce(lines, axis=(-2, -1), keepdims=keepdims)
