"""x as it is, with other derivatives in JAX: refused ones, and NaN for the systems that have failed."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...interface.arrays import Array
from .implicit import custom_linear_solve


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def refused(x: Array, why: str, error: type[Exception]) -> Array:
    """x; its derivative raises `error(why)`."""
    return x


@refused.defjvp
def _raise(why: str, error: type[Exception], primals: Any, tangents: Any) -> Any:
    raise error(why)


@jax.custom_jvp
def without_derivatives(x: Array, failed: Array) -> Array:
    """x; see `Transformations.without_derivatives`."""
    return x


@without_derivatives.defjvp
def _spoiled(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """As a solve with the identity, as this is what JAX believes to be linear, forward and backward, whatever it does.

    A factor NaN would not do: it makes one of a derivative 0, as where the caller has left the system out.
    """
    (x, failed), (tangent, _) = primals, tangents

    def spoil(_: Any, rows: Any) -> Any:
        changes = failed & jnp.any(rows[0] != 0, 1, keepdims=True)
        return (jnp.where(changes, jnp.full((), jnp.nan, rows[0].dtype), rows[0]),), ()

    (found,), _ = custom_linear_solve(lambda u: (u,), (tangent,), spoil, spoil)
    return x, found
