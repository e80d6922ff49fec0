"""The method "petsc" in one process, where petsc4py is: against SciPy, finite differences, and PETSc's own claims."""

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from krylix import Diverged, NotConverged, SingularMatrixWarning, linear_solve, matrix_from_function, prepare
from krylix.solvers import Petsc, Status, clear_setup_cache
from krylix.solvers.methods.petsc.system import KspResult, PetscSystem, checked_indices

try:
    from petsc4py import PETSc
except ImportError as error:
    pytest.skip(
        f"petsc4py cannot be imported ({error}); tests/helpers/mpi_environment FOLDER makes an interpreter that has it",
        allow_module_level=True,
    )

N = 24
MUMPS = {"pc_factor_mat_solver_type": "mumps"}
WIND = sp.diags_array([-0.4, 0.4], offsets=[-1, 1], shape=(N, N))


def line(first: float = 2.0) -> Any:
    main = np.full(N, 2.0)
    main[[0, -1]] = first
    return sp.diags_array([-np.ones(N - 1), main, -np.ones(N - 1)], offsets=[-1, 0, 1])


def grid(first: float = 2.0) -> Any:
    one = sp.eye_array(N)
    return sp.csr_array(sp.kron(line(first), one) + sp.kron(one, line(first)))


POISSON, NEUMANN = grid(), grid(1.0)
BLOWN = sp.csr_array(POISSON + sp.kron(sp.eye_array(N), WIND))
SADDLE = sp.csr_array(sp.block_array([[POISSON, BLOWN[:9].T], [BLOWN[:9], None]]))
B = np.random.default_rng(0).standard_normal(N * N)

METHODS = {
    "default": Petsc(),
    "hypre": Petsc("cg", "hypre"),
    "gamg": Petsc("cg", "gamg"),
    "jacobi": Petsc("cg", "jacobi"),
    "icc": Petsc("cg", "icc", {"pc_factor_levels": 1}),
    "ilu": Petsc("gmres", "ilu", {"ksp_gmres_restart": 100}),
    "mumps": Petsc("preonly", "lu", MUMPS),
    "cholesky": Petsc(pc="cholesky"),
    "bcgs": Petsc("bcgs"),
    "bcgsl": Petsc("bcgsl"),
    "minres": Petsc("minres", "jacobi"),
    "pipecg": Petsc("pipecg", "gamg"),
}
TWO_SIDED = ("default", "ilu", "mumps", "bcgs", "bcgsl")
GENTLE = ("default", "hypre", "mumps", "ilu")


def close(x: np.ndarray, A: Any, b: np.ndarray) -> bool:
    return np.allclose(x, spl.spsolve(sp.csc_array(A), b), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_a_definite_matrix(name: str) -> None:
    result = linear_solve(POISSON, B, method=METHODS[name])
    assert result.converged and close(result.x, POISSON, B)
    assert np.linalg.norm(B - POISSON @ result.x) <= 1.01e-10 * np.linalg.norm(B)


@pytest.mark.parametrize("name", TWO_SIDED)
def test_a_matrix_that_is_not_symmetric(name: str) -> None:
    solver = prepare(BLOWN, method=METHODS[name])
    assert close(solver(B), BLOWN, B) and close(solver.T(B), BLOWN.T, B) and close(solver.T.T(B), BLOWN, B)


def test_a_negative_definite_and_an_indefinite_matrix() -> None:
    assert close(linear_solve(-1e10 * POISSON, B, method="petsc").x, -1e10 * POISSON, B)
    b = np.append(B, np.ones(9))
    result = linear_solve(SADDLE, b, method="petsc")
    assert close(result.x, SADDLE, b) and "PC lu" in str(result)


def star(u: np.ndarray) -> np.ndarray:
    p = np.pad(u, 1)
    return 4 * u - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]


def test_a_function_is_traced() -> None:
    b = B.reshape(N, N)
    result = linear_solve(star, b, method=Petsc("cg", "hypre"), rtol=1e-8)
    assert result.iterations <= 7 and np.linalg.norm(b - star(result.x)) <= 1e-8 * np.linalg.norm(b)
    matrix, _ = matrix_from_function(star, b)
    assert np.array_equal(linear_solve(matrix, B, method=Petsc("cg", "hypre"), rtol=1e-8).x, result.x.ravel())


@pytest.mark.parametrize("name", GENTLE)
@pytest.mark.parametrize("symmetric", [True, False])
def test_derivatives_by_b_and_by_the_entries(name: str, symmetric: bool) -> None:
    if name == "hypre" and not symmetric:
        name = "bcgs"  # with hypre
    A, rng = (POISSON if symmetric else BLOWN), np.random.default_rng(1)
    weight, change, db = rng.standard_normal(N * N), A.copy(), rng.standard_normal(N * N)
    change.data = rng.standard_normal(A.nnz)
    if symmetric and "cg" in str(METHODS[name].ksp):
        change = sp.csr_array((change + change.T) / 2)  # or CG would not suit what is solved with below

    def loss(t: float) -> float:
        return float(weight @ spl.spsolve(sp.csc_array(A + t * change), B + t * db))

    exact = (loss(1e-5) - loss(-1e-5)) / 2e-5
    result = linear_solve(A, B, method=METHODS[name], rtol=1e-12)
    gradient, step = result.vjp(weight), result.jvp(db, change)
    by_entries = (gradient.A.toarray() * change.toarray()).sum()
    assert np.isclose(by_entries + gradient.b @ db, exact, rtol=1e-6) and np.isclose(weight @ step, exact, rtol=1e-6)


def test_a_singular_matrix() -> None:
    b = B - B.mean()
    for method in ("petsc", Petsc("cg", "gamg"), Petsc("cg", "jacobi")):
        result = linear_solve(NEUMANN, b, method=method)
        assert np.allclose(NEUMANN @ result.x, b, atol=1e-8) and abs(result.x.mean()) < 1e-10
        assert abs(result.vjp(B).b.mean()) < 1e-10
    with pytest.raises(NotConverged):
        linear_solve(NEUMANN, B, method="petsc", nullspace=None)
    with pytest.warns(SingularMatrixWarning, match="constants"):
        assert np.allclose(NEUMANN @ linear_solve(NEUMANN, B, method="petsc").x, b, atol=1e-8)
    # one constant for each of two regions, and vectors that are given
    two = sp.block_diag([NEUMANN, 3 * NEUMANN], format="csr")
    both = np.concatenate([b, -b])
    assert np.allclose(two @ linear_solve(two, both, method="petsc").x, both, atol=1e-8)
    scale = sp.diags_array(1 + np.arange(N * N) / N**2)
    A, vector = sp.csr_array(scale @ NEUMANN @ scale), 1 / scale.diagonal()
    found = linear_solve(A, A @ B, method=Petsc("cg", "hypre"), nullspace=vector[None])
    assert np.allclose(A @ found.x, A @ B, atol=1e-7) and abs(found.x @ vector) < 1e-8
    # not symmetric: its adjoint has other null vectors
    A = sp.csr_array(scale @ NEUMANN)
    for method in ("petsc", METHODS["mumps"]):
        found = linear_solve(A, A @ B, method=method, nullspace="constant")
        assert np.allclose(A @ found.x, A @ B, atol=1e-8) and abs(found.x.mean()) < 1e-10


def test_batches() -> None:
    b = np.stack([B, 1e6 * B[::-1], np.zeros(N * N), np.full(N * N, np.nan)])
    result = linear_solve(POISSON, b, method="petsc", on_failure="status")
    assert list(result.status) == [Status.CONVERGED] * 3 + [Status.DIVERGED] and result.iterations[2] == 0
    for k in range(2):
        one = linear_solve(POISSON, b[k], method="petsc")
        assert np.array_equal(one.x, result.x[k]) and one.iterations == result.iterations[k]
    several = krylix.sparse.CSR(
        np.stack([POISSON.data, 2 * POISSON.data]), POISSON.indices, POISSON.indptr, (N * N,) * 2
    )
    found = linear_solve(several, b[:2], method="petsc")
    assert close(found.x[0], POISSON, B) and close(found.x[1] / 1e6, 2 * POISSON, B[::-1])


def test_dtypes() -> None:
    single = linear_solve(POISSON.astype(np.float32), B.astype(np.float32), method="petsc")
    assert single.x.dtype == np.float32 and single.converged
    assert np.allclose(single.x, spl.spsolve(POISSON.tocsc(), B), atol=1e-2)
    b = B + 1j * B[::-1]
    both = linear_solve(BLOWN, b, method="petsc")
    assert both.x.dtype == np.complex128 and np.allclose(BLOWN @ both.x, b, atol=1e-7)
    if np.dtype(PETSc.ScalarType).kind != "c":
        with pytest.raises(TypeError, match="computes with real numbers"):
            linear_solve(POISSON * (1 + 1j), b, method="petsc")
        return
    turned = sp.csr_array(sp.diags_array([0.3j, -0.3j], offsets=[-1, 1], shape=(N * N, N * N)))
    for A in (POISSON + sp.eye_array(N * N) + turned, BLOWN * (1 + 0.5j)):  # Hermitian, and not
        solver = prepare(A, method="petsc")
        assert close(solver(b), A, b) and close(solver.T(b), A.T, b)
        assert close(linear_solve(A, b, method="petsc").vjp(b).b, A.conj().T, b)


@pytest.mark.parametrize("name", ["jacobi", "mumps"])
def test_complex_vectors_are_preconditioned_by_a_real_matrix(name: str) -> None:
    M = prepare(POISSON, method=METHODS[name]).preconditioner
    r = B + 1j * B[::-1]
    expected = r / POISSON.diagonal() if name == "jacobi" else spl.spsolve(POISSON.tocsc(), r)
    np.testing.assert_allclose(M @ r, expected, rtol=1e-9, atol=1e-12)


def test_trivial_systems() -> None:
    zero = linear_solve(POISSON, 0 * B, method="petsc")
    assert zero.iterations == 0 and not zero.x.any()
    exact = linear_solve(POISSON, POISSON @ B, x0=B, method="petsc")
    assert exact.iterations == 0 and np.array_equal(exact.x, B)
    for n in (1, 2, 3):
        A = sp.diags_array([2.0] * n).tocsr()
        assert np.allclose(linear_solve(A, np.ones(n), method="petsc").x, 0.5)
    assert np.allclose(linear_solve(np.array([[2.0, 1.0], [1.0, 3.0]]), np.ones(2), method="petsc").x, [0.4, 0.2])
    assert linear_solve(POISSON, np.zeros((0, N * N)), method="petsc").x.shape == (0, N * N)


def test_a_ksp_that_fails() -> None:
    indefinite = sp.csr_array(POISSON - 0.7 * sp.eye_array(N * N))
    with pytest.raises(
        NotConverged, match=r"KSP cg with PC jacobi, which ended with DIVERGED_.*choose other settings of it"
    ):
        linear_solve(indefinite, B, method=Petsc("cg", "jacobi"), max_iter=20)
    with pytest.raises(NotConverged):
        linear_solve(BLOWN, B, method=Petsc("richardson", "none"), max_iter=50)
    with pytest.raises(NotConverged):
        linear_solve(POISSON, B, method=Petsc("cg", "none"), max_iter=5)
    status = linear_solve(POISSON, B, method=Petsc("cg", "none"), max_iter=5, on_failure="status")
    assert status.status is Status.MAX_ITER and status.iterations == 5 and "DIVERGED_" in str(status)


@pytest.mark.parametrize("claimed", [0.0, np.nan, 1.0])
def test_a_ksp_that_claims_success(claimed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def claims(self: Any, b: np.ndarray, goal: float, limit: int, see: Any = None) -> KspResult:
        return KspResult(np.full_like(b, claimed), 1, "CONVERGED_ATOL")

    monkeypatch.setattr(PetscSystem, "solve", claims)
    with pytest.raises((NotConverged, Diverged)):
        linear_solve(POISSON, B, method="petsc")
    assert not linear_solve(POISSON, B, method="petsc", on_failure="status").converged


def test_prepared_solvers_share_a_mat_of_one_pattern() -> None:
    solver = prepare(POISSON, method=Petsc(pc="cholesky"))
    other = solver.update(3 * POISSON)
    (one,), (two,) = solver.preconditioner.solvers, other.preconditioner.solvers
    assert one is two
    for _ in range(2):  # in turn: each with its own numbers
        assert close(other(B), 3 * POISSON, B) and close(solver(B), POISSON, B)
    blown = other.update(BLOWN)  # another method, and LU
    assert blown.preconditioner.solvers[0] is not one
    assert close(prepare(BLOWN, method="petsc").update(2 * BLOWN).T(B), 2 * BLOWN.T, B)
    assert close(pickle.loads(pickle.dumps(solver))(B), POISSON, B) and close(copy.deepcopy(solver)(B), POISSON, B)
    assert "KSP preonly with PC cholesky" in solver.explain()


def test_nothing_is_kept_for_ever() -> None:
    gc.collect()
    alive = [weakref.ref(one) for one in gc.get_objects() if isinstance(one, PetscSystem)]
    alive = [one for one in alive if one() is not None]
    options = dict(PETSc.Options().getAll())
    for _ in range(3):
        linear_solve(BLOWN, B, method=Petsc("gmres", options={"ksp_gmres_restart": 20})).vjp(B)
        prepare(BLOWN, method="petsc")(B)
    clear_setup_cache()
    gc.collect()
    left = [one for one in gc.get_objects() if isinstance(one, PetscSystem)]
    assert len(left) <= len(alive) and dict(PETSc.Options().getAll()) == options


def test_callback_time_limit_and_history() -> None:
    seen: list[tuple[int, float]] = []

    def look(state: Any) -> bool:
        seen.append((int(state.iterations), float(np.linalg.norm(B - POISSON @ state.x))))
        assert np.isclose(state.residual_norm, seen[-1][1], rtol=1e-6, atol=1e-12)
        return len(seen) == 4

    result = linear_solve(POISSON, B, method=Petsc("cg", "gamg"), callback=look)
    assert result.status is Status.STOPPED and [k for k, _ in seen] == [1, 2, 3, 4] and seen[3][1] < seen[0][1]
    with pytest.raises(NotConverged, match="time"):
        linear_solve(POISSON, B, method=Petsc("cg", "none"), time_limit=1e-9)

    def wrong(state: Any) -> None:
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        linear_solve(POISSON, B, method="petsc", callback=wrong)
    told = linear_solve(POISSON, B, method="petsc", history=True)
    assert told.history[0] == pytest.approx(np.linalg.norm(B)) and told.history[-1] <= told.tolerance


@pytest.mark.parametrize(
    "method, word",
    [
        (Petsc("conjugate"), "KSP conjugate"),
        (Petsc(pc="multigrid"), "PC multigrid"),
        (Petsc("preonly", "lu", {"pc_factor_mat_solver_type": "nobody"}), "PC lu"),
        (Petsc(options={"pc_hypre_boomeramg_threshold": 0.5}), "'pc_hypre_boomeramg_threshold': it has read no such"),
        (Petsc("cg", options={"ksp_gmres_restart": 5, "ksp_cg_single_reduction": 1}), "'ksp_gmres_restart': it has"),
    ],
)
def test_settings_that_petsc_does_not_know(method: Petsc, word: str) -> None:
    with pytest.raises(ValueError, match=f"PETSc cannot set up .*{word}"):
        linear_solve(POISSON, B, method=method)


def test_what_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="does not support matrix_offset"):
        linear_solve(POISSON, B, method="petsc", matrix_offset=1.0)
    with pytest.raises(ValueError, match="not finite"):
        linear_solve(POISSON * np.nan, B, method="petsc")


def test_more_entries_than_indices_can_count() -> None:
    if np.dtype(PETSc.IntType).itemsize == 4:
        with pytest.raises(ValueError, match="64-bit indices"):
            checked_indices(np.zeros(2, np.int64), 2**31, 5)


def test_blocks() -> None:
    A = sp.csr_array(sp.kron(POISSON, [[2.0, 1.0], [1.0, 2.0]]))
    b = np.repeat(B, 2) * np.tile([1.0, -0.5], N * N)
    for pc in ("hypre", "gamg", "pbjacobi"):
        assert close(linear_solve(A, b, method=Petsc("cg", pc, block_size=2)).x, A, b)


def test_a_mat_of_petsc() -> None:
    mat = PETSc.Mat().createAIJ(POISSON.shape, csr=(POISSON.indptr, POISSON.indices, POISSON.data))
    mat.assemble()
    assert close(linear_solve(mat, B, method="petsc").x, POISSON, B)


def test_libraries() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed beside petsc4py")
    b = torch.tensor(B, requires_grad=True)
    x = linear_solve(BLOWN, b, method="petsc").x
    x.sum().backward()
    assert close(x.detach().numpy(), BLOWN, B) and close(b.grad.numpy(), BLOWN.T, np.ones(N * N))


def test_jax() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed beside petsc4py")
    jax.config.update("jax_enable_x64", True)

    def loss(b: Any, values: Any) -> Any:
        A = krylix.sparse.CSR(values, BLOWN.indices, BLOWN.indptr, BLOWN.shape)
        return linear_solve(A, b, method="petsc").x.sum()

    by_b, by_values = jax.jit(jax.grad(loss, argnums=(0, 1)))(jax.numpy.asarray(B), jax.numpy.asarray(BLOWN.data))
    assert close(np.asarray(by_b), BLOWN.T, np.ones(N * N)) and by_values.shape == BLOWN.data.shape
