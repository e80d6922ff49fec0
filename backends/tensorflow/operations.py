"""TensorFlow's own functions for operations that the standard does not have."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..interface.arrays import Array
from .random_numbers import TensorflowRandomNumbers

RandomNumbers = TensorflowRandomNumbers
einsum, eig, eigvals = tf.einsum, tf.linalg.eig, tf.linalg.eigvals
lgamma = tf.math.lgamma
_UPDATES = {
    "update": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


def scatter_rows(rows: Array, places: Array, values: Array, mode: str) -> Array:
    """Rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    found = _UPDATES[mode](rows, places[:, None], values)
    if mode not in ("max", "min") or not rows.dtype.is_floating:
        return found
    # TensorFlow's comparisons pass over NaN.
    unknown = _UPDATES["add"](_is_nan(rows), places[:, None], _is_nan(values)) > 0
    return tf.where(unknown, tf.constant(np.nan, rows.dtype), found)


def _is_nan(x: Array) -> Array:
    return tf.cast(tf.math.is_nan(x), tf.int32)


def erf(x: Array) -> Array:
    """The error function; TensorFlow's squares its argument, which overflows."""
    return tf.math.erf(tf.clip_by_value(x, -30, 30))


def _with_limits(function: Callable[[Array, Array], Array], at_zero: float) -> Callable[[Array, Array], Array]:
    """An incomplete gamma function with SciPy's limits for zeros and infinities; `at_zero` is that of x = 0."""

    def of_any(a: Array, x: Array) -> Array:
        zero, infinite, nan = (tf.constant(number, a.dtype) for number in (0, np.inf, np.nan))
        a, x = a + 0 * tf.where(tf.math.is_finite(x), x, zero), x + 0 * tf.where(tf.math.is_finite(a), a, zero)
        inside = (a > 0) & (x > 0) & (a < infinite) & (x < infinite)
        found = function(tf.where(inside, a, tf.ones_like(a)), tf.where(inside, x, tf.ones_like(x)))
        low = ((x == 0) & (a > 0)) | ((a == infinite) & (x >= 0) & (x < infinite))
        high = ((a == 0) & (x > 0)) | ((x == infinite) & (a >= 0) & (a < infinite))
        # No Python zero, for which TensorFlow may hand out the -0.0 of an earlier constant.
        below, above = (tf.zeros_like(a), tf.ones_like(a))[:: 1 if at_zero == 0 else -1]
        return tf.where(inside, found, tf.where(low, below, tf.where(high, above, nan)))

    return of_any


gammainc, gammaincc = _with_limits(tf.math.igamma, 0.0), _with_limits(tf.math.igammac, 1.0)


def shape(x: Array) -> tuple[Any, ...]:
    """The shape; sizes that only a run of the graph tells are tensors."""
    known, now = x.shape, tf.shape(x)
    return tuple(now[axis] if n is None else n for axis, n in enumerate(known))


def variable(x: Array) -> Array:
    """A variable with the values of `x`, which a tape watches."""
    return tf.Variable(x)


def block_until_ready(tree: Any) -> Any:
    """See `operations.functions`."""
    if tf.executing_eagerly():
        tf.test.experimental.sync_devices()
    return tree


def compile(f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """See `operations.functions`; a graph is made for each value of what is no tensor, named or not."""
    return tf.function(f, autograph=False)
