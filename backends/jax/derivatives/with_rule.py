"""Arrays with a derivative rule that is a function of the user, in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Rule = Callable[..., Sequence[jax.Array | None]]
Both = tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]


def with_rule(rule: Rule, inputs: Sequence[jax.Array], outputs: Sequence[jax.Array]) -> Sequence[jax.Array]:
    """See `Transformations._with_rule`."""

    @jax.custom_vjp
    def passed_on(inputs: tuple[jax.Array, ...], outputs: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return outputs

    def forward(*both: tuple[jax.Array, ...]) -> Any:
        return both[1], both

    def backward(both: Both, cotangents: tuple[jax.Array, ...]) -> Any:
        # the outputs with their rule: second derivatives go through them
        found = rule(both[0], passed_on(*both), [jnp.conj(c) for c in cotangents])
        return tuple(None if g is None else jnp.conj(g) for g in found), cotangents

    passed_on.defvjp(forward, backward)
    return passed_on(tuple(inputs), tuple(outputs))
