"""JAX's own functions for operations that the standard does not have."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import sparse as jsp
from jax.scipy.special import erf as erf
from jax.scipy.special import gammainc as gammainc
from jax.scipy.special import gammaincc as gammaincc
from jax.scipy.special import gammaln as lgamma

from ..interface.arrays import Array
from .random_numbers import JaxRandomNumbers as RandomNumbers

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


__all__ = ["RandomNumbers", "erf", "gammainc", "gammaincc", "lgamma"]
