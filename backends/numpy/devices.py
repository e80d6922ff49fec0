"""Devices of NumPy: the host, and nothing else."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..interface.devices import ComputeDevice, host_device


def all_devices() -> list[ComputeDevice]:
    """The host, by the name that the array API standard gives it in NumPy."""
    return [host_device("numpy", "cpu", "cpu")]


def device_of(x: Any) -> str:
    """It is on the host."""
    return "cpu"


def current() -> str:
    """New arrays are on the host."""
    return "cpu"


def scope(ref: str) -> AbstractContextManager[Any]:
    """Nothing to change."""
    return nullcontext()


def make_default(ref: str) -> None:
    """Nothing to change."""


def moved(x: Any, ref: str) -> Any:
    """It is there."""
    return x
