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
        outputs = passed_on(*both)  # with their rule: second derivatives go through them
        return outputs, (both[0], outputs)

    def backward(both: Both, cotangents: tuple[Any, ...]) -> Any:
        known = [None if c.dtype == jax.dtypes.float0 else jnp.conj(c) for c in cotangents]
        found = rule(*both, known)
        return tuple(None if g is None else jnp.conj(g) for g in found), cotangents

    passed_on.defvjp(forward, backward)
    return passed_on(tuple(inputs), tuple(outputs))
