"""Algebraic multigrid of matrices whose values are traced, or differ in a batch: new numbers on old patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.preconditioners import UPDATES
from modes import array, compiled, library, to_numpy

GRID = (25, 20)
N = GRID[0] * GRID[1]
TRACED = ("jax-jit", "tf-function")
every_mode = pytest.mark.parametrize("mode", ("numpy", "torch", *TRACED))


def diffusion(contrast: float, seed: int = 0) -> sp.csr_array:
    """Conductivities between 1 and `contrast` in blocks of 5 by 5 cells, five-point, no flux but through one side."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 2, (GRID[0] // 5, GRID[1] // 5))
    k = contrast ** np.kron(blocks, np.ones((5, 5)))
    rows, cols, values = [], [], []
    number = np.arange(N).reshape(GRID)
    for axis in (0, 1):
        one, other = (np.moveaxis(number, axis, 0)[s] for s in (slice(None, -1), slice(1, None)))
        a, b = (np.moveaxis(k, axis, 0)[s] for s in (slice(None, -1), slice(1, None)))
        face = (2 * a * b / (a + b)).ravel()
        rows += [one.ravel(), other.ravel()]
        cols += [other.ravel(), one.ravel()]
        values += [-face, -face]
    A = sp.csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), (N, N))
    rim = np.where(number.ravel() < GRID[1], 2 * k.ravel(), 0)
    return sp.csr_array(A - sp.diags_array(np.asarray(A.sum(axis=1)).ravel() - rim))


def iterations(A: sp.csr_array, M: Any) -> int:
    b = np.random.default_rng(1).standard_normal(N)
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b)
    return int(result.iterations)


def solved(
    mode: str, A: sp.csr_array, b: np.ndarray, dtype: str = "float64", **settings: Any
) -> tuple[np.ndarray, int]:
    """With the values of A as arguments of the compiled function."""
    pattern = krylix.as_operator(A)

    def solve(values: Any, b: Any) -> tuple[Any, Any]:
        matrix = pattern.with_values(values)
        M = krylix.preconditioner(matrix, "amg", **{"max_coarse": 50, **settings})
        result = krylix.linear_solve(matrix, b, method="CG", preconditioner=M, rtol=1e-5 if "32" in dtype else 1e-8)
        return result.x, result.iterations

    values = np.asarray(pattern.values).astype(dtype)
    x, count = compiled(mode, solve)(array(mode, values), array(mode, b.astype(dtype)))
    return to_numpy(x), int(to_numpy(count))


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@every_mode
@pytest.mark.parametrize("coarsening", ["smoothed-aggregation", "aggregation"])
def test_solve_with_traced_values(mode: str, coarsening: str) -> None:
    A, b = diffusion(10.0), np.random.default_rng(1).standard_normal(N)
    x, count = solved(mode, A, b, coarsening=coarsening)
    assert np.linalg.norm(b - A @ x) <= 2e-8 * np.linalg.norm(b)
    fresh = iterations(A, krylix.preconditioner(A, "amg", max_coarse=50, coarsening=coarsening))
    assert count <= fresh + (2 if coarsening == "smoothed-aggregation" else 6)


@pytest.mark.parametrize("contrast", [1.0, 10.0, 1e3])
def test_as_good_as_a_fresh_hierarchy(contrast: float) -> None:
    """A stale one is not: those of unit coefficients with the numbers of others take nearly the steps of fresh ones."""
    settings: Any = {"coarsening": "smoothed-aggregation", "max_coarse": 50}
    A, plain = diffusion(contrast), krylix.preconditioner(diffusion(1.0), "amg", **settings)
    fresh = iterations(A, krylix.preconditioner(A, "amg", **settings))
    renewed = UPDATES["amg"](plain, krylix.as_operator(A))
    assert dict(renewed.settings) == settings
    assert iterations(A, renewed) <= 1.25 * fresh + 1
    if contrast >= 10:
        assert iterations(A, plain) > 2 * fresh


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
@pytest.mark.parametrize("mode", TRACED)
def test_the_cycle_of_traced_values_is_that_of_known_ones(mode: str, dtype: str) -> None:
    """Both on the tentative prolongations of unit coefficients, by SciPy and by products in the program."""
    A = diffusion(10.0)
    if dtype == "complex128":
        turn = sp.diags_array(np.exp(0.1j * np.arange(N)))
        A = sp.csr_array(turn @ A @ turn.conj())
    A = A.astype(dtype)
    pattern = krylix.as_operator(A)
    batch = krylix.preconditioner(pattern.with_values(np.asarray(pattern.values)[None]), "amg", max_coarse=50)
    r = np.random.default_rng(0).standard_normal((2, N)).astype(dtype)

    def image(values: Any, r: Any) -> Any:
        M = krylix.preconditioner(pattern.with_values(values), "amg", max_coarse=50)
        assert M.hermitian is None
        return M(r), M.T(r)

    found, turned = compiled(mode, image)(array(mode, np.asarray(pattern.values)), array(mode, r))
    expected = np.stack([batch(row[None])[0] for row in r])
    tolerance = {"rtol": 0, "atol": (1e-2 if dtype == "float32" else 1e-10) * np.abs(expected).max()}
    np.testing.assert_allclose(to_numpy(found), expected, **tolerance)
    np.testing.assert_allclose(to_numpy(turned), np.stack([batch.T(row[None])[0] for row in r]), **tolerance)


def test_facts_of_renewed_cycles() -> None:
    A = diffusion(100.0)
    for sign in (1, -1):
        batch = krylix.as_operator(A).with_values(sign * np.stack([A.data, 3 * A.data]))
        M = krylix.preconditioner(batch, "amg", max_coarse=50)
        assert M.hermitian and M.systems == 2
        entries = np.asarray(M.dense())
        for one, factor in zip(entries, (1, 3)):
            size = np.abs(one).max()
            assert np.abs(one - one.T).max() <= 1e-12 * size
            assert np.linalg.eigvalsh(sign * one).min() > 0
            np.testing.assert_allclose(factor * one, entries[0], rtol=0, atol=1e-12 * np.abs(entries[0]).max())
    convection = A + sp.diags_array([-0.3, 0.3], offsets=[-1, 1], shape=A.shape)
    pattern = krylix.as_operator(sp.csr_array(convection))
    M = krylix.preconditioner(pattern.with_values(np.asarray(pattern.values)[None]), "amg", max_coarse=50)
    entries = np.asarray(M.dense())[0]
    assert M.hermitian is False
    np.testing.assert_allclose(np.asarray(M.T.dense())[0], entries.T, atol=1e-12 * np.abs(entries).max())


@pytest.mark.compiled_by_default(modes=())
@every_mode
def test_a_batch_of_matrices(mode: str) -> None:
    """Each system in the steps that it takes alone."""
    contrasts, rng = (1.0, 10.0, 100.0), np.random.default_rng(2)
    values = np.stack([diffusion(c).data for c in contrasts])
    b = rng.standard_normal((3, N))
    pattern = krylix.as_operator(diffusion(1.0))

    def solve(values: Any, b: Any) -> tuple[Any, Any]:
        matrix = pattern.with_values(values)
        M = krylix.preconditioner(matrix, "amg", max_coarse=50)
        result = krylix.linear_solve(matrix, b, method="CG", preconditioner=M, rtol=1e-8, batch_ndim=1)
        return result.x, result.iterations

    x, counts = map(to_numpy, compiled(mode, solve)(array(mode, values), array(mode, b)))
    for i, contrast in enumerate(contrasts):
        A = diffusion(contrast)
        assert np.linalg.norm(b[i] - A @ x[i]) <= 2e-8 * np.linalg.norm(b[i])
        alone = solve(values[i : i + 1], b[i : i + 1])
        assert counts[i] == int(alone[1][0])


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_gradients_do_not_see_it() -> None:
    """Of a solve in jax.jit with respect to the values and the right-hand side, against differences."""
    import jax
    import jax.numpy as jnp

    pattern, b = krylix.as_operator(diffusion(10.0)), np.random.default_rng(1).standard_normal(N)
    weights = np.random.default_rng(2).standard_normal(N)

    @jax.jit
    def loss(scale: Any, values: Any) -> Any:
        matrix = pattern.with_values(scale * values)
        M = krylix.preconditioner(matrix, "amg", max_coarse=100)
        x = krylix.linear_solve(matrix, jnp.asarray(b), method="CG", preconditioner=M, rtol=1e-12).x
        return jnp.vdot(weights, x)

    values = jnp.asarray(np.asarray(pattern.values))
    by_scale, by_values = jax.jit(jax.grad(loss, (0, 1)))(1.0, values)
    exact = np.linalg.solve(diffusion(10.0).toarray(), b)
    assert by_scale == pytest.approx(-weights @ exact, rel=1e-8)  # x is proportional to 1 / scale
    direction = np.random.default_rng(3).uniform(-1, 1, values.shape) * np.asarray(values)
    rows, cols, _ = pattern.structure.entries()
    change = sp.csr_array((direction, (rows, cols)), (N, N))
    expected = -weights @ np.linalg.solve(diffusion(10.0).toarray(), change @ exact)
    assert float(jnp.vdot(by_values, direction)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_new_numbers_for_one_that_is_an_argument() -> None:
    """`pattern=M0` with an M0 made outside, and passed in, for several matrices by vmap."""
    import jax
    import jax.numpy as jnp

    A = diffusion(10.0)
    pattern = krylix.as_operator(A, jnp.zeros(N))
    M0 = krylix.preconditioner(krylix.as_operator(diffusion(1.0), jnp.zeros(N)), "amg", max_coarse=100)
    r = jnp.asarray(np.random.default_rng(0).standard_normal(N))

    def image(M0: Any, values: Any) -> Any:
        return krylix.preconditioner(pattern.with_values(values), "amg", pattern=M0) @ r

    values = jnp.stack([pattern.values, 2 * pattern.values])
    known = krylix.preconditioner(A, "amg", pattern=krylix.preconditioner(diffusion(1.0), "amg", max_coarse=100))
    expected = known @ np.asarray(r)
    mapped = jax.jit(jax.vmap(image, (None, 0)))(M0, values)
    np.testing.assert_allclose(mapped, [expected, expected / 2], rtol=0, atol=1e-9 * np.abs(expected).max())


def test_hierarchies_of_pyamg_keep_their_interpolation() -> None:
    pattern = krylix.as_operator(diffusion(1.0))
    batch = pattern.with_values(np.stack([pattern.values, pattern.values]))
    solver = pyamg.ruge_stuben_solver(diffusion(1.0), max_coarse=50)
    M = krylix.preconditioner(diffusion(1.0), "amg", hierarchy=solver)
    renewed = krylix.preconditioner(batch, "amg", pattern=M)
    r = np.random.default_rng(0).standard_normal(N)
    np.testing.assert_allclose(renewed(np.stack([r, r]))[1], M @ r, rtol=0, atol=1e-9 * np.abs(M @ r).max())
    given = krylix.preconditioner(batch, "amg", hierarchy=solver)
    np.testing.assert_allclose(given(np.stack([r, r]))[0], M @ r, rtol=0, atol=1e-9 * np.abs(M @ r).max())


def test_pattern_of_a_known_matrix() -> None:
    pattern = krylix.as_operator(diffusion(1e3))
    batch = pattern.with_values(np.asarray(pattern.values)[None])
    M = krylix.preconditioner(batch, "amg", max_coarse=50, pattern=diffusion(1e3), strength=0.1)
    fresh = krylix.preconditioner(diffusion(1e3), "amg", max_coarse=50, strength=0.1)
    r = np.ones((1, N))
    np.testing.assert_allclose(M(r)[0], fresh @ r[0], rtol=0, atol=1e-9 * np.abs(fresh @ r[0]).max())


@pytest.mark.compiled_by_default(modes=())
@every_mode
def test_singular_and_diagonal_in_programs(mode: str) -> None:
    """Coarsest levels that have no inverse, zero rows, matrices of one unknown and with nothing but a diagonal."""
    A = diffusion(1.0).tolil()
    A[[7, 100]] = 0
    A[:, [7, 100]] = 0
    for matrix in (sp.csr_array(A), sp.diags_array(np.arange(1.0, 501.0)).tocsr(), sp.csr_array([[2.0]])):
        singular = krylix.as_operator(sp.csr_array(matrix))
        b = np.asarray(matrix @ np.ones(matrix.shape[0]))

        def image(values: Any, r: Any, singular: Any = singular) -> Any:
            return krylix.preconditioner(singular.with_values(values), "amg", max_coarse=50) @ r

        found = to_numpy(compiled(mode, image)(array(mode, np.asarray(singular.values)), array(mode, b)))
        assert np.isfinite(found).all()
        if matrix.nnz <= matrix.shape[0]:
            np.testing.assert_allclose(found, 1, rtol=1e-12)


def test_registered() -> None:
    assert set(UPDATES) <= set(PRECONDITIONERS)
    assert library("jax-jit") == "jax"
