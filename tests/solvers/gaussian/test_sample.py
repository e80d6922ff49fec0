"""Samples: the covariance exactly, by unit vectors in place of random ones, and of what is drawn within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from gaussian_matrices import MATRICES, closed, definite, grid_laplacian
from krylix import prepare
from krylix.solvers.gaussian.factorised import entries_of
from krylix.solvers.gaussian.square_root import by_lanczos, times_root
from modes import MODES, array, compiled, to_numpy

DEFINITE = ["grid", "3-d", "line", "large grid", "Hermitian", "cancelling", "huge"]


@pytest.mark.parametrize("of", ["precision", "covariance"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("name", DEFINITE)
def test_covariance(name: str, form: str, of: str) -> None:
    """Rows of R^T for z = 1: their products are the covariance."""
    A = MATRICES[name]
    operator = krylix.as_operator(A if form == "sparse" else A.toarray())
    R = times_root(operator, np.eye(A.shape[0], dtype=A.dtype), of == "precision", 1, entries_of)
    expected = A.toarray() if of == "covariance" else np.linalg.inv(A.toarray())
    np.testing.assert_allclose(R.T @ R.conj(), expected, atol=1e-11 * np.abs(expected).max())


ONE_OF_EACH_LIBRARY = ("numpy", "jax-jit", "torch", "tf")


@pytest.mark.parametrize(("of", "mode"), in_turn(["precision", "covariance"], ONE_OF_EACH_LIBRARY, always=["numpy"]))
def test_covariance_by_lanczos(of: str, mode: str) -> None:
    """A^(1/2) or A^(-1/2) itself, by products."""
    m = grid_laplacian(4, 3)
    A: Any = krylix.as_operator(m, array(mode, np.zeros(12)))
    R = to_numpy(compiled(mode, lambda z: by_lanczos(A, z, of == "precision", 12))(array(mode, np.eye(12))))
    expected = m.toarray() if of == "covariance" else np.linalg.inv(m.toarray())
    np.testing.assert_allclose(R, R.T, atol=1e-10)
    np.testing.assert_allclose(R.T @ R, expected, atol=1e-9)


class Opaque(sp.linalg.LinearOperator):
    """Products only, none of which shows its entries."""

    def __init__(self, m: Any) -> None:
        super().__init__(m.dtype, m.shape)
        self.m = m

    def _matvec(self, x: Any) -> Any:
        return self.m @ x

    _matmat = _matvec


DRAWN = 4000


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf", "torch-compile"))
@pytest.mark.parametrize(("form", "mode"), in_turn(["dense", "sparse"], MODES, always=["numpy", "torch"]))
def test_drawn(form: str, mode: str) -> None:
    """Of fixed keys; variances of a chi-squared distribution, within five standard errors; values traced."""
    m = grid_laplacian(20, 14)
    A: Any = krylix.as_operator(m, array(mode, np.zeros(280))).to("csr")
    values = array(mode, m.toarray() if form == "dense" else m.data)

    def draw(values: Any) -> Any:
        solver = prepare(values if form == "dense" else A.with_values(values), method="CG", preconditioner=None)
        return solver.sample(3, (2, DRAWN // 2))

    x = to_numpy(compiled(mode, draw)(values))
    assert x.shape == (2, DRAWN // 2, 280)
    X = np.linalg.inv(m.toarray())
    found = x.reshape(DRAWN, 280)
    ratio = found.var(axis=0) / X.diagonal()
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / DRAWN)
    assert abs(np.mean(found[:, 0] * found[:, 1]) - X[0, 1]) < 5 * X[0, 0] / np.sqrt(DRAWN)
    assert np.abs(found.mean(axis=0)).max() < 5 * np.sqrt(X.diagonal().max() / DRAWN)


def test_shapes_and_keys() -> None:
    solver = prepare(grid_laplacian(4, 5))
    assert solver.sample(0).shape == (20,) and solver.sample(0, 3).shape == (3, 20)
    assert solver.sample(0, (0, 2)).shape == (0, 2, 20)
    assert np.array_equal(solver.sample(1), solver.sample(1))
    assert not np.array_equal(solver.sample(1), solver.sample(2))
    generator = np.random.default_rng(0)
    assert not np.array_equal(solver.sample(generator), solver.sample(generator))
    on_grid = prepare(lambda x: 4 * x - np.roll(x, 1, 0) - np.roll(x, -1, 0), np.zeros((4, 5), np.float32))
    assert on_grid.sample(0, (2,)).shape == (2, 4, 5) and on_grid.sample(0).dtype == np.float32


@pytest.mark.needs("jax")
def test_containers() -> None:
    """Samples and variances have the structure of the unknowns."""
    import jax.numpy as jnp

    solver = prepare(lambda t: {"a": 2 * t["a"], "b": 5 * t["b"]}, {"a": jnp.zeros((3, 2)), "b": jnp.zeros(2)})
    drawn, variances = solver.sample(0, (4,)), solver.inverse_diagonal()
    assert drawn["a"].shape == (4, 3, 2) and drawn["b"].shape == (4, 2)
    np.testing.assert_allclose(variances["a"], np.full((3, 2), 0.5))
    np.testing.assert_allclose(variances["b"], [0.2, 0.2])


@pytest.mark.needs("jax")
def test_programs() -> None:
    """A solver as an argument of a program, and keys in lanes."""
    import jax

    solver = prepare(krylix.as_operator(grid_laplacian(20, 15), jax.numpy.zeros(300)))
    keys = jax.random.split(jax.random.key(0), 2)
    drawn = jax.jit(lambda solver, keys: jax.vmap(lambda k: solver.sample(k))(keys))(solver, keys)
    np.testing.assert_allclose(drawn, [solver.sample(k) for k in keys], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("form", "mode"), in_turn(["dense", "sparse"], ONE_OF_EACH_LIBRARY, always=["numpy"]))
def test_batches(form: str, mode: str) -> None:
    """Each matrix has samples of its own."""
    ms = np.stack([grid_laplacian(2, 3, shift=s).toarray() for s in (0.1, 100.0)])
    one: Any = krylix.as_operator(sp.csr_array(ms[0]), array(mode, np.zeros(6))).to("csr")
    values = array(mode, ms if form == "dense" else np.stack([sp.csr_array(m).data for m in ms]))

    def draw(values: Any) -> Any:
        return prepare(values if form == "dense" else one.with_values(values)).sample(0, 3000)

    x = to_numpy(compiled(mode, draw)(values))
    assert x.shape == (3000, 2, 6)
    variances = np.linalg.inv(ms)[:, range(6), range(6)]
    assert np.abs(x.var(axis=0) / variances - 1).max() < 5 * np.sqrt(2 / 3000)


def test_complex() -> None:
    """Circular: both parts have half of the variance."""
    m = definite(12, complex_=True)
    x = prepare(m).sample(0, 20_000)
    X = np.linalg.inv(m.toarray())
    limit = 5 * np.abs(X).max() / np.sqrt(20_000)
    assert np.abs(x.T @ x.conj() / 20_000 - X).max() < limit
    assert np.abs(x.T @ x / 20_000).max() < limit


def test_functions_without_entries() -> None:
    m = grid_laplacian(20, 15)
    solver = prepare(Opaque(m), np.zeros(300), method="CG")
    x = solver.sample(0, 300, steps=50)
    assert np.abs(x.var(axis=0) / np.linalg.inv(m.toarray()).diagonal() - 1).max() < 5 * np.sqrt(2 / 300)
    assert np.array_equal(solver.sample(5), solver.sample(5)) and solver.sample(5).shape == (300,)
    with pytest.raises(ValueError, match=r"has not settled after 2 steps.*more steps"):
        solver.sample(0, steps=2)


@pytest.mark.parametrize("form", ["dense", "sparse", "products"])
@pytest.mark.parametrize("name", ["indefinite", "scattered", "negative definite"])
def test_refuses_what_is_not_definite(name: str, form: str) -> None:
    m = MATRICES[name]
    A: Any = {"dense": m.toarray(), "sparse": m, "products": Opaque(sp.block_diag([m, sp.eye_array(200)]))}[form]
    solver = prepare(A, np.zeros(A.shape[0]), method="GMRES", preconditioner=None)
    with pytest.raises(ValueError, match="ositive definite"):
        solver.sample(0)


def test_refuses_semi_definite() -> None:
    """The Laplacian of a graph: constants have no precision."""
    L = sp.csr_array(np.array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]))
    for A in (L, L.toarray()):
        with pytest.raises(ValueError, match=r"(?s)positive definite.*multiple of the identity"):
            prepare(A, method="CG").sample(0)
    m = grid_laplacian(20, 20, shift=0)
    with pytest.raises(ValueError, match="positive definite"):  # by products, which show no null vector but this one
        prepare(Opaque(m - sp.diags_array(m.sum(axis=1))), np.zeros(400), method="CG").sample(0)
    large = closed(30)  # whose last pivot is rounding
    for A in (large, large.toarray()):
        with pytest.raises(ValueError, match="positive definite"):
            prepare(A, method="CG").sample(0)


@pytest.mark.parametrize("name", ["Gram", "noise", "noise in double precision"])
def test_symmetric_up_to_rounding(name: str) -> None:
    """In the precision of the matrix, sparse as dense: mirrored entries that are summed in different order."""
    rng = np.random.default_rng(0)
    if name == "Gram":
        B = sp.csr_array(sp.random_array((500, 400), density=0.02, rng=rng)).astype(np.float32)
        weights = sp.diags_array(rng.uniform(1, 2, 500).astype(np.float32))
        m = sp.csr_array(B.T @ (weights @ B) + sp.eye_array(400, dtype=np.float32))
    else:
        m, size = grid_laplacian(20, 20), 1e-7 if name == "noise" else 1e-12
        m.data *= 1 + rng.uniform(-size, size, m.nnz)
        m = m.astype(np.float32) if name == "noise" else m
    assert abs(m - m.T).max() > 0
    operator = krylix.as_operator(m)
    R = times_root(operator, np.eye(400, dtype=m.dtype), True, 1, entries_of)
    expected = np.linalg.inv(m.toarray().astype(float))
    np.testing.assert_allclose(R.T @ R, expected, atol=1e-5 * np.abs(expected).max())
    assert prepare(m).sample(0, 3).shape == prepare(m.toarray()).sample(0, 3).shape == (3, 400)
    with pytest.raises(ValueError, match="positive definite"):
        prepare(sp.csr_array(m + 1e-3 * sp.triu(m, 1)).astype(m.dtype), method="GMRES", preconditioner=None).sample(0)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_refused_when_a_program_runs(mode: str) -> None:
    m = -grid_laplacian(20, 15)
    A: Any = krylix.as_operator(m, array(mode, np.zeros(300))).to("csr")
    draw = compiled(mode, lambda v: prepare(A.with_values(v), method="CG", preconditioner=None).sample(0))
    with pytest.raises(Exception, match="positive definite"):
        to_numpy(draw(array(mode, m.data)))


def test_bad_input() -> None:
    solver = prepare(grid_laplacian(3))
    for settings, what in (
        ({"of": "variance"}, "'covariance'"),
        ({"shape": (-1,)}, "from 0 on"),
        ({"steps": 0}, "1 on"),
    ):
        with pytest.raises(ValueError, match=what):
            solver.sample(0, **settings)
    with pytest.raises(TypeError, match="key"):
        solver.sample("a key")


@pytest.mark.needs("torch")
def test_derivatives() -> None:
    """Of a dense matrix, along its samples; refused elsewhere."""
    import torch

    m = grid_laplacian(5, 4).toarray()
    A = torch.tensor(m, requires_grad=True)
    weights = torch.arange(20.0, dtype=torch.float64)
    (found,) = torch.autograd.grad(prepare(A).sample(0) @ weights, A)
    change = np.diag(np.linspace(1, 2, 20))

    def value(m: np.ndarray) -> float:
        return float(prepare(torch.tensor(m)).sample(0) @ weights)

    h = 1e-6
    slope = (value(m + h * change) - value(m - h * change)) / (2 * h)
    np.testing.assert_allclose(np.sum(found.numpy() * change), slope, rtol=1e-5)
    large = grid_laplacian(20, 15)
    S: Any = krylix.as_operator(large, torch.zeros(300, dtype=torch.float64)).to("csr")
    values = torch.tensor(large.data, requires_grad=True)
    x = prepare(S.with_values(values), method="CG", preconditioner=None).sample(0)
    with pytest.raises(TypeError, match="no derivative"):
        torch.autograd.grad(x.sum(), values)
