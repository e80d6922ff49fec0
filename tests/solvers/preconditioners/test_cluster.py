"""The cluster preconditioner and corrections in small spaces, against dense matrices by NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve, preconditioner
from krylix.solvers.preconditioners import coarse_correction
from krylix.solvers.preconditioners.two_level import boxes_per_axis, connected_clusters, labels_of_clusters
from modes import COMPILED, array, compiled, to_numpy


def poisson(*shape: int) -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson(shape, format="csr"))


def neumann(n: int) -> sp.csr_array:
    """Singular, with constants as null vectors."""
    A = poisson(n).tolil()
    A[0, 0] = A[n - 1, n - 1] = 1
    return sp.csr_array(A)


def complex_hermitian(n: int = 24) -> np.ndarray:
    upper = np.triu(np.random.default_rng(0).standard_normal((n, n)), 1) * 0.2
    return poisson(n).toarray() + 1j * (upper - upper.T) + np.eye(n)


def spread(labels: np.ndarray) -> np.ndarray:
    return (labels[:, None] == np.arange(labels.max() + 1)).astype(float)


def expected(A: np.ndarray, labels: np.ndarray, form: str) -> np.ndarray:
    P = spread(labels)
    Q = P @ np.linalg.pinv(P.T @ A @ P) @ P.T
    D = np.diag(1 / np.diag(A))
    if form == "additive":
        return D + Q
    identity = np.eye(len(A))
    return Q + (identity - Q @ A) @ D @ (identity - A @ Q)


LABELS = np.arange(24) // 5
MATRICES = {
    "symmetric": poisson(4, 6).toarray(),
    "complex Hermitian": complex_hermitian(),
    "not symmetric": poisson(24).toarray() + 0.7 * np.eye(24, k=1),
    "complex": poisson(24).toarray() + 0.3j * np.diag(np.arange(24.0)) + 0.2 * np.eye(24, k=2),
    "constant null vector": neumann(24).toarray(),
}


@cache
def dense_forms(mode: str, form: str) -> Any:
    """M, its transpose and its adjoint: one program for all matrices of a dtype."""

    def dense(v: Any) -> tuple[Any, Any, Any]:
        M = preconditioner(v, "cluster", clusters=LABELS, form=form)
        return M.dense(), M.T.dense(), M.H.dense()

    return compiled(mode, dense)


@pytest.mark.parametrize(
    ("mode", "name", "form"),
    [
        pytest.param(mode, name, form, marks=pytest.mark.slow if later else ())
        for mode in ("numpy", "jax", "jax-jit", "torch", "tf", "tf-function")
        for name, A in MATRICES.items()
        for form in ("additive", "deflated")
        # where programs are compiled, one form of real matrices and the other one of complex ones
        for later in [
            mode in ("jax", *COMPILED) and (np.iscomplexobj(A) == (form == "additive")) == (mode == "tf-function")
        ]
    ],
)
def test_is_the_formula(mode: str, name: str, form: str) -> None:
    A = MATRICES[name]
    M, transposed, adjoint = map(to_numpy, dense_forms(mode, form)(array(mode, A)))
    wanted = expected(A, LABELS, form)
    if np.abs(A.sum(1)).max() == 0:  # the constant part is free
        M, transposed, adjoint, wanted = (m - m.mean() for m in (M, transposed, adjoint, wanted))
    np.testing.assert_allclose(M, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(transposed, M.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(adjoint, M.conj().T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["additive", "deflated"])
@pytest.mark.parametrize("A", MATRICES.values(), ids=MATRICES)
def test_facts(A: np.ndarray, form: str) -> None:
    M = preconditioner(A, "cluster", clusters=4, form=form)
    difference = np.abs(M.dense() - M.dense().conj().T).max()
    if np.abs(A - A.conj().T).max() == 0:
        assert M.hermitian is True and difference < 1e-13
        assert np.linalg.eigvalsh(M.dense()).min() > 0
    else:
        assert M.hermitian is not True and difference > 1e-3
    assert dict(M.settings) == {"clusters": 4, "form": form} and M.kind == "cluster"
    assert (M.note == "the coarse matrix is singular") == (np.abs(A.sum(1)).max() == 0)


def test_batch() -> None:
    A = np.array([poisson(24).toarray() * (1 + np.arange(24)), poisson(24).toarray() + np.eye(24)])
    for given in (A, [sp.csr_array(a) for a in A]):
        for form in ("additive", "deflated"):
            M = preconditioner(given, "cluster", clusters=LABELS, form=form)
            found = np.array([expected(a, LABELS, form) for a in A])
            np.testing.assert_allclose(M.dense(), found, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("grid", "count", "boxes"),
    [((200, 200), 400, (20, 20)), ((64, 64, 64), 512, (8, 8, 8)), ((2, 50, 50), 50, (2, 5, 5)),
     ((1000, 4), 30, (30, 1)), ((7,), 3, (3,)), ((3, 2), 1, (3, 2)), ((5, 5), 1, (1, 1)), ((4, 4), 99, (4, 4))],
)  # fmt: skip
def test_boxes_of_a_grid(grid: tuple[int, ...], count: int, boxes: tuple[int, ...]) -> None:
    assert boxes_per_axis(grid, count) == boxes


def test_grids_are_known_or_given() -> None:
    A, clusters = poisson(6, 9), np.repeat(np.repeat(np.arange(6).reshape(2, 3), 3, 0), 3, 1).reshape(-1)
    wanted = expected(A.toarray(), clusters, "additive")

    def f(u: np.ndarray) -> np.ndarray:
        wide = np.pad(u, 1)
        return 4 * u - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]

    for M in (
        preconditioner(f, "cluster", like=np.ones((6, 9)), clusters=6),
        preconditioner(f, "cluster", like=np.ones((6, 9)), clusters=(2, 3)),
        preconditioner(A, "cluster", grid=(6, 9), clusters=(2, 3)),
        preconditioner(A, "cluster", grid=(6, 9), clusters=6),
        preconditioner(A, "cluster", clusters=clusters.reshape(6, 9)),
    ):
        np.testing.assert_allclose(M.dense(), wanted, atol=1e-12)


def unstructured(n: int = 900) -> sp.csr_array:
    """The Laplacian of a triangulation of random points, and an island without a connection."""
    from scipy.spatial import Delaunay

    simplices = Delaunay(np.random.default_rng(0).random((n, 2))).simplices
    i, j = np.concatenate([simplices[:, [0, 1]], simplices[:, [1, 2]], simplices[:, [2, 0]]]).T
    graph = sp.coo_array((np.ones(len(i)), (i, j)), (n, n)).tocsr()
    graph = ((graph + graph.T) > 0).astype(float)
    return sp.csr_array(sp.diags_array(graph.sum(1) + 1e-3) - graph)


def test_clusters_of_a_graph_are_connected_and_of_about_one_size() -> None:
    A = unstructured().tocoo()
    labels = connected_clusters(900, *A.coords, 30)
    sizes = np.bincount(labels, minlength=30)
    assert len(sizes) == 30 and sizes.min() > 5 and sizes.max() < 90
    for k in range(30):
        inside = np.flatnonzero(labels == k)
        assert sp.csgraph.connected_components(A.tocsr()[inside][:, inside])[0] == 1


def test_what_is_connected_to_no_centre_is_in_no_cluster() -> None:
    A = sp.block_diag([poisson(40), sp.eye_array(30)]).tocoo()
    labels = connected_clusters(70, *A.coords, 3)
    assert (labels[40:] < 0).sum() >= 27
    M = preconditioner(sp.csr_array(A), "cluster", clusters=3)
    assert np.isfinite(M.dense()).all() and np.linalg.eigvalsh(M.dense()).min() > 0


def test_components_stay_apart() -> None:
    A = sp.csr_array(pyamg.gallery.linear_elasticity((10, 10))[0])
    A.eliminate_zeros()
    labels = labels_of_clusters(200, 12, (200,), *A.tocoo().coords)
    assert np.array_equal(labels[::2] + 1, labels[1::2]) and set(labels[::2] % 2) == {0} and labels.max() == 11


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_small_and_odd_matrices(n: int) -> None:
    for A in (np.eye(n), np.zeros((n, n)), np.ones((n, n)) + np.eye(n), 1e-200 * np.eye(n), 1e200 * np.eye(n)):
        for form in ("additive", "deflated"):
            M = preconditioner(A, "cluster", form=form)
            assert np.isfinite(M.dense()).all() and np.linalg.eigvalsh(M.dense()).min() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clusters": 0}, "clusters=0 was given; expected an integer of at least 1"),
        ({"clusters": (2, 2)}, r"clusters=\(2, 2\) was given for a grid of the shape \(24,\)"),
        ({"clusters": np.zeros(5, int)}, "clusters is an array of int64 of shape .*; expected 24 integers"),
        ({"grid": (5, 5)}, r"grid=\(5, 5\) has 25 points; expected 24"),
        ({"form": "both"}, "form='both' was given; expected 'additive' or 'deflated'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preconditioner(poisson(24), "cluster", **settings)


@pytest.mark.parametrize("form", ["additive", "deflated"])
@pytest.mark.parametrize("A", [poisson(60, 60), unstructured()], ids=["grid", "triangles"])
def test_takes_far_fewer_iterations(A: sp.csr_array, form: str) -> None:
    """They grow with the number of unknowns in a cluster, not with that of all."""
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    plain = linear_solve(A, b, method="CG", preconditioner="jacobi", rtol=1e-8)
    M = preconditioner(A, "cluster", form=form)
    result = linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(A @ result.x - b) <= 1.01e-8 * np.linalg.norm(b)
    assert int(result.iterations) < 0.55 * int(plain.iterations)


@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "sparse"])
@pytest.mark.parametrize("complex_", [False, True], ids=["real", "complex"])
def test_correction_by_any_columns(mode: str, dense: bool, complex_: bool) -> None:
    rng = np.random.default_rng(0)
    A = MATRICES["complex" if complex_ else "not symmetric"]
    P = rng.standard_normal((24, 3)) + (1j * rng.standard_normal((24, 3)) if complex_ else 0)
    given = P if dense else sp.csr_array(P)
    exact = P @ np.linalg.inv(P.conj().T @ A @ P) @ P.conj().T
    pattern = as_operator(sp.csr_array(A), array(mode, np.ones(24, A.dtype)))

    def forms(v: Any) -> tuple[Any, ...]:
        matrix = pattern.with_values(v)
        Q = coarse_correction(matrix, given)
        return Q.dense(), Q.T.dense(), Q.H.dense()

    found = [to_numpy(m) for m in compiled(mode, forms)(pattern.values)]
    for got, wanted in zip(found, (exact, exact.T, exact.conj().T), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def test_columns_are_checked() -> None:
    for shape in ((23, 3), (24, 0)):
        with pytest.raises(ValueError, match=r"P has the shape .*; expected \(24, m\)"):
            coarse_correction(poisson(24), np.ones(shape))
