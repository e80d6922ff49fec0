"""Device placement of an array that is made beside another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from ...interface.arrays import Array
from ..tracing import is_tracing


def placed_like(array: Array, like: Any) -> Array:
    """Place an array made from NumPy beside `like`; on all its devices if there are several.

    JAX itself moves uncommitted arrays to committed ones.
    """
    place = _place(like)
    return array if place is None else jax.device_put(array, place)


def first_placed(arrays: Sequence[Any]) -> Any:
    """The first committed array, or None."""
    return next((x for x in arrays if getattr(x, "committed", False)), None)


def _place(like: Any) -> Any:
    """Device of a committed array; None for a single device or while tracing."""
    if isinstance(like, jax.core.Tracer) or not getattr(like, "committed", False) or jax.device_count() == 1:
        return None
    if is_tracing():
        return None
    sharding = like.sharding
    if len(sharding.device_set) == 1:
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else None
