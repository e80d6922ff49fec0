"""JAX's strict modes (rank promotion, transfer guard), which apply to a user's source, not to krylix.

Vectors here are rows `(batch, n)`, which meet `(n,)`, and what NumPy finds out is handed to JAX when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any, TypeVar

import jax

R = TypeVar("R")
_GUARDS = tuple(f"jax_transfer_guard_{way}" for way in ("host_to_device", "device_to_device", "device_to_host"))


def leniently() -> AbstractContextManager[Any]:
    """Context without rank-promotion errors and transfer guards."""
    config: Any = jax.config
    ranks = config.jax_numpy_rank_promotion == "allow"
    guards = all(getattr(config, name) in (None, "allow") for name in _GUARDS)
    if ranks and guards:
        return nullcontext()
    modes = ExitStack()
    if not ranks:
        modes.enter_context(jax.numpy_rank_promotion("allow"))
    if not guards:
        modes.enter_context(jax.transfer_guard("allow"))
    return modes


def lenient(function: Callable[..., R]) -> Callable[..., R]:
    """Decorator of a function that JAX calls later: it runs in that context."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> R:
        with leniently():
            return function(*args, **kwargs)

    return called
