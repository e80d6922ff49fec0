"""Devices of JAX: those of each platform that this process addresses."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax

from ..interface.devices import ComputeDevice, host_device
from .tracing import is_traced


def all_devices() -> list[ComputeDevice]:
    """Of the default platform first, then the host."""
    every = jax.local_devices()
    if jax.default_backend() != "cpu" and "cpu" in (jax.config.jax_platforms or "cpu"):
        every = [*every, *jax.local_devices(backend="cpu")]
    return [_described(device) for device in every]


def _described(device: Any) -> ComputeDevice:
    name = str(device)
    if device.platform == "cpu":
        return host_device("jax", name, device)
    memory = (device.memory_stats() or {}).get("bytes_limit", -1)
    kind = "GPU" if device.platform in ("gpu", "cuda", "rocm") else device.platform.upper()
    return ComputeDevice("jax", name, kind, memory, getattr(device, "core_count", -1), device.device_kind, device)


def device_of(x: Any) -> Any:
    """The one device of an array that has values."""
    if is_traced(x):
        raise ValueError("An array inside a compiled or vectorised function of JAX has no device yet; ask outside.")
    devices = x.devices()
    if len(devices) > 1:
        raise ValueError(f"The array is spread over {len(devices)} devices; see its `sharding`.")
    return next(iter(devices))


def current() -> Any:
    """As set by `jax.default_device`; else the first device of the default platform."""
    chosen = jax.config.jax_default_device
    return jax.local_devices(backend=chosen)[0] if isinstance(chosen, str) else chosen or jax.local_devices()[0]


def scope(ref: Any) -> AbstractContextManager[Any]:
    """Arrays made in this thread go there, those of `jax.jit` too, if no argument is committed elsewhere."""
    return jax.default_device(ref)


def make_default(ref: Any) -> None:
    """By the context of `jax.default_device`, which is not left: `jax.config` would change all threads."""
    jax.default_device(ref).__enter__()


def moved(x: Any, ref: Any) -> Any:
    """A committed array: JAX refuses to compute with arrays that are committed to two devices."""
    return jax.device_put(x, ref)
