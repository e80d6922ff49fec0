"""Algebraic multigrid of known matrices: the cycle as an operator, iterations, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from grid_problems import diffusion
from krylix.backends import get_backend
from krylix.solvers import Preconditioner
from krylix.solvers.preconditioners.amg.settings import COARSENINGS
from krylix.solvers.preconditioners.multigrid.coarsest import traced_inverse
from krylix.solvers.preconditioners.multigrid.cycle import Level
from matrices import in_random_order
from modes import array, compiled, library, to_numpy

GRID = (13, 11)
N = GRID[0] * GRID[1]


def poisson(*grid: int) -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson(grid or GRID, format="csr"))


def phases(n: int = N) -> np.ndarray:
    return np.exp(0.3j * np.arange(n))


def matrices() -> dict[str, Any]:
    A, rng = poisson(), np.random.default_rng(0)
    turn = sp.diags_array(phases())
    couplings = sp.random_array((N, N), density=0.02, rng=rng)
    couplings = sp.csr_array(couplings + couplings.T)
    without = A.tolil()
    without[[5, 40]] = 0
    without[:, [5, 40]] = 0
    rows = np.asarray((A - sp.diags_array(A.diagonal())).sum(axis=1)).reshape(-1)
    return {
        "Poisson": A,
        "negative": -A,
        "tiny": A * 1e-200,
        "huge": A * 1e200,
        "Hermitian": sp.csr_array(turn @ A @ turn.conj()),
        "positive couplings": sp.csr_array(couplings + sp.diags_array(couplings.sum(axis=1) + 0.1)),
        "zero rows": sp.csr_array(without),
        "singular": sp.csr_array(A - sp.diags_array(A.diagonal() + rows)),
        "convection": sp.csr_array(A + sp.diags_array([-0.7, 0.7], offsets=[-1, 1], shape=A.shape)),
    }


def made(A: Any, **settings: Any) -> Preconditioner:
    return krylix.preconditioner(A, "amg", **{"max_coarse": 10, **settings})


def dense(M: Any) -> np.ndarray:
    return np.asarray(M @ np.eye(M.shape[0]))


def check_facts(M: Preconditioner, sign: int = 1) -> np.ndarray:
    """The transpose is the transpose, `hermitian` is so, and what is Hermitian is definite, with the sign of A."""
    entries = dense(M)
    size = np.abs(entries).max()
    assert np.isfinite(entries).all()
    np.testing.assert_allclose(dense(M.T) / size, entries.T / size, rtol=0, atol=1e-13)
    np.testing.assert_allclose(dense(M.H) / size, entries.conj().T / size, rtol=0, atol=1e-13)
    assert M.hermitian == (np.abs(entries - entries.conj().T).max() < 1e-12 * size)
    if M.hermitian:
        assert np.linalg.eigvalsh(sign * (entries + entries.conj().T) / size).min() > 0
    return entries


@pytest.mark.parametrize("cycle", ["V", "W"])
@pytest.mark.parametrize("coarsening", COARSENINGS)
def test_facts_of_every_coarsening(coarsening: str, cycle: str) -> None:
    for name in ("Poisson", "convection"):
        M = made(matrices()[name], coarsening=coarsening, cycle=cycle, max_coarse=25)
        assert M.hermitian == (name == "Poisson")
        check_facts(M)


HIERARCHIES: dict[str, Any] = {
    "Ruge-Stueben": lambda A, _, **options: pyamg.ruge_stuben_solver(A, **options),
    "root node": lambda A, symmetry, **options: pyamg.rootnode_solver(A, symmetry=symmetry, **options),
    "energy-minimising": lambda A, symmetry, **options: pyamg.smoothed_aggregation_solver(
        A, smooth="energy", symmetry=symmetry, **options
    ),
    "adaptive": lambda A, symmetry, **options: pyamg.aggregation.adaptive_sa_solver(
        A, initial_candidates=np.ones((A.shape[0], 1)), symmetry=symmetry, **options
    )[0],
}


@pytest.mark.filterwarnings("ignore")  # of pyamg
@pytest.mark.parametrize("cycle", ["V", "W"])
@pytest.mark.parametrize("kind", HIERARCHIES)
def test_facts_of_every_hierarchy_of_pyamg(kind: str, cycle: str) -> None:
    for name, symmetry in {"Poisson": "hermitian", "convection": "nonsymmetric"}.items():
        A = matrices()[name]
        M = krylix.preconditioner(A, "amg", hierarchy=HIERARCHIES[kind](A, symmetry, max_coarse=25), cycle=cycle)
        assert M.hermitian == (name == "Poisson")
        check_facts(M)


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize(
    "settings", [{}, {"smoother": "jacobi", "degree": 3}, {"degree": 1}, {"coarsening": "aggregation"}]
)
def test_facts_of_every_matrix(name: str, settings: dict[str, Any]) -> None:
    check_facts(made(matrices()[name], **settings), -1 if name == "negative" else 1)


def by_hand(A: np.ndarray, P: np.ndarray, degree: int, damping: float) -> np.ndarray:
    """Two levels with damped Jacobi, from textbook formulas: I - M A = S (I - P (P^T A P)^-1 P^T A) S."""
    smoothing = np.linalg.matrix_power(np.eye(len(A)) - damping * np.diag(1 / np.diag(A)) @ A, degree)
    correction = np.eye(len(A)) - P @ np.linalg.inv(P.T @ A @ P) @ P.T @ A
    return (np.eye(len(A)) - smoothing @ correction @ smoothing) @ np.linalg.inv(A)


def test_the_cycle_is_that_of_the_textbook() -> None:
    A = poisson()
    M = made(A, max_levels=2, smoother="jacobi", degree=2, max_coarse=5, coarsening="smoothed-aggregation")
    level: Any = M.inner.inner  # type: ignore[attr-defined]
    assert isinstance(level, Level)
    scale = np.sqrt(A.diagonal())
    P = level.P.toarray() / scale[:, None]
    damping = float(-level.smoother.weights[0, 0, 0])
    assert damping == pytest.approx(4 / (3 * np.linalg.eigvalsh(A.toarray() / 4).max()), rel=0.1)
    np.testing.assert_allclose(dense(M), by_hand(A.toarray(), P, 2, damping), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("grid", [(60, 50), (15, 14, 13)])
@pytest.mark.parametrize("solver", [pyamg.smoothed_aggregation_solver, pyamg.ruge_stuben_solver])
def test_iterations_are_those_of_pyamg(solver: Any, grid: tuple[int, ...]) -> None:
    """Within two, with Chebyshev's polynomials in the place of Gauss-Seidel."""
    from scipy.sparse.linalg import cg

    A = poisson(*grid)
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    hierarchy, steps = solver(A, max_coarse=100), list[int]()
    cg(A, b, rtol=1e-8, M=hierarchy.aspreconditioner(), callback=lambda _: steps.append(1))
    if solver is pyamg.smoothed_aggregation_solver:
        M = made(A, coarsening="smoothed-aggregation", max_coarse=100)
    else:
        M = krylix.preconditioner(A, "amg", hierarchy=hierarchy)
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert result.iterations <= len(steps) + 2
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b)


def test_iterations_do_not_grow() -> None:
    counts = []
    for k in (30, 60, 120):
        A = poisson(k, k)
        M = krylix.preconditioner(A, "amg")
        counts.append(int(krylix.linear_solve(A, np.ones(k * k), method="CG", preconditioner=M, rtol=1e-8).iterations))
    assert max(counts) <= 10


@pytest.mark.parametrize("coarsening", COARSENINGS)
def test_same_numbers_every_time(coarsening: str) -> None:
    """And NumPy's global random numbers go on as if nothing had happened."""
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    M, other = (made(poisson(), coarsening=coarsening) for _ in range(2))
    assert np.random.rand() == expected  # noqa: NPY002
    np.testing.assert_array_equal(M @ np.ones(N), other @ np.ones(N))


def test_a_user_keeps_the_matrix() -> None:
    A = poisson()
    before = A.copy()
    made(A)
    for x, y in zip((A.data, A.indices, A.indptr), (before.data, before.indices, before.indptr)):
        np.testing.assert_array_equal(x, y)


def test_elasticity_by_rigid_motions() -> None:
    A, B = pyamg.gallery.linear_elasticity((24, 24), format="bsr")
    points = np.stack([B[1::2, 2], -B[0::2, 2]], 1)  # of the rotation (-y, x)
    motions = krylix.rigid_motions(points)
    own, theirs = motions.reshape(3, -1).T, np.linalg.qr(B)[0]
    np.testing.assert_allclose(own @ own.T, theirs @ theirs.T, atol=1e-12)  # they span the same vectors as pyamg's
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    A = sp.csr_array(A)
    counts = {}
    for name, vectors in {"none": None, "motions": motions}.items():
        M = made(A, max_coarse=60, coarsening="smoothed-aggregation", near_nullspace=vectors)
        counts[name] = int(krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8).iterations)
    assert counts["motions"] <= 25 < counts["none"]
    check_facts(made(A, near_nullspace=motions))


def test_elasticity_in_three_dimensions() -> None:
    points = np.random.default_rng(0).standard_normal((20, 3))
    motions = krylix.rigid_motions(points)
    assert motions.shape == (6, 20, 3)
    rows = motions.reshape(6, -1)
    np.testing.assert_allclose(rows @ rows.T, np.eye(6), atol=1e-13)
    distances = points[:, None] - points
    for motion in motions:  # to first order no distance changes
        change = (distances * (motion[:, None] - motion)).sum(axis=-1)
        np.testing.assert_allclose(change, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("points", "count"),
    [([[0.0], [1.0]], 1), ([[1e-9, 0], [0, 1e-9], [1e-9, 1e-9]], 3), ([[3.0, 4.0]], 2), ([[1.0, 2, 3], [1, 2, 4]], 5)],
)
def test_rigid_motions_of_few_points(points: Any, count: int) -> None:
    found = krylix.rigid_motions(points)
    assert found.shape == (count, *np.shape(points))
    rows = found.reshape(count, -1)
    np.testing.assert_allclose(rows @ rows.T, np.eye(count), atol=1e-13)


@pytest.mark.parametrize("points", [[1.0, 2.0], [[1.0, np.nan]], np.zeros((3, 4)), np.zeros((0, 2)), [["a"]]])
def test_rigid_motions_refuse(points: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        krylix.rigid_motions(points)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_small_matrices_are_inverted(n: int) -> None:
    A = np.eye(n) * 3 - 1
    M = krylix.preconditioner(A, "amg")
    np.testing.assert_allclose(dense(M), np.linalg.pinv(A), atol=1e-14)


def test_diagonal_matrices_are_inverted() -> None:
    diagonal = np.random.default_rng(0).uniform(0.1, 1e6, 5000)
    M = krylix.preconditioner(sp.diags_array(diagonal), "amg")
    np.testing.assert_allclose(M @ np.ones(5000), 1 / diagonal, rtol=1e-13)
    assert M.memory is not None and M.memory <= 3 * 5000


def test_singular_systems() -> None:
    A = sp.csr_array(matrices()["singular"])
    b = np.random.default_rng(0).standard_normal(N)
    b -= b.mean()
    result = krylix.linear_solve(A, b, method="CG", preconditioner=made(A), rtol=1e-10)
    assert result.iterations < 15 and np.linalg.norm(b - A @ result.x) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("max_coarse", [200, 20])
def test_singular_up_to_single_precision(max_coarse: int, mode: str) -> None:
    """Coefficients that are rounded make a small eigenvalue of the zero one, of either sign."""
    for spread in (0.3, 1.0):
        A = diffusion(10.0 ** (spread * np.random.default_rng(0).normal(size=(12, 12))), "N")
        single = sp.csr_array(A.astype("float32"))
        M = krylix.preconditioner(single, "amg", max_coarse=max_coarse)
        values = np.linalg.eigvalsh(M.dense().astype(float))
        assert values[0] > -1e-6 * values[-1] and values[-1] < 2 / np.linalg.eigvalsh(A.toarray())[1]
        b = A @ np.random.default_rng(1).standard_normal(A.shape[0])
        system = array(mode, single.toarray())
        result = krylix.linear_solve(
            system, array(mode, b.astype("float32")), method="CG", preconditioner=M, rtol=1e-4, max_iter=30
        )
        assert np.linalg.norm(b - A @ to_numpy(result.x)) <= 2e-4 * np.linalg.norm(b)


@pytest.mark.merge
def test_regular_in_single_precision() -> None:
    """All eigenvalues are kept, also where there are many; traced values go the second way."""
    A = poisson(40, 40)
    exact = np.linalg.inv(A.toarray())
    known = krylix.preconditioner(sp.csr_array(A.astype("float32")), "amg", max_coarse=2000).dense()
    for found in (known, traced_inverse(get_backend("numpy"), A.toarray().astype("float32"))):
        assert np.linalg.norm(found - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize("symmetric", [True, False])
def test_hierarchy_of_pyamg(symmetric: bool) -> None:
    A = matrices()["Poisson" if symmetric else "convection"]
    options = {"symmetry": "hermitian" if symmetric else "nonsymmetric"}
    solver = pyamg.smoothed_aggregation_solver(A, max_coarse=10, **options)
    M = krylix.preconditioner(A, "amg", hierarchy=solver)
    check_facts(M)
    level: Any = M.inner.inner  # type: ignore[attr-defined]
    P, scale = solver.levels[0].P.toarray(), np.sqrt(A.diagonal())
    below = np.sqrt(solver.levels[1].A.diagonal())
    np.testing.assert_allclose(level.P.toarray(), scale[:, None] * P / below, atol=1e-13)
    again = krylix.preconditioner(A, "amg", pattern=M)  # on the same prolongations
    if symmetric:
        np.testing.assert_allclose(dense(again), dense(M), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mode", ["jax-jit", "torch", "tf"])
def test_one_cycle_in_every_library(mode: str) -> None:
    A = poisson()
    M = krylix.preconditioner(A, "amg", like=array(mode, np.ones(N)), max_coarse=10)
    r = np.random.default_rng(0).standard_normal(N)
    image = compiled(mode, lambda r: M @ r)(array(mode, r))
    assert krylix.choose_backend(image).name == library(mode)
    np.testing.assert_allclose(to_numpy(image), made(A) @ r, rtol=1e-10, atol=1e-12)
    image = made(A) @ r
    solve = compiled(mode, lambda r: krylix.linear_solve(A, r, method="CG", preconditioner=made(A), rtol=1e-9).x)
    np.testing.assert_allclose(A @ to_numpy(solve(array(mode, r))), r, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision(dtype: str) -> None:
    A = sp.csr_array(matrices()["Poisson" if dtype == "float32" else "Hermitian"].astype(dtype))
    M = made(A)
    assert M.dtype == np.dtype(dtype) and M.hermitian
    result = krylix.linear_solve(A, np.ones(N, dtype), method="CG", preconditioner=M, rtol=1e-5)
    assert result.x.dtype == np.dtype(dtype) and result.iterations < 12


REFUSED = {
    "zeros on its diagonal": (sp.csr_array([[0.0, 1], [1, 2]]), {}),
    "infinite or NaN": (sp.csr_array([[np.nan, 1], [1, 2]]), {}),
    "expected": (sp.csr_array((3, 4)), {}),
    "no setting levels": (poisson(), {"levels": 3}),
    "cycle='K'": (poisson(), {"cycle": "K"}),
    "coarsening='given'": (poisson(), {"coarsening": "given"}),
    "degree=0": (poisson(), {"degree": 0}),
    "strength=2": (poisson(), {"strength": 2}),
    "near_nullspace has the shape": (poisson(), {"near_nullspace": np.ones(N)}),
    "no finite number": (poisson(), {"near_nullspace": np.full((1, N), np.inf)}),
    "expected a divisor": (poisson(), {"block_size": 2}),
    "coarsening='root-node' was given; expected one of 'classical'": (poisson(), {"coarsening": "root-node"}),
    "at most 3000": (poisson(70, 70), {"max_levels": 1}),
    "expected an amg preconditioner": (poisson(), {"pattern": krylix.preconditioner(np.eye(3), "amg")}),
    "settings are those of that": (poisson(), {"pattern": krylix.preconditioner(poisson(), "amg"), "degree": 3}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    A, settings = REFUSED[message]
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        made(A, **settings) if "pattern" not in settings else krylix.preconditioner(A, "amg", **settings)


@pytest.mark.parametrize("name", ["Hermitian", "convection"])
def test_saved_and_pickled(name: str, tmp_path: Path) -> None:
    M = made(matrices()[name], cycle="W")
    path = tmp_path / "M.npz"
    M.save(path)
    for other in (krylix.load_preconditioner(path), pickle.loads(pickle.dumps(M))):
        assert (other.hermitian, other.settings, other.memory) == (M.hermitian, M.settings, M.memory)
        np.testing.assert_array_equal(other @ np.ones(N), M @ np.ones(N))
        again = krylix.preconditioner(matrices()[name], "amg", pattern=other)  # what new numbers need is saved, too
        assert again.hermitian == M.hermitian


def test_chosen_by_itself() -> None:
    assert krylix.preconditioner(in_random_order(poisson(80, 80))).kind == "amg"


def test_cost_is_told() -> None:
    M = krylix.preconditioner(poisson(100, 100), "amg")
    assert M.memory is not None and M.work is not None and M.entries == poisson(100, 100).nnz
    assert 2 < M.memory / M.entries < 6 and 5 < M.work / M.entries < 12
    assert dict(M.settings) == {"coarsening": "classical"}


# --- matrices that are nearly, or in another sense, what the kind is made for ---


def by_default(A: Any, b: np.ndarray, M: Any, method: str = "CG") -> int:
    """Iterations, after a look at the residual of each system."""
    found = krylix.linear_solve(A, b, method=method, preconditioner=M, rtol=1e-8, max_iter=150)
    assert np.all(found.converged)
    return int(np.max(found.iterations))


def laplacian(n: int) -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson((n, n), format="csr"))


@pytest.mark.parametrize("size", [1e-13, 1e-10, 1e-9])
def test_symmetric_up_to_more_than_rounding(size: float) -> None:
    """CG is chosen for such a matrix, so its preconditioner is symmetric."""
    A, b = in_random_order(pyamg.gallery.poisson((18, 19, 20), format="csr")), np.ones(6840)
    A.data *= 1 + size * np.random.default_rng(1).standard_normal(A.nnz)
    result = krylix.linear_solve(A, b)
    assert (result.method, result.preconditioner) == ("CG", "amg") and result.iterations <= 12
    assert np.linalg.norm(b - A @ result.x) <= 1e-9 * np.linalg.norm(b)
    assert krylix.preconditioner(A, "amg").hermitian is True


@pytest.mark.parametrize("phase", [1, -1, 1j, 1 + 5j, -1j, "rows"])
def test_phases_in_batches(phase: Any) -> None:
    """A batch of one takes the steps of one matrix, or fewer: smoothing needs a diagonal that is positive."""
    n = 40
    turn = sp.diags_array(np.random.default_rng(0).choice([-1.0, 1.0], n * n)) if phase == "rows" else phase
    A = sp.csr_array(turn @ laplacian(n)) if phase == "rows" else sp.csr_array(turn * laplacian(n))
    one: Any = krylix.as_operator(A)
    b = np.random.default_rng(1).standard_normal(n * n).astype(A.dtype)
    alone = by_default(A, b, krylix.preconditioner(A, "amg", max_coarse=50), "biCG-stab")
    batch = one.with_values(np.asarray(one.values)[None])
    together = by_default(batch, b[None], krylix.preconditioner(batch, "amg", max_coarse=50), "biCG-stab")
    assert together <= min(alone, 12) + 1


def test_batches_that_are_not_symmetric() -> None:
    """They get the smoother of such matrices."""
    n = 40
    A = sp.csr_array(laplacian(n) + sp.diags_array([0.9, -0.9], offsets=[1, -1], shape=(n * n, n * n)))
    one: Any = krylix.as_operator(A)
    batch, b = one.with_values(np.asarray(one.values)[None]), np.ones((1, n * n))
    M = {s: krylix.preconditioner(batch, "amg", max_coarse=50, smoother=s) for s in (None, "jacobi")}
    assert M[None].hermitian is False
    np.testing.assert_array_equal(M[None](b), M["jacobi"](b))


def test_hierarchies_of_other_numbers() -> None:
    """Its prolongations, with the numbers of A: as symmetric as M says, and as good as a fresh one."""
    n = 40
    A, b = laplacian(n), np.ones(n * n)
    other = sp.csr_array(A + sp.diags_array([0.9, -0.9], offsets=[1, -1], shape=A.shape))
    for matrix, options in ((other, {"symmetry": "hermitian"}), (1e6 * A, {})):
        hierarchy = pyamg.smoothed_aggregation_solver(matrix, max_coarse=50, **options)
        M = krylix.preconditioner(A, "amg", hierarchy=hierarchy)
        entries = M.dense()
        assert M.hermitian and np.abs(entries - entries.T).max() <= 1e-13 * np.abs(entries).max()
        assert by_default(A, b, M) <= 25
    with pytest.raises(ValueError, match="hierarchy, and for near_nullspace"):
        krylix.preconditioner(A, "amg", hierarchy=hierarchy, near_nullspace=np.ones((1, n * n)))


def test_complex_vectors_for_a_real_matrix() -> None:
    A, b = laplacian(40), np.ones(1600)
    plain = by_default(A, b, krylix.preconditioner(A, "amg", max_coarse=50))
    for vectors in (1j * np.ones((1, 1600)), (1 + 2j) * np.ones((1, 1600))):
        assert by_default(A, b, krylix.preconditioner(A, "amg", max_coarse=50, near_nullspace=vectors)) <= plain + 2
    complex_M = krylix.preconditioner(sp.csr_array(1j * A), "amg", max_coarse=50)
    with pytest.raises(ValueError, match="real where that is complex"):
        krylix.preconditioner(A, "amg", pattern=complex_M)
    with pytest.raises(ValueError, match="pattern is a complex matrix"):
        krylix.preconditioner(A, "amg", max_coarse=50, pattern=sp.csr_array(1j * A))


def test_update_to_another_pattern() -> None:
    """What was put together for a diagonal matrix is nothing for another one: it is made afresh."""
    A, b = laplacian(60), np.ones(3600)
    solver = krylix.prepare(sp.csr_array(sp.eye_array(3600)), b, method="CG", preconditioner="amg").update(A)
    assert solver.solve(b).iterations == krylix.prepare(A, b, method="CG", preconditioner="amg").solve(b).iterations
    order = np.random.default_rng(0).permutation(3600)
    permuted = sp.csr_array(A[order][:, order])
    again = krylix.prepare(A, b, method="CG", preconditioner="amg").update(permuted)
    fresh = krylix.prepare(permuted, b, method="CG", preconditioner="amg").solve(b)
    assert again.solve(b).iterations == fresh.iterations
    with pytest.raises(ValueError, match="entries at other places"):
        krylix.preconditioner(permuted, "amg", pattern=krylix.preconditioner(A, "amg"))


@pytest.mark.parametrize("systems", [0, 2])
def test_systems_without_unknowns_and_no_systems(systems: int) -> None:
    assert krylix.preconditioner(np.zeros((systems, 0, 0)), "amg").systems == systems
    pattern: Any = krylix.as_operator(laplacian(12))
    M = krylix.preconditioner(pattern.with_values(np.ones((systems, pattern.nnz))), "amg", max_coarse=20)
    assert M.systems == systems


def test_new_numbers_of_a_non_symmetric_matrix() -> None:
    """As few iterations as a new hierarchy: restrictions are smoothed by the adjoint, also on an old pattern."""
    rng = np.random.default_rng(0)
    diffusing, step = poisson(60, 60), sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(60, 60))
    wind = sp.kron(step, sp.eye_array(60)) + 2 * sp.kron(sp.eye_array(60), step)
    first, second = (sp.csr_array(diffusing + size * wind) for size in (3.0, 20.0))
    b = rng.standard_normal(3600)
    solver = krylix.prepare(first, b, method="biCG-stab(2)", preconditioner="amg", rtol=1e-8)
    for A in (first, second):
        again = solver.update(A)
        new = krylix.prepare(A, b, method="biCG-stab(2)", preconditioner="amg", rtol=1e-8).solve(b)
        found = again.solve(b)
        assert np.linalg.norm(A @ found.x - b) <= 1e-8 * np.linalg.norm(b)
        assert found.iterations <= new.iterations + 4


CLOSED: dict[str, dict[str, Any]] = {
    "W cycle": {"max_coarse": 10, "cycle": "W"},
    "aggregation": {"coarsening": "smoothed-aggregation"},
    "Jacobi": {"max_coarse": 10, "smoother": "jacobi"},
}


@pytest.mark.parametrize("pairs", [300, 500])
@pytest.mark.parametrize("name", CLOSED)
def test_closed_parts_with_weights_of_all_sizes(name: str, pairs: int) -> None:
    """What rounding on finer levels leaves of them on coarse ones is not inverted; in programs likewise."""
    n, rng = 400, np.random.default_rng(1)
    places = rng.integers(0, n, pairs), rng.integers(0, n, pairs)
    W = sp.csr_array((np.exp(6 * rng.standard_normal(pairs)), places), (n, n))
    W = sp.csr_array(W + W.T)
    W.setdiag(0)
    W.eliminate_zeros()
    A = sp.csr_array(sp.diags_array(np.asarray(W.sum(1)).ravel()) - W)
    M, own = krylix.preconditioner(A, "amg", **CLOSED[name]), krylix.as_operator(A)
    batch = krylix.preconditioner(own.with_values(np.asarray(own.values)[None]), "amg", pattern=M)
    weights = np.sqrt(A.diagonal())
    for columns in (M.dense(), np.stack([batch(e[None])[0] for e in np.eye(n)], 1)):
        scaled = weights[:, None] * columns * weights
        assert np.abs(scaled - scaled.T).max() <= 1e-6 * np.abs(scaled).max()
        values = np.linalg.eigvalsh((scaled + scaled.T) / 2)
        assert values[0] >= -1e-6 * values[-1] and values[-1] < 1e13
