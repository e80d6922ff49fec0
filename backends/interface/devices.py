"""Devices: which ones a library has, where an array is, and where new arrays go.

Each library's own part is its `devices` module, imported on first use.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .arrays import Array


@dataclass(frozen=True)
class ComputeDevice:
    """A processor with its memory, as one library sees it; two are equal if the library calls them the same.

    Attributes:
        backend: name of the library.
        name: what the library calls it, such as "cpu", "cuda:0", "TFRT_CPU_1".
        device_type: "CPU", "GPU", "TPU" or another word of the library, in capitals.
        memory: in bytes; -1 where the library does not tell.
        processor_count: cores or multiprocessors; -1 where the library does not tell.
        description: a line for people.
        ref: the library's own object or name.
    """

    backend: str
    name: str
    device_type: str = field(compare=False)
    memory: int = field(compare=False)
    processor_count: int = field(compare=False)
    description: str = field(compare=False)
    ref: Any = field(compare=False)

    def __str__(self) -> str:
        return f"{self.backend} {self.device_type} {self.name}"


class DeviceModule(Protocol):
    """What a library's `devices` module offers."""

    def all_devices(self) -> list[ComputeDevice]:
        """All devices of this process that hold numbers, the first of each kind first."""
        ...

    def device_of(self, x: Array) -> Any:
        """The `ref` of the device of x; ValueError where there is none, or more than one."""
        ...

    def current(self) -> Any:
        """The `ref` of the device on which this thread makes arrays."""
        ...

    def scope(self, ref: Any) -> AbstractContextManager[Any]:
        """Make arrays on a device inside a `with` block, in this thread."""
        ...

    def make_default(self, ref: Any) -> None:
        """Make arrays on a device from now on, in this thread."""
        ...

    def moved(self, x: Array, ref: Any) -> Array:
        """x on a device, with its derivatives; x itself if it is there."""
        ...


class Devices:
    """Devices of a backend."""

    name: str
    is_array: Callable[[Any], bool]
    asarray: Callable[[Any], Array]
    _needed_module: Callable[[str, str], Any]

    @property
    def _devices(self) -> DeviceModule:
        found: DeviceModule = self._needed_module("devices", "the functions of DeviceModule")
        return found

    def list_devices(self, device_type: str | None = None) -> list[ComputeDevice]:
        """The library's devices in this process.

        Args:
            device_type: "CPU", "GPU" or another type, in any case; None for all.
        """
        found = self._devices.all_devices()
        return [d for d in found if device_type is None or d.device_type == device_type.upper()]

    @property
    def default_device(self) -> ComputeDevice:
        """The device on which this thread makes new arrays."""
        return self._known(self._devices.current())

    def set_default_device(self, device: ComputeDevice | str) -> bool:
        """Make new arrays on a device from now on, in this thread; `on_device` does so for a block.

        Inside a `with` block of the library that sets a device, it holds until that block ends at most.

        Args:
            device: of `list_devices`; its name; or a type such as "GPU", for the first one of it.

        Returns:
            Is there such a device? If not, a warning says which there are, and nothing changes.
        """
        found = self._found(device)
        if found is None:
            warnings.warn(f"{self._lacks(device)} The default device stays {self.default_device}.", stacklevel=2)
            return False
        self._devices.make_default(found.ref)
        return True

    @contextmanager
    def on_device(self, device: ComputeDevice | str) -> Iterator[ComputeDevice]:
        """Make new arrays on a device inside the `with` block, in this thread.

        Raises:
            ValueError: there is no such device.
        """
        found = self._needed(device)
        with self._devices.scope(found.ref):
            yield found

    def get_device(self, x: Array) -> ComputeDevice:
        """The device of an array.

        Raises:
            ValueError: x has no values yet (inside a compiled function), or lies on several devices.
            TypeError: it is no array of this library.
        """
        if not self.is_array(x):
            raise TypeError(f"get_device of {self.name} got {type(x).__name__}; expected an array of {self.name}.")
        return self._known(self._devices.device_of(x))

    def to_device(self, x: Array, device: ComputeDevice | str) -> Array:
        """An array, or one of NumPy, on a device, with its derivatives; x itself if it is there.

        Raises:
            ValueError: there is no such device.
        """
        return self._devices.moved(x if self.is_array(x) else self.asarray(x), self._needed(device).ref)

    def _known(self, ref: Any) -> ComputeDevice:
        every = self._devices.all_devices()
        found = next((device for device in every if device.ref == ref), None)
        if found is None:
            raise ValueError(f"{self.name} calls the device {ref}; expected one of {', '.join(d.name for d in every)}.")
        return found

    def _found(self, device: ComputeDevice | str) -> ComputeDevice | None:
        if isinstance(device, ComputeDevice) and device.backend != self.name:
            raise ValueError(f"{device} is a device of {device.backend}; expected one of {self.name}: list_devices().")
        wanted = device.name if isinstance(device, ComputeDevice) else str(device)
        every = self._devices.all_devices()
        named = [d for d in every if wanted.lower() == d.name.lower()]
        return next(iter(named or [d for d in every if d.device_type == wanted.upper()]), None)

    def _needed(self, device: ComputeDevice | str) -> ComputeDevice:
        found = self._found(device)
        if found is None:
            raise ValueError(self._lacks(device))
        return found

    def _lacks(self, device: ComputeDevice | str) -> str:
        return f"{self.name} has no device {device!s} here. It has {', '.join(d.name for d in self.list_devices())}."


def host_device(backend: str, name: str, ref: Any) -> ComputeDevice:
    """The processor of this machine, as a library calls it."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        memory = -1
    cores = os.cpu_count() or -1
    return ComputeDevice(backend, name, "CPU", memory, cores, f"{cores} cores of this machine", ref)
