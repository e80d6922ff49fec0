"""The automatic choice: each row of its table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from krylix import linear_solve, matrix_from_function, prepare
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.setup.fill import factor_operations
from modes import array, compiled, to_numpy

rng = np.random.default_rng(0)
SHAPE = (20, 18)
K = 1 + rng.random(SHAPE)


def laplace(u: Any) -> Any:
    padded = np.pad(u, 1)
    return 4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]


def matrix(f: Callable[[Any], Any]) -> Any:
    return matrix_from_function(f, np.zeros(SHAPE))[0]


def exact(A: Any, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(A.toarray(), b.reshape(-1)).reshape(b.shape)


@pytest.mark.parametrize("form", ["matrix", "prepared function", "prepared matrix"])
def test_sums_along_axes_get_the_fast_solver(form: str) -> None:
    b = rng.standard_normal(SHAPE)
    if form == "matrix":
        b = b.reshape(-1)
        result = linear_solve(matrix(laplace), b)
    else:
        A = laplace if form == "prepared function" else matrix(laplace)
        b = b if form == "prepared function" else b.reshape(-1)
        result = prepare(A, b).solve(b)
    assert result.method == "fast-direct" and result.iterations == 1
    np.testing.assert_allclose(result.x, exact(matrix(laplace), b), rtol=1e-9)


def test_other_functions_on_grids_do_not() -> None:
    b = rng.standard_normal(SHAPE)
    assert linear_solve(laplace, b).method == "CG"  # its values may be others in the next call
    result = linear_solve(lambda u: laplace(u) + K * u, b)
    assert result.method == "CG"
    solver = prepare(lambda u: laplace(u) + K * u, b)
    assert solver.method.name == "CG"
    np.testing.assert_allclose(solver.solve(b).x, result.x, atol=1e-8)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_in_compiled_functions(mode: str) -> None:
    """Recognised while the function is compiled; with traced coefficients CG."""
    b = rng.standard_normal(SHAPE)
    names: list[str] = []

    def solve(b: Any, k: Any) -> Any:
        shifted = _laplace_of(mode)
        fast = linear_solve(shifted, b)
        other = linear_solve(lambda u: shifted(u) + k * u, b)
        names[:] = [fast.method, other.method]
        return fast.x, other.x

    fast, other = compiled(mode, solve)(array(mode, b), array(mode, K))
    assert names[0] == "fast-direct" and names[1] != "fast-direct"
    np.testing.assert_allclose(to_numpy(fast), exact(matrix(laplace), b), atol=1e-9)
    np.testing.assert_allclose(to_numpy(other), exact(matrix(lambda u: laplace(u) + K * u), b), atol=1e-8)


def _laplace_of(mode: str) -> Callable[[Any], Any]:
    if mode.startswith("jax"):
        import jax.numpy as jnp

        pad: Any = lambda u: jnp.pad(u, 1)  # noqa: E731
    else:
        import tensorflow as tf

        pad = lambda u: tf.pad(u, [[1, 1], [1, 1]])  # noqa: E731

    def apply(u: Any) -> Any:
        padded = pad(u)
        return 4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]

    return apply


def test_prepared_matrices_get_factors_where_these_are_cheap() -> None:
    """As many solves come. Factors of a random graph are nearly dense."""
    plane = sp.csr_array(pyamg.gallery.poisson((60, 60), format="csr"))
    assert prepare(plane, np.ones(3600)).method.name == "scipy-direct"
    assert linear_solve(plane, np.ones(3600)).method == "CG"
    edges = sp.random_array((6000, 6000), density=1e-3, rng=rng)
    graph = sp.csr_array(edges + edges.T + 20 * sp.eye_array(6000))
    assert prepare(graph, np.ones(6000)).method.name == "CG"


@pytest.mark.parametrize("grid", [(40, 40), (12, 12, 12)])
def test_operations_of_factors(grid: tuple[int, ...]) -> None:
    """A bound of those in a natural order, by the widths of dense Cholesky factors, and no wild one."""
    A = sp.csr_array(pyamg.gallery.poisson(grid, format="csr"))
    L = np.linalg.cholesky(A.toarray())
    operations = float(np.sum(np.count_nonzero(L, axis=0).astype(float) ** 2))
    assert 0.1 * operations < factor_operations(A) < 3 * operations


def test_large_symmetric_matrices_get_multigrid() -> None:
    """But those whose diagonal dominates, as in short time steps; and where it cannot be made, scaling."""
    A = sp.csr_array(pyamg.gallery.poisson((90, 90), format="csr"))
    b = rng.standard_normal(8100)
    result = linear_solve(A, b)
    assert result.method == "CG" and result.preconditioner == "amg" and result.iterations < 30
    assert np.linalg.norm(A @ result.x - b) <= 1e-10 * np.linalg.norm(b)
    assert linear_solve(sp.eye_array(8100) + 0.01 * A, b).preconditioner == "jacobi"


def test_what_cannot_be_made_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(A: Any) -> Any:
        raise ValueError("no")

    A = sp.csr_array(pyamg.gallery.poisson((90, 90), format="csr"))
    monkeypatch.setitem(PRECONDITIONERS, "amg", fails)
    assert linear_solve(A, np.ones(8100)).preconditioner == "jacobi"
    with pytest.raises(ValueError, match="no"):
        linear_solve(A, np.ones(8100), preconditioner="amg")


@pytest.mark.parametrize("again", ["another sum", "no sum"])
def test_update_chooses_again(again: str) -> None:
    """What was recognised in the first matrix need not be so in the next one."""
    b = rng.standard_normal(SHAPE)
    solver = prepare(laplace, b)
    assert solver.method.name == "fast-direct"
    A = (lambda u: laplace(u) + 2 * u) if again == "another sum" else (lambda u: laplace(u) + K * u)
    other = solver.update(A)
    assert (other.method.name == "fast-direct") == (again == "another sum")
    np.testing.assert_allclose(other.solve(b).x, exact(matrix(A), b), atol=1e-8)


def test_prepared_systems_without_unknowns() -> None:
    assert prepare(sp.csr_array((0, 0)), np.ones(0)).solve(np.ones(0)).converged
