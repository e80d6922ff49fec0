"""Devices: the list, the default by thread and by block, and moves with derivatives."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from frameworks import jax, torch
from krylix.backends import get_backend
from modes import EAGER, array, library
from several_devices import NEW_ARRAYS, check_several_devices

each = pytest.mark.parametrize("mode", EAGER)


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
        assert device == bk.default_device == bk.get_device(NEW_ARRAYS[bk.name]()) == cpu


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
    bk = get_backend("jax")
    with pytest.raises(ValueError, match="no device yet"):
        jax.jit(lambda x: x * bk.get_device(x).memory)(np.ones(2))


@pytest.mark.needs("torch")
def test_meta_is_no_device() -> None:
    bk = get_backend("torch")
    with pytest.raises(ValueError, match="no numbers"):
        bk.get_device(torch.zeros(3, device="meta"))
    with torch.device("meta"), pytest.raises(ValueError, match="expected one of cpu"):
        bk.default_device  # noqa: B018


@pytest.mark.needs("tensorflow")
def test_several_devices_of_tensorflow() -> None:
    """Of three CPUs in a runtime of their own; JAX's are in test_collectives.py, in a process that has eight."""
    from tensorflow.python.eager import context

    own, several = context.context(), context.Context()
    (cpu,) = several.list_physical_devices("CPU")
    several.set_logical_device_configuration(cpu, [context.LogicalDeviceConfiguration()] * 3)
    context._set_context(several)
    try:
        with ThreadPoolExecutor(1) as pool:  # whose default device ends with it
            pool.submit(check_several_devices, "tensorflow", 3).result()
    finally:
        context._set_context(own)
    assert len(get_backend("tensorflow").list_devices("CPU")) == 1
