"""The parts of multigrid in a compiled program: the same numbers as NumPy's, of batches and under transformations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import lazy
from grid_couplings import GRIDS, HOST, couplings, factors_of, interpolation, weights
from grid_problems import diffusion
from krylix.backends import get_backend
from krylix.solvers.factors.planes import (
    BlockTridiagonalInverse,
    block_tridiagonal_inverse,
)
from krylix.solvers.preconditioners.multigrid.couplings import MatrixOnGrid
from krylix.sparse import DIA
from krylix.sparse.operators.couplings import are_flat, neighbours, shifted_array, shifted_arrays

jax = lazy("jax")
jnp = lazy("jax.numpy")
NAMES = ["odd", "thin", "three axes"]  # lines that end, and an axis that is a ring


def parts(name: str, systems: int | None) -> dict[str, Any]:
    """For NumPy."""
    A = couplings(name, systems)
    found: dict[str, Any] = {"matrix": MatrixOnGrid.of(A)}
    factors = factors_of(A)[-1]
    found["up"] = interpolation(A, weights(A, factors), factors)
    found["down"] = found["up"].T
    scale = 1 + np.arange(np.prod(found["up"].coarse), dtype=float).reshape(1, *found["up"].coarse)
    found["scaled"] = found["up"].scaled(scale)
    found["coarsest"] = BlockTridiagonalInverse(
        HOST, *block_tridiagonal_inverse(A), A.grid, A.periodic, A.shifts, systems is not None
    )
    return found


def vectors(operators: dict[str, Any], rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal((rows, A.shape[1])) for name, A in operators.items()}


def images(operators: dict[str, Any]) -> Callable[[Any], Any]:
    """In a program, of known numbers."""

    @jax.jit
    def function(x: dict[str, Any]) -> dict[str, Any]:
        return {name: A.on_backend(get_backend("jax"), None).apply(x[name]) for name, A in operators.items()}

    return function


@pytest.mark.parametrize("name", NAMES)
def test_as_on_the_host(name: str) -> None:
    operators = parts(name, None)
    x = vectors(operators, 3)
    for part, found in images(operators)(x).items():
        np.testing.assert_allclose(found, operators[part].apply(x[part]), atol=1e-12, err_msg=part)
    up, scaled = operators["up"], operators["scaled"]
    np.testing.assert_allclose(scaled.dense(), up.dense() * (1.0 + np.arange(up.shape[1])), atol=1e-12)


def test_a_batch_of_matrices() -> None:
    """And each of several vectors as it is by itself, to the last digit where no dense matrix multiplies them."""
    operators = parts("odd", 2)
    x = vectors(operators, 2)
    found = images(operators)(x)
    for part, A in operators.items():
        np.testing.assert_allclose(found[part], A.apply(x[part]), atol=1e-12, err_msg=part)
    alone = parts("odd", None)
    del alone["coarsest"]
    x = vectors(alone, 3)
    apply = images(alone)
    batch = apply(x)
    for k in range(3):
        for part, one in apply({name: v[k : k + 1] for name, v in x.items()}).items():
            np.testing.assert_array_equal(one[0], batch[part][k], err_msg=part)


@pytest.mark.merge
def test_transformations() -> None:
    """They are linear: tangents, cotangents and more vectors go through them as through dense matrices."""
    operators = parts("odd", None)
    x, y = vectors(operators, 1), vectors({name: A.T for name, A in operators.items()}, 1)
    apply = images(operators)
    found, tangents = jax.jvp(apply, (x,), (x,))
    (pulled,) = jax.vjp(apply, x)[1]({name: jnp.asarray(v) for name, v in y.items()})
    many = jax.vmap(apply)({name: np.stack([v, 2 * v]) for name, v in x.items()})
    for name, A in operators.items():
        np.testing.assert_allclose(tangents[name], found[name], atol=1e-12)
        np.testing.assert_allclose(pulled[name], A.T.apply(y[name]), atol=1e-12)
        np.testing.assert_allclose(many[name][1], 2 * A.apply(x[name]), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_windows(name: str, backend: str) -> None:
    """As `shifted_array` has it, but for points past the end of a line."""
    grid, rings = GRIDS[name]
    u = np.random.default_rng(2).standard_normal((2, *grid))
    bk = get_backend(backend)
    found = shifted_arrays(bk, bk.asarray(u), neighbours(len(grid)), rings)
    assert are_flat(bk, rings) == (backend == "jax" and not any(rings))
    for shift, own in found.items():
        expected = shifted_array(HOST, u, shift, rings)
        inside = shifted_array(HOST, np.ones((1, *grid)), shift, rings) > 0
        np.testing.assert_array_equal(np.where(inside, own, 0), expected, str(shift))


@pytest.mark.merge
def test_on_the_host_they_are_diagonals() -> None:
    """Which are quicker there: what JAX holds as grids goes to NumPy, and to a file, as before."""
    k = np.random.default_rng(3).random((30, 30)) + 0.5
    A = krylix.as_operator(jnp.asarray(diffusion(k).toarray()))
    on_grids = krylix.preconditioner(A, "multigrid", grid=k.shape, direct=300)
    host = krylix.preconditioner(diffusion(k), "multigrid", grid=k.shape, direct=300)
    moved_there: Any = on_grids.to("numpy")
    finest = moved_there.inner.inner
    assert isinstance(finest.A, DIA) and type(on_grids.inner.inner.A) is MatrixOnGrid
    r = np.random.default_rng(4).standard_normal(900)
    for M in (moved_there, on_grids):
        np.testing.assert_allclose(np.asarray(M @ r), host @ r, rtol=0, atol=1e-12 * np.abs(host @ r).max())
