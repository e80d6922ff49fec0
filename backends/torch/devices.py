"""Devices of PyTorch: the host, and those of an accelerator, if there is one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from ..interface.devices import ComputeDevice, host_device


def all_devices() -> list[ComputeDevice]:
    """Not "meta", whose tensors hold no numbers."""
    found = [host_device("torch", "cpu", torch.device("cpu"))]
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator().type
        found += [_described(torch.device(kind, i)) for i in range(torch.accelerator.device_count())]
    return found


def _described(device: Any) -> ComputeDevice:
    type_ = "GPU" if device.type in ("cuda", "mps", "xpu") else device.type.upper()
    if device.type != "cuda":
        return ComputeDevice("torch", str(device), type_, -1, -1, device.type, device)
    facts = torch.cuda.get_device_properties(device)
    processors = facts.multi_processor_count
    return ComputeDevice("torch", str(device), type_, facts.total_memory, processors, facts.name, device)


def device_of(x: Any) -> Any:
    """As the tensor says."""
    if x.device.type == "meta":
        raise ValueError("A tensor on 'meta' has a shape and no numbers: it is on no device.")
    return x.device


def current() -> Any:
    """As set by `torch.set_default_device` or `with torch.device(...)`."""
    found = torch.get_default_device()
    return found if found.type == "cpu" or found.index is not None else torch.device(found.type, 0)


def scope(ref: Any) -> AbstractContextManager[Any]:
    """Tensors made in this thread go there, those of `torch.as_tensor` from NumPy too."""
    return ref


def make_default(ref: Any) -> None:
    """By `torch.set_default_device`, which is of this thread."""
    torch.set_default_device(ref)


def moved(x: Any, ref: Any) -> Any:
    """By a differentiable copy."""
    return x.to(ref)
