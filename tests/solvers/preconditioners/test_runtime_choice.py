"""Multigrid chosen before the values are known: each run decides, and every answer is right whatever the values are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import krylix
from cells import in_turn
from frameworks import lazy
from krylix.backends.interface.control import Control
from krylix.solvers.preconditioners import choose
from krylix.solvers.preconditioners.choose import multigrid_or_jacobi
from krylix.sparse import Stencil
from modes import array, compiled, library, to_numpy

jax = lazy("jax")
jax_backend = lazy("krylix.backends.jax.backend")
GRID = (26, 22)
SHIFTS = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
X, Y = np.meshgrid(*(np.linspace(0, 1, n) for n in GRID), indexing="ij")
rng = np.random.default_rng(0)

pytestmark = pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
modes = pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Grids that are large enough are small here."""
    monkeypatch.setattr(choose, "_LEAST", {2: 400, 3: 400})
    monkeypatch.setattr(choose, "_DIRECT", 150)
    yield


def diffusion(k: np.ndarray) -> np.ndarray:
    """Of these conductivities, zero outside: the coefficients of `SHIFTS`."""
    q = np.pad(k, 1, mode="edge")
    sides = [2 * k * other / (k + other) for other in (q[2:, 1:-1], q[:-2, 1:-1], q[1:-1, 2:], q[1:-1, :-2])]
    return np.stack([sum(sides), *(-s for s in sides)])


def convection(strength: float) -> np.ndarray:
    """Upwind differences of a flow around the middle, beside diffusion of one."""
    u, v = strength * np.sin(np.pi * X) * np.cos(np.pi * Y), -strength * np.cos(np.pi * X) * np.sin(np.pi * Y)
    up, down = np.minimum(u, 0) - 1, -np.maximum(u, 0) - 1
    right, left = np.minimum(v, 0) - 1, -np.maximum(v, 0) - 1
    return np.stack([4 + abs(u) + abs(v), up, down, right, left])


def with_diagonal(found: np.ndarray, here: Any) -> np.ndarray:
    return np.concatenate([np.broadcast_to(here, (1, *GRID)), found[1:]])


SMOOTH = np.exp(2 * np.sin(5 * X) * np.cos(4 * Y))
JUMPS = np.where(rng.random((4, 4)) < 0.5, 1.0, 1e4).repeat(7, 0).repeat(6, 1)[: GRID[0], : GRID[1]]
PLAIN = diffusion(np.ones(GRID))
HOLES = PLAIN * (np.hypot(X - 0.5, Y - 0.5) > 0.2)
SUITED = {
    "smooth": diffusion(SMOOTH),
    "jumps": diffusion(JUMPS),
    "negative": -diffusion(SMOOTH),
    "weak convection": convection(0.5),
    "long waves": with_diagonal(PLAIN, 3.995),
    "rows of their own in holes": with_diagonal(HOLES, np.where(HOLES[0] == 0, 1.0, 4.0)),
    "short and long steps": diffusion(SMOOTH) + with_diagonal(0 * PLAIN, 1e-2),
}
OTHERS = {
    "short steps": diffusion(SMOOTH) + with_diagonal(0 * PLAIN, 100.0),
    "convection": convection(100.0),
    "waves": with_diagonal(PLAIN, 3.0),
    "a zero on the diagonal": with_diagonal(PLAIN, np.where((X < 0.03) & (Y < 0.03), 0.0, 4.0)),
    "scaled rows": PLAIN * np.exp(3 * rng.standard_normal(GRID)),
    "couplings of the diagonal's sign": np.abs(PLAIN),
    "nothing": 0 * PLAIN,
}


def matrix(coefficients: Any) -> Stencil:
    return Stencil([coefficients[k] for k in range(5)], SHIFTS, GRID)


def dense(coefficients: np.ndarray) -> np.ndarray:
    """By hand."""
    n, m = GRID
    A = np.zeros((n, m, n, m))
    for c, (a, b) in zip(coefficients, SHIFTS):
        for i, j in np.ndindex(*GRID):
            if 0 <= i + a < n and 0 <= j + b < m:
                A[i, j, i + a, j + b] = c[i, j]
    return A.reshape(n * m, n * m)


@pytest.mark.parametrize("name", [*SUITED, *OTHERS])
@modes
def test_which_is_applied(mode: str, name: str) -> None:
    """One program for all values."""
    coefficients = (SUITED | OTHERS)[name]
    r = rng.standard_normal(X.size)
    image, chosen, transposed = _applied(mode)(array(mode, coefficients), array(mode, r))
    assert to_numpy(chosen) == (name in SUITED)
    if name in OTHERS:
        scaled = r / np.where(coefficients[0] == 0, 1, coefficients[0]).reshape(-1)
        np.testing.assert_allclose(to_numpy(image), scaled, rtol=1e-6)
        np.testing.assert_allclose(to_numpy(transposed), scaled, rtol=1e-6)
    else:
        A = dense(coefficients)
        assert np.linalg.norm(r - A @ to_numpy(image)) < 0.9 * np.linalg.norm(r)


def ring(coefficients: np.ndarray) -> tuple[Any, np.ndarray, tuple[int, ...]]:
    """Closed along the first axis: shifts around the end, too."""
    n, m = GRID
    far = coefficients.copy()
    shifts = [*SHIFTS, (1 - n, 0), (n - 1, 0)]
    return shifts, np.concatenate([far, far[1:2], far[2:3]]), (n, m)


def three_axes(coefficients: np.ndarray) -> tuple[Any, np.ndarray, tuple[int, ...]]:
    """Of these values along the first and the second axis, and the same along the third."""
    third = coefficients[3:5]
    layers = np.repeat(np.concatenate([coefficients[:1] - third.sum(0), coefficients[1:], third])[..., None], 6, -1)
    return [(*s, 0) for s in SHIFTS] + [(0, 0, 1), (0, 0, -1)], layers, (*GRID, 6)


def plane(coefficients: np.ndarray) -> tuple[Any, np.ndarray, tuple[int, ...]]:
    return SHIFTS, coefficients, GRID


GEOMETRIES = {"plane": (plane, SUITED), "ring": (ring, ["smooth"]), "three axes": (three_axes, ["smooth", "negative"])}


@pytest.mark.merge
@pytest.mark.parametrize(("geometry", "dtype"), in_turn(GEOMETRIES, ["float32", "complex128", "float64"]))
def test_the_host_and_the_program_set_up_the_same(
    monkeypatch: pytest.MonkeyPatch, geometry: str, dtype: str
) -> None:  # fmt: skip
    """What NumPy makes for a program of JAX, and what programs make that may not call it; both are near the inverse."""
    make, names = GEOMETRIES[geometry]
    turned = 1 + 0.2j if "complex" in dtype else 1
    images, cases = [], {name: make(SUITED[name]) for name in names}
    (shifts, _, grid), *_ = cases.values()
    r = rng.standard_normal(int(np.prod(grid))).astype(dtype)
    values = {name: (turned * c).astype(dtype) for name, (_, c, _) in cases.items()}
    with jax.enable_x64(dtype != "float32"):
        for by_host in (jax_backend.JaxBackend.by_host, Control.by_host):
            monkeypatch.setattr(jax_backend.JaxBackend, "by_host", by_host)

            @jax.jit
            def apply(c: Any, r: Any) -> Any:
                return multigrid_or_jacobi(Stencil([*c], shifts, grid)).inner.apply(r[None])[0]

            images.append({name: np.asarray(apply(c, r)) for name, c in values.items()})
    for name, host in images[0].items():
        limit = 1e-3 if dtype == "float32" else 1e-8
        np.testing.assert_allclose(host, images[1][name], atol=limit * np.max(np.abs(host)), rtol=0, err_msg=name)
        A = Stencil([*values[name]], shifts, grid).to_scipy()
        assert np.linalg.norm(r - A @ host) < 0.9 * np.linalg.norm(r), name


PROGRAMS: dict[str, Any] = {}


def _applied(mode: str) -> Any:
    def applied(c: Any, r: Any) -> Any:
        M = krylix.preconditioner(matrix(c))
        assert M.kind == "multigrid"
        return M @ r, M.inner.chosen[0] > 0, M.T @ r  # type: ignore[attr-defined]

    return PROGRAMS.setdefault(mode, compiled(mode, applied))


SOLVED = [name for name in [*SUITED, *OTHERS] if name != "nothing"]


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        *(("jax-jit", name) for name in SOLVED),
        *(
            pytest.param("tf-function", name, marks=pytest.mark.merge if name == "smooth" else pytest.mark.slow)
            for name in SOLVED
        ),
    ],
)
def test_solves(mode: str, name: str) -> None:
    """All are right; with multigrid in few steps."""
    coefficients, b = (SUITED | OTHERS)[name], rng.standard_normal(X.size)

    def solve(c: Any, b: Any) -> Any:
        result = krylix.linear_solve(matrix(c), b)
        assert (result.method, result.preconditioner) == ("biCG-stab(2)", "multigrid")
        return result.x, result.iterations

    solver = PROGRAMS.setdefault(f"{mode} solves", compiled(mode, solve))
    x, iterations = map(to_numpy, solver(array(mode, coefficients), array(mode, b)))
    expected = np.linalg.solve(dense(coefficients), b)
    np.testing.assert_allclose(x, expected, atol=1e-6 * np.abs(expected).max())
    if name in SUITED:
        assert iterations <= 6


@pytest.mark.merge
@pytest.mark.parametrize("mode", ["jax-jit", pytest.param("tf-function", marks=pytest.mark.slow)])
def test_values_that_are_no_numbers(mode: str) -> None:
    def solve(c: Any, b: Any) -> Any:
        return krylix.linear_solve(matrix(c), b, on_failure="status").converged

    coefficients = PLAIN.copy()
    coefficients[2, 3, 4] = np.nan
    assert not to_numpy(compiled(mode, solve)(array(mode, coefficients), array(mode, np.ones(X.size))))


@pytest.mark.merge
@pytest.mark.parametrize("mode", ["jax-jit", pytest.param("tf-function", marks=pytest.mark.slow)])
def test_derivatives(mode: str) -> None:
    """By the coefficients, of values that it suits and of others."""
    b, w = rng.standard_normal(X.size), rng.standard_normal(X.size)

    def loss(c: Any) -> Any:
        bk = krylix.choose_backend(c)
        x = krylix.linear_solve(matrix(c), bk.asarray(b, like=c), rtol=1e-12).x
        return bk.sum(x * bk.asarray(w, like=c), 0)

    if library(mode) == "jax":
        gradient = jax.jit(jax.grad(loss))
    else:
        import tensorflow as tf

        @tf.function
        def gradient(c: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(c)
                value = loss(c)
            return tape.gradient(value, c)

    for coefficients in (SUITED["jumps"], SUITED["weak convection"], OTHERS["convection"], OTHERS["short steps"]):
        A = dense(coefficients)
        x, y = np.linalg.solve(A, b), np.linalg.solve(A.T, w)
        outer = dense(np.ones((5, *GRID))) * -np.outer(y, x)
        expected = np.zeros_like(coefficients)
        for k, (p, q) in enumerate(SHIFTS):
            for i, j in np.ndindex(*GRID):
                if 0 <= i + p < GRID[0] and 0 <= j + q < GRID[1]:
                    expected[k, i, j] = outer[i * GRID[1] + j, (i + p) * GRID[1] + j + q]
        found = to_numpy(gradient(array(mode, coefficients)))
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.needs("jax")
@pytest.mark.merge
def test_lanes_of_vmap() -> None:
    """Some of which it suits."""
    import jax.numpy as jnp

    names = ["jumps", "convection", "negative"]
    stack = np.stack([(SUITED | OTHERS)[name] for name in names])
    b = rng.standard_normal(X.size)
    solve = jax.jit(jax.vmap(lambda c: krylix.linear_solve(matrix(c), jnp.asarray(b), rtol=1e-10).x))
    for x, coefficients in zip(np.asarray(solve(stack)), stack):
        expected = np.linalg.solve(dense(coefficients), b)
        np.testing.assert_allclose(x, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.needs("jax")
@pytest.mark.slow
def test_single_precision() -> None:
    c, b = SUITED["smooth"].astype(np.float32), rng.standard_normal(X.size).astype(np.float32)
    result = jax.jit(lambda c, b: krylix.linear_solve(matrix(c), b))(c, b)
    assert result.x.dtype == np.float32
    assert result.converged
    assert result.iterations <= 6


def test_smaller_grids_and_other_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody compiles it for these."""
    monkeypatch.setattr(choose, "_LEAST", {2: 10_000})
    kinds = []

    def solve(c: Any, b: Any) -> Any:
        kinds.append(krylix.preconditioner(matrix(c)).kind)
        return b

    compiled("jax-jit", solve)(array("jax-jit", PLAIN), array("jax-jit", np.ones(X.size)))
    assert kinds[-1] == "jacobi"


ON_ONE_CORE = """
import os

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from krylix import linear_solve

jax.config.update("jax_enable_x64", True)
n = 400
k = jnp.exp(jnp.sin(jnp.linspace(0, 6, n)))[:, None] * jnp.ones((n, n))


def solve(k, b, **settings):
    def diffusion(u):
        p, q = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
        sides = [(slice(2, None), slice(1, -1)), (slice(0, -2), slice(1, -1))]
        sides += [(slice(1, -1), slice(2, None)), (slice(1, -1), slice(0, -2))]
        return sum((k + q[s]) / 2 * (u - p[s]) for s in sides)

    result = linear_solve(diffusion, b, **settings)
    return jnp.linalg.norm(diffusion(result.x) - b) / jnp.linalg.norm(b), result.iterations


b = jnp.asarray(np.random.default_rng(0).standard_normal((n, n)))
automatic, scipy = jax.jit(partial(solve, rtol=1e-8)), jax.jit(partial(solve, rtol=1e-1, method="scipy-CG"))
for _ in range(4):
    error, iterations = automatic(k, b)
    assert error <= 1.1e-8 and iterations < 9, (error, iterations)
    assert scipy(k, b)[0] <= 0.11
"""


@pytest.mark.merge
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot keep a process on one core")
def test_the_host_is_called_with_one_core() -> None:
    """Where nobody is left to copy what it is given: arrays of more than a megabyte, again and again."""
    subprocess.run([sys.executable, "-c", ON_ONE_CORE], check=True, timeout=200)
