"""First-order linear recurrences in JAX: a loop over the rows on CPUs, recursive doubling elsewhere."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array
from ..interface.recurrence import Recurrences

_COST_OF_STEP = 5e3


class JaxRecurrences(Recurrences):
    """A scan over rows on a single CPU; elsewhere recursive doubling, as steps are slow or rows sharded."""

    @property
    def cost_of_step(self) -> float:
        return _COST_OF_STEP if jax.default_backend() == "cpu" and jax.device_count() == 1 else math.inf

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        if jax.default_backend() != "cpu":
            return super().recurrence(factors, x, backward)
        rows = jnp.swapaxes(x, 0, 1)
        # made of x, so that it has its varying mesh axes
        _, found = lax.scan(_step, 0 * rows[0], (jnp.asarray(factors, x.dtype), rows), reverse=backward)
        return jnp.swapaxes(found, 0, 1)


def _step(before: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
    """Named, since JAX caches loops by function."""
    factors, own = row
    now = own + factors * before
    return now, now
