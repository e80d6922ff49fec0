"""Devices of a library of the array API standard, as its namespace tells them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..interface.arrays import Array
from ..interface.devices import ComputeDevice, host_device
from .standard import devices_of

_TYPES = {1: "CPU", 2: "GPU", 3: "GPU", 7: "GPU", 8: "GPU", 10: "GPU", 13: "GPU", 14: "GPU"}  # DLPack's numbers


class ArrayApiDevices:
    """See `DeviceModule`; the default is krylix's own, of this thread, where the standard knows none that can be set.

    Args:
        namespace: of the library.
        name: of the backend.
    """

    def __init__(self, namespace: Any, name: str) -> None:
        self.namespace, self.name = namespace, name
        self.chosen: ContextVar[Any] = ContextVar(f"krylix_device_of_{name}", default=None)

    def all_devices(self) -> list[ComputeDevice]:
        """Those of the namespace; of an older standard that of a new array."""
        every = devices_of(self.namespace) or [self._of_new_arrays()]
        return [self._described(ref) for ref in every]

    def _described(self, ref: Any) -> ComputeDevice:
        try:
            number = self.namespace.zeros(1, dtype=self.namespace.int64, device=ref).__dlpack_device__()[0]
        except Exception:  # a device that another process holds, or without DLPack: the library says it in its own way
            number = 0
        if number == 1:
            return host_device(self.name, name_of(ref), ref)
        return ComputeDevice(self.name, name_of(ref), _TYPES.get(int(number), "OTHER"), -1, -1, str(ref), ref)

    def device_of(self, x: Array) -> Any:
        """As the array says."""
        return x.device

    def current(self) -> Any:
        """As set in this thread, or else as the library says."""
        chosen = self.chosen.get()
        return self._of_new_arrays() if chosen is None else chosen

    def _of_new_arrays(self) -> Any:
        return self.namespace.zeros(1, dtype=self.namespace.int64).device

    @contextmanager
    def scope(self, ref: Any) -> Iterator[None]:
        """Arrays that krylix makes in this thread go there."""
        token = self.chosen.set(ref)
        try:
            yield
        finally:
            self.chosen.reset(token)

    def make_default(self, ref: Any) -> None:
        """For arrays that krylix makes in this thread."""
        self.chosen.set(ref)

    def moved(self, x: Array, ref: Any) -> Array:
        """By the array's own method."""
        return x if x.device == ref else x.to_device(ref)


def name_of(ref: Any) -> str:
    """How the library calls a device, without the words around it."""
    text = str(ref)
    inner = text[text.find("(") + 1 : text.rfind(")")] if text.endswith(")") else text
    return inner.strip("'\"") or text
