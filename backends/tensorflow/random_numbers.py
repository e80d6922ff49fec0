"""Random numbers in TensorFlow: with a key functions of it, without one new numbers at each run of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..interface.random_numbers import RandomNumbers, known_seed

_SPLIT = 0x5EED  # keys of a split have nothing to do with the numbers of the key
_PHILOX = "philox"  # or XLA could take another algorithm


class TensorflowRandomNumbers(RandomNumbers):
    """Draws by `tf.random`."""

    def key(self, seed: Any) -> tf.Tensor:
        if isinstance(seed, tf.Tensor):
            return tf.stack([tf.cast(seed, tf.int64), tf.constant(0, tf.int64)])
        number = known_seed(seed)
        return tf.constant([number % 2**63, (number >> 63) % 2**63], tf.int64)

    def split(self, key: Any, count: int) -> Sequence[tf.Tensor]:
        apart = tf.random.experimental.stateless_fold_in(self._known(key), _SPLIT, alg=_PHILOX)
        return tf.unstack(tf.random.experimental.stateless_split(apart, count, alg=_PHILOX), count)

    def seed(self, seed: int) -> None:
        tf.random.set_seed(known_seed(seed))

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
