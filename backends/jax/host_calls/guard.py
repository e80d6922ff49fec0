"""Arrays that are there after a handler has seen a failure, in compiled programs of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...interface.arrays import Array, nan_of
from ...interface.control import Kept
from .by_host import by_host
from .exported import unless_exported
from .reporting import reporting


def guarded(failed: Array, handler: Callable[..., None], x: Any, arrays: Sequence[Array], kept: Kept | None) -> Any:
    """See `Control.guard`. `x` depends on the result of the call, or XLA would drop it."""
    report = reporting(handler)

    # It sees `failed` again: under vmap both branches of the condition run.
    def on_host(bad: Any, *values: Any) -> tuple[np.ndarray]:
        if np.any(bad):
            report(*(np.array(value) for value in values))
        return (np.zeros((), np.bool_),)

    def fail(bad: Array, *values: Array) -> Array:
        return by_host(on_host, [((), np.dtype(bool))], bad, *values, kept=kept)[0]

    def call(failed: Array, *values: Array) -> Array:
        if jax.device_count() == 1:
            return lax.cond(failed, fail, lambda bad, *values: jnp.zeros((), bool), failed, *values)

        # One device calls the host; if x waited for it, the others would wait in a collective for ever.
        # A loop of at most one step, as JAX cannot vectorise conditions inside of `shard_map`.
        def tell(bad: Array) -> Array:
            jax.debug.callback(on_host, bad, *values)
            return bad ^ bad  # False; a constant would not vary from device to device

        return lax.while_loop(lambda bad: bad, tell, failed)

    operands = lax.stop_gradient((failed, *arrays))
    (flag,) = unless_exported(lambda *given: [call(*given)], lambda failed, *values: [failed], *operands)
    return jax.tree.map(lambda leaf: jnp.where(flag, jnp.asarray(nan_of(leaf.dtype), leaf.dtype), leaf), x)
