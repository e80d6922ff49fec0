"""Prepared solvers as functions, of the transposed matrix, without an array like b, and their size."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import in_turn
from krylix import UnsupportedOperation, as_operator, linear_solve, preconditioner, prepare
from krylix.solvers import LSMR
from modes import EAGER, array, library, native_sparse, to_numpy

N = 16
RANDOM = np.random.default_rng(5)
GENERAL = 5 * np.eye(N) + np.where(RANDOM.random((N, N)) < 0.3, RANDOM.normal(size=(N, N)), 0)
COMPLEX = GENERAL + 1j * np.diag(RANDOM.normal(size=N)) + 0.5j * np.eye(N, k=2)
B = RANDOM.normal(size=N)
SETTINGS: list[dict[str, Any]] = [
    {}, {"method": "direct"}, {"method": "scipy-direct"}, {"method": "GMRES", "preconditioner": "ilu"},
    {"method": "biCG-stab(2)", "preconditioner": "jacobi"}, {"method": "scipy-biCG"}, {"method": "LSMR"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "mode"), in_turn(SETTINGS, EAGER, always=["numpy", "torch"], tier="merge"), ids=str
)
def test_called_and_transposed(mode: str, settings: dict[str, Any]) -> None:
    solver = prepare(array(mode, GENERAL), rtol=1e-10, **settings)
    b = array(mode, B)
    x, y, z = solver(b), solver.T(b), solver.T.T(b)
    assert type(x) is type(y) is type(b)
    for found, matrix in ((x, GENERAL), (y, GENERAL.T), (z, GENERAL)):
        np.testing.assert_allclose(to_numpy(found), np.linalg.solve(matrix, B), rtol=1e-6, atol=1e-8)
    assert solver.T.method == solver.method and solver.shape == solver.T.shape == (N, N)
    if solver.preconditioner is not None:
        assert solver.memory == solver.T.memory and solver.memory > 0


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_complex_matrices_are_not_conjugated(settings: dict[str, Any], sparse: bool) -> None:
    solver = prepare(sp.csr_array(COMPLEX) if sparse else COMPLEX, rtol=1e-10, **settings)
    b = B + 1j * B[::-1]
    np.testing.assert_allclose(solver.T(b), np.linalg.solve(COMPLEX.T, b), rtol=1e-6, atol=1e-8)
    rows = np.stack([b, 2 * b])
    np.testing.assert_allclose(solver.T(rows), np.linalg.solve(COMPLEX.T, rows.T).T, rtol=1e-6, atol=1e-8)


def test_factors_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = spl.splu
    monkeypatch.setattr(spl, "splu", lambda *args, **more: made.append(1) or real(*args, **more))
    solver = prepare(sp.csc_array(GENERAL), method="scipy-direct")
    count = len(made)
    for _ in range(2):
        np.testing.assert_allclose(solver.T.solve(B).x, np.linalg.solve(GENERAL.T, B), rtol=1e-8)
    assert len(made) == count
    lu = real(sp.csc_array(GENERAL))
    assert solver.memory == pytest.approx(lu.L.nnz + lu.U.nnz, rel=0.5)


@pytest.mark.parametrize("mode", EAGER)
def test_without_an_array_like_b(mode: str) -> None:
    """Of matrices of every kind; vectors of the matrix' library and dtype, and batches of them."""
    single = array(mode, GENERAL.astype(np.float32))
    kinds = (as_operator(single), native_sparse(mode, GENERAL.astype(np.float32)), single)
    for A in kinds[:2] if mode == "jax" else kinds:
        solver = prepare(A, method="direct")
        x = solver(array(mode, B.astype(np.float32)))
        assert str(to_numpy(x).dtype) == "float32" and solver.A.bk.name == library(mode)
        np.testing.assert_allclose(to_numpy(x), np.linalg.solve(GENERAL, B), rtol=1e-3, atol=1e-4)
    whole = prepare(array(mode, np.diag(np.arange(1, 5))), method="CG")  # in the library's own precision
    ones = np.ones(4, whole.A.dtype)
    assert to_numpy(whole(array(mode, ones))).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-4)
    if mode in ("jax", "tf"):
        return  # the same again, compiled for seconds
    batch = array(mode, np.stack([GENERAL, 2 * GENERAL]))
    want = np.stack([np.linalg.solve(GENERAL, B), np.linalg.solve(GENERAL, B) / 2])
    np.testing.assert_allclose(to_numpy(prepare(batch)(array(mode, np.stack([B, B])))), want, rtol=1e-6)


def test_of_other_kinds() -> None:
    for A in (sp.coo_array(GENERAL), sp.csr_matrix(GENERAL), GENERAL.tolist(), spl.aslinearoperator(GENERAL)):
        np.testing.assert_allclose(prepare(A, method="GMRES")(B), np.linalg.solve(GENERAL, B), rtol=1e-6)
    two = prepare([sp.csr_array(GENERAL), sp.csr_array(2 * GENERAL)])
    np.testing.assert_allclose(two(np.stack([B, 2 * B])), np.stack([np.linalg.solve(GENERAL, B)] * 2), rtol=1e-6)
    columns = prepare(GENERAL, axis=0)
    np.testing.assert_allclose(columns(np.stack([B, B], 1)), np.linalg.solve(GENERAL, np.stack([B, B], 1)), rtol=1e-6)


def test_what_is_refused() -> None:
    for A in (lambda x: 2 * x, as_operator(lambda x: 2 * x, like=np.ones(3))):
        with pytest.raises(TypeError, match="needs `like` for a function A") as caught:
            prepare(A)
        assert "\n" not in str(caught.value)
    for wrong in (np.ones(3), np.float64(2), []):
        with pytest.raises(ValueError, match=r"expected a matrix \(n, n\)"):
            prepare(wrong)
    with pytest.raises(ValueError, match="square"):
        prepare(np.ones((3, 2)))
    with pytest.raises((UnsupportedOperation, ValueError), match="transpose"):
        prepare(spl.LinearOperator((3, 3), matvec=lambda v: 2 * v, dtype=float), method="GMRES").T(np.ones(3))


def test_rectangular() -> None:
    A = RANDOM.normal(size=(9, 5))
    solver = prepare(A, method="LSMR", rtol=1e-12)
    assert solver.shape == (9, 5) and solver.T.shape == (5, 9)
    np.testing.assert_allclose(solver(B[:9]), np.linalg.lstsq(A, B[:9], rcond=None)[0], rtol=1e-6)
    np.testing.assert_allclose(solver.T(B[:5]), np.linalg.lstsq(A.T, B[:5], rcond=None)[0], rtol=1e-6)
    damped = prepare(A, method=LSMR(damp=0.5), rtol=1e-12).T
    want = np.linalg.solve(A @ A.T + 0.25 * np.eye(9), A @ B[:5])
    np.testing.assert_allclose(damped(B[:5]), want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["scipy-direct", "GMRES", "MINRES"])
def test_singular_matrices(method: str) -> None:
    """The transposed matrix has null vectors of its own."""
    ring = 2 * np.eye(N) - np.roll(np.eye(N), 1, 0) - np.roll(np.eye(N), -1, 0)
    scaled = ring if method == "MINRES" else np.diag(np.arange(1.0, N + 1)) @ ring
    null = np.ones(N) / np.sqrt(N)
    left = np.linalg.svd(scaled)[0][:, -1]
    b = B - null * (null @ B)  # in the range of the transposed matrix
    with np.errstate(all="ignore"), pytest.warns(Warning) if method == "scipy-direct" else _nothing():
        y = prepare(sp.csr_array(scaled), nullspace=null[None], method=method).T.solve(b, x0=None).x
    np.testing.assert_allclose(scaled.T @ y, b, atol=1e-7)
    if method != "GMRES":
        assert abs(left @ y) < 1e-6 * np.linalg.norm(y)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("settings", SETTINGS[:4], ids=str)
def test_pickled_and_updated(settings: dict[str, Any]) -> None:
    solver = pickle.loads(pickle.dumps(prepare(sp.csr_array(GENERAL), **settings).T))
    np.testing.assert_allclose(solver(B), np.linalg.solve(GENERAL.T, B), rtol=1e-6, atol=1e-8)
    again = solver.update(sp.csr_array(2 * GENERAL.T))
    np.testing.assert_allclose(again(B), np.linalg.solve(2 * GENERAL.T, B), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(again.T(B), np.linalg.solve(2 * GENERAL, B), rtol=1e-6, atol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_in_jax() -> None:
    """Called and transposed in compiled functions, as an argument of these, and with derivatives."""
    import jax
    import jax.numpy as jnp

    solver = prepare(jnp.asarray(GENERAL), method="direct")
    b = jnp.asarray(B)
    for run in (jax.jit(lambda s, b: s.T(b)), jax.jit(lambda s, b, kept=solver: kept.T(b))):
        np.testing.assert_allclose(run(solver, b), np.linalg.solve(GENERAL.T, B), rtol=1e-6)
    slope = jax.grad(lambda b: solver.T(b)[0])(b)
    np.testing.assert_allclose(slope, np.linalg.inv(GENERAL.T)[0], rtol=1e-5, atol=1e-8)


def test_memory() -> None:
    A = sp.csr_array(GENERAL)
    assert prepare(A, method="GMRES").memory == 0 and prepare(A, method="direct").memory == N * N
    M = preconditioner(A, "ilu")
    assert prepare(A, method="GMRES", preconditioner=M).memory == M.memory
    assert prepare(A, method="GMRES", preconditioner=lambda r: r).memory is None
    line = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000)).tocsr()
    assert 2000 <= prepare(line, method="scipy-direct").memory < 10_000
    grid = as_operator(sp.kronsum(line[:30, :30], line[:40, :40]).tocsr())
    found = linear_solve(grid, np.ones(1200))
    assert found.converged and prepare(grid).memory > 0


def test_memory_of_band_storage() -> None:
    """LAPACK's, with the rows for exchanges, even where the band is the whole matrix."""
    tridiagonal = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(1000, 1000)).tocsr()
    assert prepare(tridiagonal, method="scipy-direct").memory == 4 * 1000
    full = sp.csr_array(np.ones((N, N)) + N * np.eye(N))
    assert prepare(full, method="scipy-direct").memory == (3 * N - 2) * N


def test_memory_of_a_matrix_that_is_the_preconditioner() -> None:
    A, inverse = sp.csr_array(GENERAL), np.diag(np.arange(1.0, N + 1))
    of_function = prepare(A, method="GMRES", preconditioner=spl.aslinearoperator(inverse))
    assert of_function.memory is None
    for M, numbers in ((inverse, N * N), (sp.csr_array(inverse), N), (as_operator(sp.dia_array(inverse)), N)):
        assert prepare(A, method="GMRES", preconditioner=M).memory == numbers
    many = prepare(np.stack([GENERAL] * 3), method="GMRES", preconditioner=np.stack([inverse] * 3))
    assert many.memory == 3 * N * N
    many = prepare([A, 2 * A, 3 * A], method="GMRES", preconditioner=[sp.csr_array(inverse)] * 3)
    assert many.memory == 3 * N
