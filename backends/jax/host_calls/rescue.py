"""Second attempt on the host after a compiled solve has failed; one callback for all lanes of `jax.vmap`.

A condition that differs from lane to lane would run both of its branches, and call the host every time. So all lanes
ask together, and the host looks which of them failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from ...interface.arrays import Array
from ...interface.control import Kept, as_declared
from .by_host import by_host
from .exported import unless_exported


def rescued(
    failed: Array, function: Callable[..., Any], found: Sequence[Array], arrays: Sequence[Array], name: str | None
) -> list[Array]:
    """`found`, or where `failed` what `function(*arrays as NumPy)` finds; see `Control.rescued`."""
    count = len(found)
    declared = [(x.shape, np.dtype(x.dtype)) for x in found]
    kept = None if name is None else Kept(f"{name} {declared}", "keep")

    def on_host(failed: Any, *operands: Any) -> tuple[np.ndarray, ...]:
        failed, operands = np.asarray(failed), tuple(map(np.asarray, operands))
        results = tuple(np.array(x) for x in operands[:count])
        for lane in np.argwhere(failed):
            at = tuple(lane)
            values = as_declared(function(*(x[at] for x in operands[count:])), declared)
            for result, value in zip(results, values, strict=True):
                result[at] = value
        return results

    def call(failed: Array, *operands: Array) -> list[Array]:
        returns = [(x.shape, np.dtype(x.dtype)) for x in operands[:count]]
        return by_host(on_host, returns, failed, *operands, kept=kept)

    @custom_vmap
    def here(failed: Array, *operands: Array) -> list[Array]:
        return lax.cond(jnp.any(failed), call, lambda _, *operands: list(operands[:count]), failed, *operands)

    @here.def_vmap
    def _(size: int, mapped: Sequence[bool], *given: Array) -> Any:
        lanes = [x if is_mapped else jnp.broadcast_to(x, (size, *x.shape)) for x, is_mapped in zip(given, mapped)]
        return here(*lanes), [True] * count

    return unless_exported(here, lambda _, *operands: list(operands[:count]), failed, *found, *arrays)
