"""Devices: the list, the default by thread and by block, moves with derivatives; several of them in other processes."""

import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from krylix import choose_backend, convert
from krylix.backends import ComputeDevice, get_backend
from modes import EAGER, array, library

each = pytest.mark.parametrize("mode", EAGER)


def new_array(name: str) -> Any:
    """As the library itself makes one."""
    if name == "numpy":
        return np.zeros(3)
    if name == "jax":
        import jax.numpy as jnp

        return jnp.zeros(3)
    if name == "torch":
        import torch

        return torch.zeros(3)
    import tensorflow as tf

    return tf.zeros(3)


@each
def test_the_host(mode: str) -> None:
    bk = get_backend(library(mode))
    cpu = bk.list_devices("cpu")[0]
    assert cpu.device_type == "CPU" and cpu.processor_count >= 1 and cpu.memory > 1e8
    assert cpu in bk.list_devices() and cpu.backend == bk.name and cpu.name in str(cpu)
    assert bk.list_devices("no such type") == []
    x = array(mode, np.arange(3.0))
    assert bk.get_device(bk.to_device(x, cpu)) == cpu
    assert hash(cpu) == hash(bk.list_devices("CPU")[0])
    np.testing.assert_array_equal(bk.to_numpy(bk.to_device(x, "cpu")), np.arange(3.0))
    with bk.on_device(cpu) as device:
        assert device == bk.default_device == bk.get_device(new_array(bk.name)) == cpu


@each
def test_a_device_that_is_not_there(mode: str) -> None:
    bk = get_backend(library(mode))
    before = bk.default_device
    with pytest.warns(UserWarning, match=rf"{bk.name} has no device TPU here. It has .*(?i:cpu).*stays"):
        assert not bk.set_default_device("TPU")
    assert bk.default_device == before
    with pytest.raises(ValueError, match="has no device TPU here"), bk.on_device("TPU"):
        raise AssertionError
    with pytest.raises(ValueError, match="has no device TPU here"):
        bk.to_device(array(mode, np.ones(2)), "TPU")
    foreign = replace(before, backend="another library")
    with pytest.raises(ValueError, match="is a device of another library"):
        bk.to_device(array(mode, np.ones(2)), foreign)


@pytest.mark.needs("jax")
def test_what_jax_compiles_has_no_device_yet() -> None:
    import jax

    bk = get_backend("jax")
    with pytest.raises(ValueError, match="no device yet"):
        jax.jit(lambda x: x * bk.get_device(x).memory)(np.ones(2))


@pytest.mark.needs("torch")
def test_meta_is_no_device() -> None:
    import torch

    bk = get_backend("torch")
    with pytest.raises(ValueError, match="no numbers"):
        bk.get_device(torch.zeros(3, device="meta"))
    with torch.device("meta"), pytest.raises(ValueError, match="expected one of cpu"):
        bk.default_device  # noqa: B018


SEVERAL = {
    "jax": "import os; os.environ.update(XLA_FLAGS='--xla_force_host_platform_device_count=3', JAX_PLATFORMS='cpu')",
    "tensorflow": """
import tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
""",
}


@pytest.mark.parametrize("backend", list(SEVERAL))
def test_several(backend: str) -> None:
    code = (
        f"{SEVERAL[backend]}\nimport sys; sys.path[:0] = {sys.path!r}\nimport test_devices as t; t.several({backend!r})"
    )
    path = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=path)
    assert done.returncode == 0, done.stderr[-3000:]


def several(name: str) -> None:
    """Of three virtual devices: each has its own arrays, defaults are of one thread, derivatives pass."""
    bk = get_backend(name)
    first, second, third = bk.list_devices()
    assert len({first, second, third}) == 3
    assert bk.default_device == first
    with bk.on_device(third):
        assert bk.get_device(new_array(name)) == bk.default_device == third
        assert bk.get_device(bk.zeros((2,), np.dtype("f4"))) == third
    assert bk.get_device(new_array(name)) == first
    assert bk.set_default_device(second.name)
    assert bk.get_device(new_array(name)) == bk.default_device == second
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
    derivative = _derivative(name, lambda x: bk.to_device(x * x, third), x)
    np.testing.assert_array_equal(bk.to_numpy(derivative), [0, 2, 4])


def _derivative(name: str, f: Any, x: Any) -> Any:
    if name == "jax":
        import jax

        return jax.grad(lambda x: f(x).sum())(x)
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(f(x))
    return tape.gradient(y, x)
