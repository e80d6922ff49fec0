"""TensorFlow's own functions for operations that the standard does not have."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..interface.arrays import Array
from .random_numbers import TensorflowRandomNumbers

RandomNumbers = TensorflowRandomNumbers
einsum, eig, eigvals = tf.einsum, tf.linalg.eig, tf.linalg.eigvals
erf, lgamma = tf.math.erf, tf.math.lgamma
gammainc, gammaincc = tf.math.igamma, tf.math.igammac
_UPDATES = {
    "update": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


def scatter_rows(rows: Array, places: Array, values: Array, mode: str) -> Array:
    """Rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    return _UPDATES[mode](rows, places[:, None], values)


def shape(x: Array) -> tuple[Any, ...]:
    """The shape; sizes that only a run of the graph tells are tensors."""
    known, now = x.shape, tf.shape(x)
    return tuple(now[axis] if n is None else n for axis, n in enumerate(known))


def variable(x: Array) -> Array:
    """A variable with the values of `x`, which a tape watches."""
    return tf.Variable(x)


def block_until_ready(tree: Any) -> Any:
    """See `operations.whole`."""
    if tf.executing_eagerly():
        tf.test.experimental.sync_devices()
    return tree


def compile(f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """See `operations.whole`; a graph is made for each value of what is no tensor, named or not."""
    return tf.function(f, autograph=False)
