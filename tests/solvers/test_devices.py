"""Solves on several devices: virtual ones, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from krylix import linear_solve

assert jax.device_count() == 4
b = jax.device_put(jnp.ones(64), NamedSharding(Mesh(np.array(jax.devices()), "i"), PartitionSpec("i")))

def f(u):
    return 2.01 * u - jnp.roll(u, 1) - jnp.roll(u, -1)
"""


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, JAX_ENABLE_X64="1", XLA_FLAGS="--xla_force_host_platform_device_count=4")
    return subprocess.run(
        [sys.executable, "-c", START + code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )


@pytest.mark.needs("jax")
def test_a_failed_solve_raises_and_does_not_hang(tmp_path: Path) -> None:
    code = """
x = jax.jit(lambda b: linear_solve(f, b, method="CG").x)(b)
assert np.allclose(x, 100) and x.sharding == b.sharding, x
gradient = jax.jit(jax.grad(lambda b: linear_solve(f, b, method="CG").x.sum()))(b)
assert np.allclose(gradient, 100)
try:
    jax.block_until_ready(jax.jit(lambda b: linear_solve(f, b * jnp.arange(64.0), method="CG", max_iter=2).x)(b))
    jax.effects_barrier()
except Exception as error:
    print("raised", "reached the limit of iterations" in str(error))
"""
    found = run(code, tmp_path)
    assert "raised True" in found.stdout, found.stdout + found.stderr
