"""Algebraic multigrid of matrices whose unknowns come in a random order, as those of many meshes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from grid_problems import diffusion
from krylix.solvers.preconditioners.amg.levels import nearer_order, permuted_matrix, permuted_rows
from krylix.solvers.preconditioners.operators import Permuted
from matrices import FORMATS, in_krylix, in_random_order
from modes import EAGER, array, compiled, library, to_numpy

SHAPE = (52, 53)
N = SHAPE[0] * SHAPE[1]
K = np.exp(np.random.default_rng(0).standard_normal(SHAPE))
PLANE = diffusion(K)
MIXED = in_random_order(PLANE)
RHS = np.random.default_rng(1).standard_normal(N)


def order_of(A: Any) -> np.ndarray:
    found = nearer_order(krylix.as_operator(A))  # type: ignore[arg-type]
    assert found is not None and np.array_equal(np.sort(found), np.arange(A.shape[0]))
    return found


def by_order(A: sp.csr_array, **settings: Any) -> Any:
    """What M does, by that of the matrix in the better order."""
    order = order_of(A)
    M = krylix.preconditioner(sp.csr_array(A[order][:, order]), "amg", **settings)

    def apply(r: np.ndarray) -> np.ndarray:
        z = np.empty_like(r)
        z[order] = M @ r[order]
        return z

    return apply


@pytest.mark.parametrize(("format", "mode"), in_turn(FORMATS, EAGER, always=["numpy"]))
def test_matrices_in_another_order(mode: str, format: str) -> None:
    own = in_krylix(mode, MIXED, format, known=False)
    order = nearer_order(own)
    assert order is not None
    again: Any = permuted_matrix(own, order)
    assert abs(MIXED[order][:, order] - again.to_scipy()).max() == 0
    assert abs(permuted_rows(MIXED, order) - again.to_scipy()).max() == 0


@pytest.mark.parametrize(
    "A",
    [
        PLANE,
        in_random_order(pyamg.gallery.poisson((40, 40), format="csr")),  # small
        sp.csr_array(sp.random_array((3000, 3000), density=2e-3, rng=np.random.default_rng(0)) + sp.eye_array(3000)),
        sp.eye_array(3000, format="csr"),
        sp.csr_array((3000, 3000)),
        sp.eye_array(3000, format="csr")[::-1],
    ],
    ids=["in order", "small", "random graph", "diagonal", "empty", "antidiagonal"],
)
def test_left_as_they_are(A: Any) -> None:
    order = nearer_order(krylix.as_operator(sp.csr_array(A)))  # type: ignore[arg-type]
    assert order is None or A[0, -1] == 1  # pairs are put beside each other


def test_as_few_iterations_as_in_order() -> None:
    steps = [
        krylix.linear_solve(A, RHS, method="CG", preconditioner=krylix.preconditioner(A, "amg"), rtol=1e-8).iterations
        for A in (PLANE, MIXED)
    ]
    assert steps[1] <= steps[0] + 2


@pytest.mark.parametrize(
    "settings", [{}, {"coarsening": "aggregation"}, {"near_nullspace": True}, {"cycle": "W"}], ids=str
)
def test_the_same_preconditioner(settings: dict[str, Any]) -> None:
    vectors = np.stack([np.ones(N), np.arange(N) / N])
    here, there = dict(settings), dict(settings)
    if "near_nullspace" in settings:
        here["near_nullspace"], there["near_nullspace"] = vectors, vectors[:, order_of(MIXED)]
    M = krylix.preconditioner(MIXED, "amg", **here)
    assert isinstance(M.inner, Permuted) and M.hermitian
    close(M @ RHS, by_order(MIXED, **there)(RHS))


def close(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(to_numpy(found), expected, rtol=0, atol=1e-11 * np.max(np.abs(expected)))


def test_unknowns_of_a_point_stay_together() -> None:
    """Elasticity on shuffled points, with rigid motions, takes no more iterations than in order."""
    A, motions = pyamg.gallery.linear_elasticity((45, 45))
    count = A.shape[0] // 2
    shuffled = (np.random.default_rng(0).permutation(count)[:, None] * 2 + np.arange(2)).reshape(-1)
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    steps = []
    for order in (np.arange(A.shape[0]), shuffled):
        own = sp.csr_array(sp.csr_array(A)[order][:, order])
        M = krylix.preconditioner(own, "amg", near_nullspace=motions[order].T.reshape(3, count, 2))
        steps.append(krylix.linear_solve(own, b, method="CG", preconditioner=M, rtol=1e-8).iterations)
        assert isinstance(M.inner, Permuted) == (order is shuffled)
    assert np.array_equal(M.inner.order[1::2], M.inner.order[::2] + 1)  # type: ignore[attr-defined]
    assert steps[1] <= steps[0] + 1


def test_points_of_many_unknowns() -> None:
    """256 entries of a pair of points, whose number does not fit into eight bits."""
    plane = in_random_order(pyamg.gallery.poisson((16, 17), format="csr"))
    own: Any = krylix.as_operator(sp.csr_array(sp.kron(plane, np.ones((16, 16)))))
    order = nearer_order(own, 16)
    assert order is not None
    expected = nearer_order(krylix.as_operator(sp.csr_array(sp.kron(plane, np.ones((10, 10))))), 10)  # type: ignore[arg-type]
    assert expected is not None
    np.testing.assert_array_equal(order[::16] // 16, expected[::10] // 10)


def test_non_symmetric() -> None:
    wind = sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(N, N))
    A = in_random_order(PLANE + 0.5 * wind)
    M, apply = krylix.preconditioner(A, "amg"), by_order(A)
    close(M @ RHS, apply(RHS))
    v = np.random.default_rng(2).standard_normal(N)
    assert v @ (M @ RHS) == pytest.approx((M.T @ v) @ RHS, rel=1e-10)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_on_each_library(mode: str, tmp_path: Path) -> None:
    """Made there, moved there, and read there."""
    expected = by_order(MIXED)(RHS)
    M = krylix.preconditioner(MIXED, "amg")
    M.save(tmp_path / "m.npz")
    read = krylix.load_preconditioner(tmp_path / "m.npz", like=array(mode, RHS))
    own = krylix.preconditioner(in_krylix(mode, MIXED, "csr", known=False), "amg")
    for found in compiled(mode, lambda r: [one @ r for one in (own, M.to(library(mode)), read)])(array(mode, RHS)):
        close(found, expected)


OTHER = in_random_order(diffusion(K**2))


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "torch", "jax-jit", "tf-function"])
def test_new_numbers(mode: str) -> None:
    """With values that may be traced: unknowns stay together as they were, in the order that they had."""
    M = krylix.preconditioner(in_krylix(mode, MIXED, "csr"), "amg", coarsening="aggregation")
    pattern = in_krylix(mode, OTHER, "csr")
    order = order_of(MIXED)
    plain = krylix.preconditioner(sp.csr_array(MIXED[order][:, order]), "amg", coarsening="aggregation")
    expected = np.empty(N)
    expected[order] = krylix.preconditioner(sp.csr_array(OTHER[order][:, order]), "amg", pattern=plain) @ RHS[order]

    def apply(values: Any, r: Any) -> Any:
        return krylix.preconditioner(pattern.with_values(values), "amg", pattern=M) @ r

    close(compiled(mode, apply)(array(mode, np.asarray(pattern.values)), array(mode, RHS)), expected)


def test_as_an_argument() -> None:
    """The order is known where all arrays of M are traced."""
    import jax

    pattern = in_krylix("jax", OTHER, "csr")
    M = krylix.preconditioner(in_krylix("jax", MIXED, "csr"), "amg", coarsening="aggregation")

    @jax.jit
    def apply(M: Any, values: Any, r: Any) -> Any:
        return krylix.preconditioner(pattern.with_values(values), "amg", pattern=M) @ r

    expected = krylix.preconditioner(OTHER, "amg", pattern=M.to("numpy")) @ RHS
    close(apply(M, jax.numpy.asarray(pattern.values), RHS), expected)


@pytest.mark.merge
def test_traced_values() -> None:
    """No value is known: the pattern decides, and in its better order."""
    import jax

    pattern = in_krylix("jax", MIXED, "csr")

    def solve(values: Any, b: Any) -> Any:
        A = pattern.with_values(values)
        M = krylix.preconditioner(A, "amg")
        assert isinstance(M.inner, Permuted)
        result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
        return result.x, result.iterations

    x, steps = jax.jit(solve)(jax.numpy.asarray(pattern.values), jax.numpy.asarray(RHS))
    assert np.linalg.norm(MIXED @ np.asarray(x) - RHS) <= 1e-8 * np.linalg.norm(RHS) and steps <= 30


def test_prepared_and_updated() -> None:
    solver = krylix.prepare(MIXED, RHS, method="CG", preconditioner="amg")
    again = solver.update(OTHER)
    assert isinstance(again.preconditioner.inner, Permuted)  # type: ignore[union-attr]
    for one, A in ((solver, MIXED), (again, OTHER)):
        assert np.linalg.norm(A @ one.solve(RHS).x - RHS) <= 1e-9 * np.linalg.norm(RHS)
    with pytest.raises(ValueError, match="entries at other places"):
        krylix.preconditioner(MIXED @ MIXED, "amg", pattern=solver.preconditioner)


def test_rows_in_messages_are_those_of_the_user() -> None:
    A = sp.lil_array(MIXED)
    A[1234, 1234] = 0
    with pytest.raises(ValueError, match="the first is row 1234"):
        krylix.preconditioner(sp.csr_array(A), "amg")
    M = krylix.preconditioner(MIXED, "amg")
    with pytest.raises(ValueError, match="the first is row 1234"):
        krylix.preconditioner(sp.csr_array(A), "amg", pattern=M)


def test_batches_of_matrices() -> None:
    """They keep their order, and those that get the order of one matrix take it."""
    both = krylix.as_operator([MIXED, OTHER])
    M = krylix.preconditioner(MIXED, "amg", coarsening="aggregation")
    found = krylix.preconditioner(both, "amg", pattern=M) @ RHS
    for row, A in zip(found, (MIXED, OTHER)):
        expected = krylix.preconditioner(A, "amg", pattern=M) @ RHS
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))
