"""What JAX is doing now: tracing, and strict modes that apply to a user's source, not to krylix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

try:
    from jax._src.core import trace_state_clean  # not public; without it jit is seen, which is the main case
except ImportError:
    trace_state_clean = None


def is_compiled(*arrays: Any) -> bool:
    """Is a transformation (jit, grad, vmap) running, or an array in these containers traced?"""
    return _tracing() or is_traced(arrays)


def is_traced(*arrays: Any) -> bool:
    """Is an array in these containers traced?"""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(arrays))


def host_view(x: Any) -> np.ndarray | None:
    """See `Backend.host_view`: of arrays on the first CPU device, as those made for one device serve no other."""
    if is_compiled(x) or not isinstance(x, jax.Array) or not x.is_fully_addressable or not is_in_use(x):
        return None
    return np.asarray(x) if x.devices() == {jax.local_devices(backend="cpu")[0]} else None


def is_in_use(x: jax.Array) -> bool:
    """Is its dtype enabled now? A double precision array outlives the `jax.enable_x64` in which it was made."""
    return bool(jax.dtypes.canonicalize_dtype(x.dtype) == x.dtype)


def _tracing() -> bool:
    """Is a transformation (jit, grad, vmap) running, even where all arrays in hand have values?"""
    return _makes_tracers() if trace_state_clean is None else not trace_state_clean()


def is_tracing() -> bool:
    """Is a program being traced? Not under grad or vmap alone, which run new arrays eagerly."""
    return _tracing() and _makes_tracers()


def _makes_tracers() -> bool:
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def value_now(predicate: Any) -> bool | None:
    """Value of a condition outside of traces, also under grad; else None."""
    if is_tracing():
        return None
    try:
        return bool(predicate)
    except jax.errors.ConcretizationTypeError:  # one of each lane, in vmap
        return None


def is_vectorizing() -> bool:
    """Does the current function run for all elements of a `vmap` at once?"""
    try:
        from jax._src.core import trace_ctx  # not public; without it the answer is no
    except ImportError:
        return False
    trace = trace_ctx.trace
    while trace is not None:
        if type(trace).__name__ == "BatchTrace":
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


# --- JAX's strict modes (rank promotion, transfer guard), which apply to a user's source, not to krylix ---------------
# Vectors here are rows `(batch, n)`, which meet `(n,)`, and what NumPy finds out is handed to JAX when it is needed.

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
