"""Solves on several devices: virtual ones, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fast_compilation import virtual_devices
from sharded_runs import selected_names

# Runs each case by itself, and tells how it ended.
RUN = """
import json, sys, traceback

for name, code in json.load(sys.stdin):
    try:
        exec(compile(code, name, "exec"), {})
        ended = ""
    except Exception:
        ended = traceback.format_exc()
    print(json.dumps({"name": name, "ended": ended}), flush=True)
"""

START = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from krylix import linear_solve

assert jax.device_count() == 4
b = jax.device_put(jnp.ones(64), NamedSharding(Mesh(np.array(jax.devices()), "i"), PartitionSpec("i")))

def f(u):
    return 2.01 * u - jnp.roll(u, 1) - jnp.roll(u, -1)
"""

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

INSIDE_OF_SHARD_MAP = """
for settings in [{"method": "CG", "preconditioner": "jacobi", "history": True}, {"method": "scipy-direct"}]:
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
    assert "reached the limit of iterations" in str(error), error
else:
    raise AssertionError("nothing was raised")
"""

EVERY_METHOD_INSIDE_OF_SHARD_MAP = """
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
"""

# Each device multiplies by its rows, and all of them get the whole product.
COLLECTIVES = """
matrix = np.diag(np.full(8, 4.0)) - np.eye(8, k=1) - 0.5 * np.eye(8, k=-1)

def solve(rows, b, method):
    def product(x):
        place = jax.lax.axis_index("i") * 2
        return jax.lax.psum(jax.lax.dynamic_update_slice(jnp.zeros(8), rows @ x, (place,)), "i")
    return linear_solve(product, b, method=method).x

b = jnp.arange(8.0)
for method in ("biCG-stab(2)", "GMRES", "auto"):
    for checked in (True, False):
        one = jax.shard_map(partial(solve, method=method), mesh=mesh, in_specs=(spec, PartitionSpec()),
                            out_specs=PartitionSpec(), check_vma=checked)
        x = jax.jit(one)(matrix, b)
        assert np.allclose(x, np.linalg.solve(matrix, b), rtol=1e-7), (method, checked)
"""

EXPLICIT = """
import scipy.sparse as sp
from krylix import prepare

mesh = jax.make_mesh((2, 2), ("i", "j"))
values = np.random.default_rng(0).normal(size=(8, 8))
b, c = (jax.device_put(v, NamedSharding(mesh, PartitionSpec("i", "j"))) for v in (values, 5 + values / 9))

def star(u, c=5.0):
    return c * u - sum(jnp.roll(u, s, axis) for s in (1, -1) for axis in (-1, -2))

dense = jax.vmap(lambda e: star(e.reshape(8, 8), 5 + values / 9).ravel())(jnp.eye(64)).T
exact = np.linalg.solve(dense, values.ravel()).reshape(8, 8)

def check(x, exact=exact, like=b):
    assert np.allclose(x, exact, rtol=1e-7, atol=1e-8) and jax.typeof(x) == jax.typeof(like), jax.typeof(x)
"""

# As jax.make_mesh makes them: Explicit, where how arrays are spread is part of their type.
MESHES = """
from krylix.solvers import METHODS
for method in CHOSEN or METHODS:
    if METHODS[method].needs_known or method == "banded-direct":
        continue
    settings = dict(args=(c,), method=method)
    check(linear_solve(star, b, **settings).x)
    check(jax.jit(lambda b, c: linear_solve(star, b, **{**settings, "args": (c,)}).x)(b, c))
check(linear_solve(star, b, args=(c,)).x)
check(prepare(star, b, args=(c,), method="CG").solve(b).x)
gradient = jax.jit(jax.grad(lambda b: linear_solve(star, b, args=(c,), method="CG").x.sum()))(b)
check(gradient, np.linalg.solve(dense.T, np.ones(64)).reshape(8, 8))
result = linear_solve(star, b, args=(c,), method="CG", history=True, on_failure="status")
assert result.converged and result.history is not None
A = jax.device_put(np.diag(np.full(8, 4.0)) + np.eye(8, k=1), NamedSharding(mesh, PartitionSpec("i")))
check(linear_solve(A, b, method="GMRES", axis=-1).x, np.linalg.solve(np.asarray(A), values.T).T)
with jax.set_mesh(mesh):
    check(linear_solve(star, b, args=(c,), method="CG").x)
try:
    linear_solve(lambda u: c * u, b, method="CG")
except TypeError as error:
    assert "args=(array,)" in str(error), error
else:
    raise AssertionError("nothing was raised")
"""

PLACED = """
import scipy.sparse as sp
from krylix import prepare
from krylix.solvers import METHODS

place, n = jax.devices()[1], 12
S = sp.csr_array(sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
A, b = (jax.device_put(v, place) for v in (S.toarray(), np.cos(np.arange(n))))

def check(result, what):
    assert np.allclose(result.x, np.linalg.solve(S.toarray(), b), rtol=1e-7), what
    assert all(leaf.devices() == {place} for leaf in jax.tree.leaves(result)), what
"""

# Of eager solves on the host, or of all methods.
ON_THE_DEVICE_OF_B = """
for name, method in METHODS.items():
    if method.needs_known or not (COMPILES or method.on_host):
        continue
    check(linear_solve(S, b, method=name), name)
    check(linear_solve(A, b, method=name), (name, "dense"))
    if method.on_host:
        check(linear_solve(lambda x: A @ x, b, method=name), (name, "function"))
        check(prepare(S, b, method=name).solve(b), (name, "prepared"))
check(linear_solve(S, b), "auto")
check(prepare(S, b).solve(b), "auto, prepared")
"""

FAILURE = """
x = jax.jit(lambda b: linear_solve(f, b, method="CG").x)(b)
assert np.allclose(x, 100) and x.sharding == b.sharding, x
gradient = jax.jit(jax.grad(lambda b: linear_solve(f, b, method="CG").x.sum()))(b)
assert np.allclose(gradient, 100)
try:
    jax.block_until_ready(jax.jit(lambda b: linear_solve(f, b * jnp.arange(64.0), method="CG", max_iter=2).x)(b))
    jax.effects_barrier()
except Exception as error:
    assert "reached the limit of iterations" in str(error), error
else:
    raise AssertionError("nothing was raised")
"""

CASES = {
    "inside of shard_map": MAPPED + INSIDE_OF_SHARD_MAP,
    "every method inside of shard_map": MAPPED + EVERY_METHOD_INSIDE_OF_SHARD_MAP,
    "functions with collectives": MAPPED + COLLECTIVES,
    "Explicit meshes": EXPLICIT + "CHOSEN = 'CG', 'scipy-direct'" + MESHES,
    "Explicit meshes, every method": EXPLICIT + "CHOSEN = ()" + MESHES,
    "x is on the device of b": PLACED + "COMPILES = False" + ON_THE_DEVICE_OF_B,
    "x is on the device of b, every method": PLACED + "COMPILES = True" + ON_THE_DEVICE_OF_B,
    "a failed solve raises and does not hang": FAILURE,  # the last, as it leaves a failed program behind
}
BY_DEFAULT = ("x is on the device of b", "a failed solve raises and does not hang")


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> dict[str, str]:
    """How the cases that this run looks at ended, in one process: with nothing to say, or an error."""
    names = selected_names(request, "ended")
    run = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps([(name, START + code) for name, code in CASES.items() if name in names]),
        env=os.environ | virtual_devices(4), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"name"')]
    return {line["name"]: line["ended"] for line in lines}


def tiers() -> list[Any]:
    later = {name: pytest.mark.slow if "every method" in name else pytest.mark.merge for name in CASES}
    return [name if name in BY_DEFAULT else pytest.param(name, marks=mark) for name, mark in later.items()]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers())
def test_on_four_devices(name: str, ended: dict[str, str]) -> None:
    assert not ended[name], ended[name]
