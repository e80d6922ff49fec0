"""Random numbers, and TensorFlow's own functions for operations that the standard does not have.

With a key random numbers are functions of it, without one new numbers at each run of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..interface import random_numbers
from ..interface.arrays import Array

_SPLIT = 0x5EED  # keys of a split have nothing to do with the numbers of the key
_PHILOX = "philox"  # or XLA could take another algorithm


class TensorflowRandomNumbers(random_numbers.RandomNumbers):
    """Draws by `tf.random`."""

    def key(self, seed: Any) -> tf.Tensor:
        if isinstance(seed, tf.Tensor):
            return tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
        number = random_numbers.known_seed(seed)
        return tf.constant([number % 2**63, (number >> 63) % 2**63], tf.int64)

    def split(self, key: Any, count: int) -> Sequence[tf.Tensor]:
        apart = tf.random.experimental.stateless_fold_in(self._known(key), _SPLIT, alg=_PHILOX)
        return tf.unstack(tf.random.experimental.stateless_split(apart, count, alg=_PHILOX), count)

    def seed(self, seed: int) -> None:
        tf.random.set_seed(random_numbers.known_seed(seed))

    def uniform(self, shape: Sequence[int], double: bool, key: Any) -> tf.Tensor:
        if key is None:
            return tf.random.uniform(shape, dtype=_real(double))
        return tf.random.stateless_uniform(shape, self._known(key), dtype=_real(double), alg=_PHILOX)

    def normal(self, shape: Sequence[int], double: bool, key: Any) -> tf.Tensor:
        if key is None:
            return tf.random.normal(shape, dtype=_real(double))
        return tf.random.stateless_normal(shape, self._known(key), dtype=_real(double), alg=_PHILOX)

    def integers(self, shape: Sequence[int], low: int, high: int, key: Any) -> tf.Tensor:
        if key is None:
            return tf.random.uniform(shape, low, high, tf.int64)
        return tf.random.stateless_uniform(shape, self._known(key), low, high, tf.int64, alg=_PHILOX)

    def widest_limits(self, key: Any) -> tuple[int, int]:
        return tf.int64.min, tf.int64.max

    def permutations(self, count: int, n: int, key: Any) -> tf.Tensor:
        return tf.cast(tf.argsort(self.uniform((count, n), True, key), axis=1), tf.int64)

    def _known(self, key: Any) -> tf.Tensor:
        if isinstance(key, (int, np.integer)):
            return self.key(key)
        if not isinstance(key, (tf.Tensor, np.ndarray)) or tuple(key.shape) != (2,):
            what = f"an array of shape {tuple(key.shape)}" if hasattr(key, "shape") else f"a {type(key).__name__}"
            raise TypeError(
                f"key= got {what}; expected what random_key(seed) of this backend has returned, or an integer."
            )
        return tf.convert_to_tensor(key)


def _real(double: bool) -> tf.DType:
    return tf.float64 if double else tf.float32


# --- TensorFlow's own functions for operations that the standard does not have ----------------------------------------

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
