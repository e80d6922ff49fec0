"""Solves on several devices: virtual ones, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fast_compilation import FLAGS

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
    flags = " ".join((*FLAGS, "--xla_force_host_platform_device_count=4"))
    environment = dict(os.environ, JAX_ENABLE_X64="1", XLA_FLAGS=flags)
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


MAPPED = """
from functools import partial
from krylix import matrix_from_function

mesh, spec = Mesh(np.array(jax.devices()), "i"), PartitionSpec("i")
systems, c = jnp.arange(1.0, 33).reshape(4, 8), 3 + jnp.arange(8) / 8

def chain(u, c):
    return c * u - jnp.roll(u, 1, -1) - jnp.roll(u, -1, -1)

def mapped(function):  # with check_vma=True, the default
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec))

matrix = jax.jacfwd(chain)(systems[0], c)
exact = jnp.linalg.solve(matrix, systems.T).T
"""


@pytest.mark.needs("jax")
@pytest.mark.merge
def test_solves_and_matrices_inside_of_shard_map(tmp_path: Path) -> None:
    code = """
for settings in {settings}:
    found = mapped(lambda b, c: linear_solve(lambda u: chain(u, c), b[0], **settings).x[None])(systems, c)
    assert np.allclose(found, exact, rtol=1e-7), settings

def loss(solve, b, c):
    return (solve(b, c) ** 2).sum()

solve = mapped(lambda b, c: linear_solve(chain, b, method="CG", args=(c,), batch_ndim=1).x)
wanted = jax.grad(lambda b, c: (jnp.linalg.solve(jax.jacfwd(chain)(b[0], c), b.T) ** 2).sum(), (0, 1))(systems, c)
for a, w in zip(jax.grad(partial(loss, solve), (0, 1))(systems, c), wanted):
    assert np.allclose(a, w, rtol=1e-7)

def traced(b, c):  # coefficients that are the same on all devices, and others that are not
    f = lambda u: chain(u, c) + jnp.where(jnp.arange(8) > 3, u, b[0] * u[::-1]).at[0].set(2 * u[1])
    return (matrix_from_function(f, b[0])[0] @ jnp.sin(b[0]) - f(jnp.sin(b[0])))[None]

assert np.abs(mapped(traced)(systems, c)).max() < 1e-12

same = jax.jit(jax.shard_map(lambda b, c: linear_solve(chain, b, args=(c,), method="CG").x,
                             mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()))
assert np.allclose(same(systems[0], c), exact[0])
try:
    failing = mapped(lambda b, c: linear_solve(chain, b[0], args=(c,), method="CG", max_iter=1).x)
    jax.block_until_ready(failing(systems, c))
    jax.effects_barrier()
except Exception as error:
    print("raised", "reached the limit of iterations" in str(error))
"""
    settings = '[{"method": "CG", "preconditioner": "jacobi", "history": True}, {"method": "scipy-direct"}]'
    found = run(MAPPED + code.replace("{settings}", settings), tmp_path)
    assert "raised True" in found.stdout, found.stdout + found.stderr


@pytest.mark.needs("jax")
@pytest.mark.slow
def test_every_method_and_transformation_inside_of_shard_map(tmp_path: Path) -> None:
    code = """
from krylix.solvers import METHODS

for method in (name for name, found in METHODS.items() if not (found.needs_grid or found.needs_band)):
    found = mapped(lambda b, c: linear_solve(lambda u: chain(u, c), b[0], method=method).x[None])(systems, c)
    assert np.allclose(found, exact, rtol=1e-7), method

twice = jnp.concatenate([systems, 2 * systems], 1).reshape(8, 8)
found = mapped(lambda b, c: jax.vmap(lambda b: linear_solve(chain, b, args=(c,), method="CG").x)(b))(twice, c)
assert np.allclose(found[::2], exact) and np.allclose(found[1::2], 2 * exact)

def loss(solve, t):
    return (solve(systems, t * c) ** 2).sum()

solve = mapped(lambda b, c: linear_solve(chain, b, method="CG", args=(c,), batch_ndim=1).x)
dense = lambda b, c: jnp.linalg.solve(jax.jacfwd(chain)(b[0], c), b.T).T
assert np.allclose(*(jax.hessian(partial(loss, s))(1.0) for s in (solve, dense)))
print("all of them")
"""
    found = run(MAPPED + code, tmp_path)
    assert "all of them" in found.stdout, found.stdout + found.stderr
