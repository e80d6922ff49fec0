"""NumPy in the place of a program that JAX would have to compile first; results as those of the program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from .tracing import is_compiled, is_in_use

# Settings of the user's with which he watches operations of JAX, or moves them elsewhere.
_WATCHED = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_default_device")

_enable_x64: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64


def may_leave_to_host(b: Any, *arrays: Any) -> bool:
    """See `Control.may_leave_to_host`."""
    if jax.device_count() > 1 or jax.default_backend() != "cpu" or is_compiled((b, *arrays)):
        return False
    if any(getattr(jax.config, name, None) for name in _WATCHED):
        return False
    usual = not b.weak_type and isinstance(b.sharding, SingleDeviceSharding)
    return usual and all(map(_is_plain, jax.tree.leaves((b, *arrays))))


def _is_plain(x: Any) -> bool:
    """Does it have values on the CPU, in a currently enabled dtype?"""
    if not isinstance(x, jax.Array):
        return True
    return is_in_use(x) and all(device.platform == "cpu" for device in x.devices())


def results_from_host(arrays: Sequence[np.ndarray], like: Any) -> Sequence[Any]:
    """See `Control.results_from_host`: all in one call, on the device of `like` where somebody has placed that.

    In double precision where `like` is, though the user may have left `jax.enable_x64` since.
    """
    with nullcontext() if is_in_use(like) else _enable_x64(True):
        found: Sequence[Any] = jax.device_put(list(arrays), like.sharding if like.committed else None)
        return found
