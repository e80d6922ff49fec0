"""What several devices of one library have to do, in a process that has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from frameworks import jnp, tf, torch
from gradients import derivatives
from krylix import choose_backend, convert
from krylix.backends import ComputeDevice, get_backend

NEW_ARRAYS: dict[str, Callable[[], Any]] = {  # as the library itself makes them
    "numpy": lambda: np.zeros(3),
    "jax": lambda: jnp.zeros(3),
    "torch": lambda: torch.zeros(3),
    "tensorflow": lambda: tf.zeros(3),
}


def check_several_devices(name: str, count: int) -> None:
    """Each device has its own arrays, a default holds in one thread, and derivatives pass. It changes the default."""
    bk = get_backend(name)
    first, second, third, *others = bk.list_devices()
    assert len({first, second, third, *others}) == count
    assert bk.default_device == first
    with bk.on_device(third):
        assert bk.get_device(NEW_ARRAYS[name]()) == bk.default_device == third
        assert bk.get_device(bk.zeros((2,), np.dtype("f4"))) == third
    assert bk.get_device(NEW_ARRAYS[name]()) == first
    assert bk.set_default_device(second.name)
    assert bk.get_device(NEW_ARRAYS[name]()) == bk.default_device == second
    elsewhere: list[ComputeDevice] = []
    thread = threading.Thread(target=lambda: elsewhere.append(bk.default_device))
    thread.start()
    thread.join()
    assert elsewhere == [first]
    assert bk.set_default_device(third) and bk.default_device == third
    with bk.on_device(first):
        assert bk.default_device == first
    assert bk.default_device == third
    x = bk.to_device(convert(np.arange(3.0, dtype=np.float32), name), second)
    assert bk.get_device(x) == second and bk.get_device(bk.to_device(x, first)) == first
    assert choose_backend(x) is bk
    (derivative,) = derivatives(lambda x: bk.sum(bk.to_device(x * x, third), 0), x)
    np.testing.assert_array_equal(bk.to_numpy(derivative), [0, 2, 4])
