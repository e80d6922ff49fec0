"""Random numbers by NumPy's counter-based generator, in arrays of any library; a library overrides what it has.

A key is two integers of 64 bits: the same key gives the same numbers, whatever was drawn before. Without a key numbers
come from a stream that each thread has for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from .arrays import Array

_own = threading.local()


class RandomNumbers:
    """Draws for one backend, in single or double precision and in the library's integers."""

    def __init__(self, bk: Any) -> None:
        self.bk = bk

    # --- keys ---------------------------------------------------------------------------------------------------------

    def key(self, seed: Any) -> Array:
        """The key of a seed."""
        words = np.random.SeedSequence(known_seed(seed)).generate_state(2, np.uint64)
        return self.bk.asarray(words.view(np.int64))

    def split(self, key: Any, count: int) -> Sequence[Array]:
        """Keys whose numbers have nothing to do with each other, nor with those of `key`."""
        # counters that no draw of this key reaches
        words = np.random.Philox(key=self._words(key), counter=[0, 0, 0, 1]).random_raw(2 * count)
        return [self.bk.asarray(pair) for pair in words.view(np.int64).reshape(count, 2)]

    def seed(self, seed: int) -> None:
        """Begin the stream anew from which numbers without a key come."""
        _own.generator = np.random.Generator(np.random.Philox(known_seed(seed)))

    # --- numbers ------------------------------------------------------------------------------------------------------

    def uniform(self, shape: Sequence[int], double: bool, key: Any) -> Array:
        """Real numbers in [0, 1)."""
        return self.bk.asarray(self._generator(key).random(shape, np.float64 if double else np.float32))

    def normal(self, shape: Sequence[int], double: bool, key: Any) -> Array:
        """Real numbers of the standard normal distribution."""
        return self.bk.asarray(self._generator(key).standard_normal(shape, np.float64 if double else np.float32))

    def integers(self, shape: Sequence[int], low: int, high: int, key: Any) -> Array:
        """Integers in [low, high)."""
        return self.bk.asarray(self._generator(key).integers(low, high, shape))

    def widest_limits(self, key: Any) -> tuple[int, int]:
        """The least `low` and the largest `high` of `integers`."""
        return -(2**63), 2**63

    def permutations(self, count: int, n: int, key: Any) -> Array:
        """`(count, n)`: in each row the integers below n in another order."""
        rows = np.broadcast_to(np.arange(n), (count, n))
        return self.bk.asarray(self._generator(key).permuted(rows, axis=1))

    def _generator(self, key: Any) -> np.random.Generator:
        if key is not None:
            return np.random.Generator(np.random.Philox(key=self._words(key)))
        if not hasattr(_own, "generator"):
            _own.generator = np.random.Generator(np.random.Philox())
        generator: np.random.Generator = _own.generator
        return generator

    def _words(self, key: Any) -> np.ndarray:
        if isinstance(key, (int, np.integer)):
            key = self.key(key)
        known = self.bk.is_array(key) or isinstance(key, np.ndarray)
        words = np.asarray(self.bk.to_numpy(key)) if known else np.zeros(0)
        if words.shape != (2,) or words.dtype.kind not in "iu":
            what = f"an array of {words.dtype} {words.shape}" if known else f"a {type(key).__name__}"
            raise TypeError(
                f"key= got {what}; expected what random_key(seed) of this backend has returned, or an integer."
            )
        return words.astype(np.int64).view(np.uint64)


def known_seed(seed: Any) -> int:
    """A seed as a number of Python.

    Raises:
        TypeError: it is no integer.
        ValueError: it is negative.
    """
    number = index(seed)
    if number < 0:
        raise ValueError(f"A seed of random numbers got {number}; expected an integer from 0 on.")
    return number
