"""Random numbers of JAX, and its own functions for operations that the standard does not have.

Random numbers are functions of keys; eagerly without a key, of one that each thread holds and splits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jsp
from jax.scipy.special import erf as erf
from jax.scipy.special import gammainc as gammainc
from jax.scipy.special import gammaincc as gammaincc
from jax.scipy.special import gammaln as lgamma

from ..interface import random_numbers
from ..interface.arrays import Array
from .tracing import is_tracing, is_vectorizing

_own = threading.local()
_WORD = 2**32  # seeds are taken apart into numbers below it


class JaxRandomNumbers(random_numbers.RandomNumbers):
    """Draws by `jax.random`."""

    def key(self, seed: Any) -> jax.Array:
        if isinstance(seed, jax.Array):
            return jax.random.key(seed)
        number = random_numbers.known_seed(seed)
        key = jax.random.key(number % _WORD)  # which drops higher bits where JAX has no integers of 64 bits
        while number := number >> 32:
            # folded once more, as `fold_in(key, i)` alone is part i of the key
            key = jax.random.fold_in(jax.random.fold_in(key, np.uint32(_WORD - 1)), np.uint32(number % _WORD))
        return key

    def split(self, key: Any, count: int) -> Sequence[jax.Array]:
        return list(jax.random.split(self._known(key), count))

    def seed(self, seed: int) -> None:
        with jax.ensure_compile_time_eval():
            _own.key = self.key(seed)

    def uniform(self, shape: Sequence[int], double: bool, key: Any) -> jax.Array:
        return jax.random.uniform(self._known(key), shape, _real(double))

    def normal(self, shape: Sequence[int], double: bool, key: Any) -> jax.Array:
        return jax.random.normal(self._known(key), shape, _real(double))

    def integers(self, shape: Sequence[int], low: int, high: int, key: Any) -> jax.Array:
        return jax.random.randint(self._known(key), shape, low, high, _integer())

    def widest_limits(self, key: Any) -> tuple[int, int]:
        held = np.iinfo(_integer())
        return int(held.min), int(held.max)

    def permutations(self, count: int, n: int, key: Any) -> jax.Array:
        keys = jax.random.split(self._known(key), count)
        return jax.vmap(lambda k: jax.random.permutation(k, n))(keys)

    def _known(self, key: Any) -> jax.Array:
        if key is None:
            return _next_key()
        if isinstance(key, (int, np.integer)):
            return self.key(key)
        if not isinstance(key, (jax.Array, np.ndarray)):
            raise TypeError(
                f"key= got a {type(key).__name__}; expected what random_key(seed) of this backend has returned, a key "
                "of jax.random, or an integer."
            )
        return jnp.asarray(key)


def _next_key() -> jax.Array:
    if is_tracing() or is_vectorizing():
        where = (
            "a JAX program, which would return the same numbers each time"
            if is_tracing()
            else ("jax.vmap, where all elements would get the same numbers")
        )
        raise TypeError(
            f"Random numbers were asked for without a key inside {where}. Expected key=: make one outside by "
            "bk.random_key(seed), pass it as an argument, and take a part of it for each draw: "
            "key, part = bk.random_split(key)."
        )
    with jax.ensure_compile_time_eval():
        if not hasattr(_own, "key"):
            _own.key = jax.random.key(np.random.SeedSequence().generate_state(1)[0])
        _own.key, part = jax.random.split(_own.key)
    return part


def _integer() -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(np.int64))


def _real(double: bool) -> np.dtype:
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64 if double else np.float32))


# --- JAX's own functions for operations that the standard does not have -----------------------------------------------

einsum, eigvals = jnp.einsum, jnp.linalg.eigvals
_UPDATES = {"update": "set", "add": "add", "max": "max", "min": "min"}


def scatter_rows(rows: Array, places: Array, values: Array, mode: str) -> Array:
    """Rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    return getattr(rows.at[places], _UPDATES[mode])(values)


def eig(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors in columns, complex."""
    values, vectors = jnp.linalg.eig(matrix)
    return values, vectors


def get_sparse_format(x: Array) -> str:
    """The format of one of JAX's sparse matrices; "dense" of arrays."""
    return {jsp.BCOO: "coo", jsp.COO: "coo", jsp.BCSR: "csr", jsp.CSR: "csr", jsp.CSC: "csc"}.get(type(x), "dense")


block_until_ready = jax.block_until_ready


def compile(f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """See `operations.functions`."""
    return jax.jit(f, static_argnames=tuple(static))


RandomNumbers = JaxRandomNumbers

__all__ = ["RandomNumbers", "erf", "gammainc", "gammaincc", "lgamma"]
