"""Devices of TensorFlow: its logical devices."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ..interface.devices import ComputeDevice, host_device


def all_devices() -> list[ComputeDevice]:
    """GPUs first, as TensorFlow itself places new tensors on the first one."""
    every = sorted(tf.config.list_logical_devices(), key=lambda device: device.device_type == "CPU")
    return [_described(device.name, device.device_type) for device in every if "SYSTEM" not in device.device_type]


def _described(ref: str, device_type: str) -> ComputeDevice:
    if device_type == "CPU":
        return host_device("tensorflow", _short(ref), _short(ref))
    return ComputeDevice("tensorflow", _short(ref), device_type, -1, -1, f"logical device {ref}", _short(ref))


def _short(ref: str) -> str:
    """'CPU:0' of '/device:CPU:0' and of '/job:localhost/replica:0/task:0/device:CPU:0'."""
    return ref.rpartition("device:")[2]


def device_of(x: Any) -> str:
    """As the tensor says, outside of graphs."""
    if not x.device:
        raise ValueError("A tensor inside `tf.function` has no device yet; ask outside.")
    return _short(x.device)


def current() -> str:
    """Where a new tensor is placed."""
    with tf.init_scope():
        return device_of(tf.identity(tf.constant(0.0)))


def scope(ref: str) -> AbstractContextManager[Any]:
    """Tensors made in this thread go there."""
    return tf.device(ref)


def make_default(ref: str) -> None:
    """By the context of `tf.device`, which is not left."""
    tf.device(ref).__enter__()


def moved(x: Any, ref: str) -> Any:
    """By a differentiable copy."""
    with tf.device(ref):
        return tf.identity(x)
