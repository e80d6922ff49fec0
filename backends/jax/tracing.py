"""Tests for tracing in JAX: then arrays have no values yet."""

from __future__ import annotations

from typing import Any

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
