"""Loops in JAX: `lax.while_loop`, eagerly too, and its states after so many steps by `lax.scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..interface.backend import Backend
from .sharding.varying import axes_after, axes_of, is_mapped, vary, vary_alike, varying_function

Condition = Callable[[Any], Any]
Body = Callable[[Any], Any]


class JaxLoops(Backend):
    """The part of the backend about them."""

    def _while_loop(self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
        if is_mapped():
            state = vary_alike(state)
            state = vary(state, axes_after(body, state))
            body = varying_function(body, axes_of(jax.tree.leaves(state)))
        return lax.while_loop(condition, body, state)

    def _bounded_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        return self._up_to(condition, body, jnp.zeros((), np.int32), state, limits[0])[1]

    def _stacked_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        done, state = jnp.zeros((), np.int32), jax.tree.map(jnp.asarray, state)
        if is_mapped():  # where a scan has to say over which devices its state varies
            states = []
            for limit in limits:
                done, state = self._up_to(condition, body, done, state, limit)
                states.append(state)
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

        def further(carry: Any, limit: Any) -> Any:
            carry = self._up_to(condition, body, carry[0], carry[1], limit)
            return carry, carry[1]

        return lax.scan(further, (done, state), np.asarray(limits, np.int32))[1]

    def _up_to(self, condition: Condition, body: Body, done: Any, state: Any, limit: Any) -> Any:
        return self._while_loop(
            lambda s: (s[0] < limit) & condition(s[1]), lambda s: (s[0] + 1, body(s[1])), (done, state)
        )

    def for_loop(self, count: int, body: Callable[[Any], Any], state: Any) -> Any:
        if is_mapped():  # where a loop has to say over which devices its state varies
            return self._counted(count, body, state)
        return lax.fori_loop(0, count, lambda _, s: body(s), state)
