"""The derivatives of a loss in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ...interface.transformations import Differentiated


def differentiated(function: Callable[..., tuple[jax.Array, Any]], arrays: Sequence[jax.Array]) -> Differentiated:
    """See `Transformations._differentiated`."""
    loss, pullback, outputs = jax.vjp(function, *arrays, has_aux=True)

    def pull(cotangent: jax.Array) -> list[jax.Array]:
        return [jnp.conj(g) for g in pullback(cotangent)]  # JAX's own are d/dRe - i d/dIm

    return Differentiated(loss, outputs, pull, jax.vmap(pull))
