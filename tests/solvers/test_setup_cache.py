"""Plain solves with one matrix again and again: what is kept of its setup changes no digit, and is of that matrix."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import NotConverged, SingularMatrixWarning, linear_solve, setup_cache
from krylix.solvers import CG, METHODS, PRECONDITIONERS
from krylix.solvers.preconditioners import DiagonalOperator
from modes import EAGER, Numbers, array, to_numpy

CACHE: Any = sys.modules["krylix.solvers.plan_cache"]
N = 81  # dense systems of a few unknowns have no setup to keep
GRID = sp.csr_array(
    sp.kron(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9)), np.eye(9))
    + sp.kron(np.eye(9), sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9)))
)
GENERAL = sp.csr_array(GRID + sp.random_array((N, N), density=0.05, rng=np.random.default_rng(1)))
LINE = sp.csr_array(sp.diags_array([-1.0, 2.0, -0.5], offsets=[-1, 0, 1], shape=(N, N)))
RING = sp.csr_array(2 * np.eye(N) - np.roll(np.eye(N), 1, 0) - np.roll(np.eye(N), -1, 0))
MATRICES = {"grid": GRID, "general": GENERAL, "line": LINE, "dense": GENERAL.toarray(), "definite": GRID.toarray()}
RNG = np.random.default_rng(0)
B = RNG.standard_normal((5, N))

# Name -> matrix, settings.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "auto, grid": ("grid", {}),
    "auto, general": ("general", {}),
    "auto, line": ("line", {}),
    "auto, dense": ("dense", {}),
    "auto, definite": ("definite", {}),
    "direct, sparse": ("general", {"method": "direct"}),
    "scipy-direct": ("general", {"method": "scipy-direct"}),
    "scipy-direct, dense": ("dense", {"method": "scipy-direct"}),
    "scipy-direct, offset": ("grid", {"method": "scipy-direct", "matrix_offset": 0.5}),
    "banded-direct": ("line", {"method": "banded-direct"}),
    "CG, ic": ("grid", {"method": "CG", "preconditioner": "ic"}),
    "CG, nothing": ("grid", {"method": "CG", "rtol": 1e-8, "history": True}),
    "CG, auto": ("grid", {"method": "CG", "preconditioner": "auto"}),
    "GMRES, ilu": ("general", {"method": "GMRES", "preconditioner": "ilu", "rtol": 1e-4, "history": True}),
    "biCG-stab, jacobi": ("general", {"method": "biCG-stab", "preconditioner": "jacobi", "rtol": 1e-4}),
    "scipy-GMres": ("general", {"method": "scipy-GMres"}),
    "mixed-CG": ("grid", {"method": "mixed-CG"}),
}


IN_JAX, IN_TENSORFLOW = ("CG, ic", "scipy-direct"), ("auto, line", "scipy-direct, dense")  # by default
CELLS = [
    pytest.param(case, mode, marks=() if mode in ("numpy", "torch") or now else pytest.mark.merge)
    for case in CASES
    for mode in EAGER
    for now in [(mode == "jax" and case in IN_JAX) or (mode == "tf" and case in IN_TENSORFLOW)]
]


def kept() -> int:
    return len(CACHE.PLANS)


def assert_equal(found: Any, expected: Any) -> None:
    """Every number to the last bit, and every word."""
    a, b = Numbers(found), Numbers(expected)
    for name, value in vars(b).items():
        np.testing.assert_array_equal(getattr(a, name), value, err_msg=name)
    assert found.preconditioner == expected.preconditioner
    assert type(found.x) is type(expected.x)


def check(A: Any, b: Any, **settings: Any) -> Any:
    """A solve that may use what is kept gives what one without it gives."""
    found = linear_solve(A, b, **settings)
    with setup_cache(False):
        assert_equal(found, linear_solve(A, b, **settings))
    return found


def solve_often(A: Any = GRID, b: np.ndarray = B[0], **settings: Any) -> Any:
    """So that the set-up is kept; the last result."""
    for _ in range(3):
        found = linear_solve(A, b, **settings)
    return found


@pytest.mark.compiled_by_default
@pytest.mark.parametrize(("case", "mode"), CELLS)
def test_no_digit_changes(case: str, mode: str) -> None:
    """Of the first solve, which keeps nothing, of the second, which keeps its setup, and of those that take it."""
    name, settings = CASES[case]
    for k, row in enumerate(B if mode in ("numpy", "torch") else B[:3]):
        check(MATRICES[name], array(mode, row), **settings)
        assert kept() == (k > 0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_fast_solvers_on_grids(dtype: str) -> None:
    """As they are found in matrices of a thousand unknowns and more."""
    lines = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(32, 32))
    A = sp.csr_array(sp.kron(lines, sp.eye_array(32)) + sp.kron(sp.eye_array(32), lines)).astype(dtype)
    for b in np.random.default_rng(2).standard_normal((4, 1024)).astype(dtype):
        found = check(A, b)
        assert found.method == "fast-direct"
    assert next(iter(CACHE.PLANS)).inverse is not None
    gradient = linear_solve(A, b).vjp(b).b
    np.testing.assert_allclose(gradient, found.x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("name", ["general", "dense"])
def test_dtypes(name: str, dtype: str) -> None:
    A, B_ = MATRICES[name].astype(dtype), B.astype(dtype)
    A = A * (1 + 0.1j) if A.dtype.kind == "c" else A
    for b in B_:
        assert check(A, b).x.dtype == dtype
    assert kept() == 1


@pytest.mark.compiled_by_default
@pytest.mark.parametrize(
    ("mode", "turned"), [("torch", False), ("torch", True), ("tf", False), ("jax", False), ("jax", True)]
)
def test_dense_matrices_of_the_library(mode: str, turned: bool) -> None:
    A = array(mode, MATRICES["dense"])
    A = A.T if turned else A
    for row in B[:3]:
        check(A, array(mode, row))
    assert kept() == 1


def test_batches_and_starts() -> None:
    for _ in range(3):
        check(GENERAL, B)
        check(GENERAL, B, x0=B[::-1].copy())
        check(GENERAL, B.T.copy(), axis=0)


FORMATS = ("csr_array", "csc_array", "coo_array", "bsr_array", "dia_array", "csr_matrix", "csc_matrix")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_matrix_that_is_made_anew(kind: str) -> None:
    """Its numbers tell, not the object; a gradient is of its format."""
    made: Callable[[], Any] = lambda: getattr(sp, kind)(GRID)  # noqa: E731
    for row in B:
        found = linear_solve(made(), row, method="scipy-direct")
        gradient = found.vjp(row).A
        with setup_cache(False):
            expected = linear_solve(made(), row, method="scipy-direct")
            assert_equal(found, expected)
            assert type(gradient) is type(expected.vjp(row).A)
            np.testing.assert_array_equal(gradient.toarray(), expected.vjp(row).A.toarray())
    assert kept() == 1


def change_values(A: Any) -> None:
    A.data *= 2


def change_one_bit(A: Any) -> None:
    A.data[7] = np.nextafter(A.data[7], np.inf)


def change_a_sign_of_zero(A: Any) -> None:
    A.data[3] = -A.data[3]


def change_places(A: Any) -> None:
    A.indices[:] = (A.indices + 9) % N


@pytest.mark.parametrize("change", [change_values, change_one_bit, change_a_sign_of_zero, change_places])
def test_a_matrix_that_is_written_to(change: Callable[[Any], None]) -> None:
    A = GENERAL.copy()
    A.data[3] = 0
    solve_often(A, method="scipy-direct")
    before = kept()
    change(A)
    for count in (before, before + 1, before + 1):
        check(A, B[0], method="scipy-direct")
        assert kept() == count


def test_a_dense_matrix_that_is_written_to() -> None:
    A = MATRICES["dense"].copy()
    solve_often(A)
    A[2, 2] += 1
    np.testing.assert_allclose(A @ linear_solve(A, B[0]).x, B[0], rtol=1e-8)


def test_a_result_does_not_change_with_the_matrix() -> None:
    """Derivatives of a solve whose setup was kept are of the matrix as it was."""
    A = GENERAL.copy()
    result = solve_often(A, method="scipy-direct")
    expected = np.linalg.solve(GENERAL.toarray().T, B[1])
    A.data *= 3
    np.testing.assert_allclose(result.vjp(B[1]).b, expected, rtol=1e-8)
    b = B[0].copy()
    result = linear_solve(GENERAL, b, method="scipy-direct")
    b *= 2
    with pytest.raises(RuntimeError, match="was changed after the solve"):
        result.vjp(B[1])


def test_each_setting_has_its_setup() -> None:
    settings: list[dict[str, Any]] = [
        {"rtol": 1e-6}, {"rtol": 1e-4}, {"atol": 1e-3}, {"nullspace": None}, {"matrix_offset": 1.0}, {"max_iter": 99},
        {"preconditioner": "jacobi"}, {"method": "CG"}, {"method": "biCG-stab"}, {"on_failure": "status"},
    ]  # fmt: skip
    for one in settings * 3:
        check(GRID, B[0], **one)
    for b in (B[0], B[0].astype(np.float32), B[:2]):
        with krylix.precision(32):
            assert linear_solve(GRID, b).x.dtype == np.float32
        assert linear_solve(GRID, b).x.dtype == b.dtype


NOT_KEPT: dict[str, dict[str, Any]] = {
    "null vectors": {"nullspace": np.ones((1, N))},
    "a matrix as a preconditioner": {"preconditioner": sp.eye_array(N, format="csr"), "method": "CG"},
    "a function as a preconditioner": {"preconditioner": lambda r: r, "method": "CG"},
    "a Preconditioner": {"preconditioner": krylix.preconditioner(GRID, "jacobi"), "method": "CG"},
    "tolerances as arrays": {"rtol": np.array([1e-6])},
    "limits as a list": {"max_iter": [300, 400], "method": "CG"},
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_is_not_compared_is_not_kept(name: str) -> None:
    A, b = (RING, B[0] - B[0].mean()) if name == "null vectors" else (GRID, B[:1] if "arrays" in name else B[0])
    solve_often(A, b, **{"on_failure": "status", **NOT_KEPT[name]})
    assert not kept()


def test_methods_and_preconditioners_of_users_are_not_kept() -> None:
    class Mine(CG):
        pass

    def mine(A: Any) -> Any:
        return krylix.Preconditioner(DiagonalOperator(A.bk, np.full((1, N), 0.25)), "mine", hermitian=True, memory=N)

    PRECONDITIONERS["mine"] = mine
    try:
        for _ in range(3):
            linear_solve(GRID, B[0], method=Mine())
            assert linear_solve(GRID, B[0], method="CG", preconditioner="mine").preconditioner == "mine"
    finally:
        del PRECONDITIONERS["mine"]
    assert not kept()


def test_failures_are_not_kept() -> None:
    for _ in range(3):
        with pytest.raises(NotConverged):
            linear_solve(GRID, B[0], method="CG", max_iter=2)
        linear_solve(GRID, B[0], method="CG", max_iter=2, on_failure="status")
        with pytest.raises(ValueError, match="no solution in finite numbers"):
            linear_solve(GRID * np.nan, B[0])
    assert not kept()


def test_a_right_hand_side_that_fails() -> None:
    """With a setup that was kept, in the same words."""
    bad = B[0].copy()
    bad[3] = np.nan
    solve_often(method="CG", on_failure="status")
    assert check(GRID, bad, method="CG", on_failure="status").diverged
    zero = linear_solve(GRID, np.zeros(N), method="CG", on_failure="status")
    assert zero.iterations == 0 and not zero.x.any()


@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_singular_matrices(method: str) -> None:
    """Each solve warns, and says so."""
    A = GENERAL.toarray()
    A[5] = A[4] + A[6]
    b = A @ B[0]
    matrix: Any = A if method == "direct" else sp.csr_array(A)
    with setup_cache(False), pytest.warns(SingularMatrixWarning):
        expected = linear_solve(matrix, b, method=method)
    for _ in range(4):
        with pytest.warns(SingularMatrixWarning) as found:
            assert_equal(linear_solve(matrix, b, method=method), expected)
        assert len(found) == 1 and found[0].filename == __file__
    assert kept() == 1 and expected.singular
    for _ in range(3):
        check(RING, B[0] - B[0].mean())


def test_it_is_bounded_and_can_be_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(6):
        for _ in range(2):
            linear_solve(GRID + k * sp.eye_array(N), B[0], method="scipy-direct")
    assert kept() == CACHE.PLANS.count
    held = weakref.ref(next(iter(CACHE.PLANS)).A)
    krylix.clear_setup_cache()
    assert not kept() and held() is None
    monkeypatch.setattr(CACHE, "MOST_BYTES", 100)
    solve_often()
    assert not kept()


def test_the_last_that_was_used_stays() -> None:
    for k in range(4):
        for _ in range(2):
            linear_solve(GRID + k * sp.eye_array(N), B[0])
    linear_solve(GRID, B[0])
    for _ in range(2):
        linear_solve(GENERAL, B[0])
    contents = [kept.source.data for kept in CACHE.PLANS]
    assert any(np.array_equal(a, GRID.data) for a in contents) and kept() == 4


def test_switches() -> None:
    krylix.set_global_setup_cache(False)
    try:
        solve_often()
        assert not kept()
        with setup_cache(True):
            solve_often()
        assert kept() == 1
    finally:
        krylix.set_global_setup_cache(True)


def test_a_setup_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, as the first solve keeps nothing."""
    sparse: Any = sys.modules["krylix.solvers.factors.sparse"]
    calls, original = [], sparse._solver_of
    monkeypatch.setattr(sparse, "_solver_of", lambda *args: calls.append(1) or original(*args))
    for row in np.tile(B, (4, 1)):
        linear_solve(GENERAL, row, method="scipy-direct")
    assert len(calls) == 2


def test_threads() -> None:
    matrices = [sp.csr_array(GENERAL + k * sp.eye_array(N)) for k in range(6)]
    expected = [np.linalg.solve(A.toarray(), B[0]) for A in matrices]

    def work(first: int) -> None:
        for k in range(first, first + 60):
            np.testing.assert_allclose(linear_solve(matrices[k % 6], B[0]).x, expected[k % 6], rtol=0, atol=1e-8)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.needs("torch")
def test_derivatives_in_torch() -> None:
    import torch

    dense = torch.tensor(GENERAL.toarray())
    for A in (GENERAL, dense):
        for _ in range(3):
            b = torch.tensor(B[0], requires_grad=True)
            x = linear_solve(A, b, method="direct").x
            (gradient,) = torch.autograd.grad((x**3).sum(), b, create_graph=True)
            (second,) = torch.autograd.grad(gradient.sum(), b)
            inverse = torch.linalg.inv(dense)
            torch.testing.assert_close(gradient, inverse.T @ (3 * x**2))
            torch.testing.assert_close(second, inverse.T @ (6 * x * (inverse @ torch.ones_like(b))))
        solved = torch.func.vmap(lambda b, A=A: linear_solve(A, b, method="GMRES").x)(torch.tensor(B))
        torch.testing.assert_close(solved, torch.linalg.solve(dense, torch.tensor(B).T).T)
    assert kept() == 2
    for _ in range(3):  # a matrix with derivatives
        tracked = dense.clone().requires_grad_()
        linear_solve(tracked, torch.tensor(B[0])).x.sum().backward()
        assert tracked.grad is not None and tracked.grad.abs().max() > 0
        with torch.no_grad():
            linear_solve(tracked, torch.tensor(B[0]))


@pytest.mark.merge
@pytest.mark.needs("torch")
def test_modes_of_torch_leave_nothing_behind() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    for _ in range(3):
        with torch.inference_mode():
            linear_solve(GENERAL, torch.tensor(B[0]))
    assert not kept()
    for _ in range(3):
        b = torch.tensor(B[0], requires_grad=True)
        linear_solve(GENERAL, b).x.sum().backward()
    with torch.inference_mode():
        assert linear_solve(GENERAL, torch.tensor(B[0])).converged
    before = kept()
    with FakeTensorMode() as fake:
        for _ in range(3):
            try:
                linear_solve(GENERAL, fake.from_tensor(torch.tensor(B[1])), method="CG")
            except Exception:  # it has no numbers
                continue
    assert kept() == before


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_transformations_of_jax() -> None:
    import jax

    solve = lambda b: linear_solve(GENERAL, b, method="scipy-direct").x  # noqa: E731
    b = jax.numpy.asarray(B[0])
    expected = np.linalg.solve(GENERAL.toarray(), B[0])
    for _ in range(3):
        np.testing.assert_allclose(solve(b), expected, rtol=1e-8)
    assert kept() == 1
    inverse = np.linalg.inv(GENERAL.toarray())
    np.testing.assert_allclose(jax.grad(lambda b: solve(b).sum())(b), inverse.sum(0), rtol=1e-8)
    np.testing.assert_allclose(jax.jit(solve)(b), expected, rtol=1e-8)
    np.testing.assert_allclose(jax.vmap(solve)(jax.numpy.asarray(B)), B @ inverse.T, rtol=1e-8)
    np.testing.assert_allclose(solve(b), expected, rtol=1e-8)
    for k in range(3):  # arrays without a value, and a matrix of NumPy in a function that is compiled
        jax.jit(lambda b, k=k: linear_solve(GENERAL, b + k, method="direct").x)(b)
    assert kept() == 1


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_tapes_of_tensorflow() -> None:
    import tensorflow as tf

    b, A = tf.constant(B[0]), tf.constant(GENERAL.toarray())
    inverse = np.linalg.inv(GENERAL.toarray())
    for _ in range(3):
        with tf.GradientTape() as tape:
            tape.watch(b)
            total = tf.reduce_sum(linear_solve(GENERAL, b).x)
        np.testing.assert_allclose(tape.gradient(total, b), inverse.sum(0), rtol=1e-8)
    assert kept() == 1
    for _ in range(3):
        with tf.GradientTape() as tape:
            tape.watch(A)
            total = tf.reduce_sum(linear_solve(A, b).x)
        np.testing.assert_allclose(tape.gradient(total, A), -np.outer(inverse.sum(0), inverse @ B[0]), rtol=1e-6)
    np.testing.assert_allclose(tf.function(lambda b: linear_solve(GENERAL, b).x)(b), inverse @ B[0], rtol=1e-8)
    assert kept() == 1


def test_refusals_stay() -> None:
    solve_often(method="CG")
    for settings, error in (
        ({"batch_ndim": True}, ValueError), ({"on_failure": "never"}, ValueError), ({"rtol": 2.0}, ValueError),
        ({"max_iter": -1}, ValueError), ({"x0": np.ones(3)}, ValueError), ({"method": "no such"}, ValueError),
        ({"args": (1,)}, Exception), ({"nullspace": "no such"}, ValueError),
    ):  # fmt: skip
        given: dict[str, Any] = {"method": "CG", **settings}
        with pytest.raises(error), warnings.catch_warnings():
            linear_solve(GRID, B[0], **given)
    with pytest.raises(ValueError, match="rows"):
        linear_solve(GRID, np.eye(N))
    with pytest.raises(ValueError, match="needs a symmetric matrix"):
        linear_solve(GENERAL, B[0], method="CG")
    assert to_numpy(linear_solve(GRID, list(B[0]), method="CG").x).shape == (N,)
    assert METHODS["CG"] == CG()


def test_more_matrices_in_turn_than_are_kept_cost_no_setup() -> None:
    """Each would be let go before it came again."""
    matrices = [GENERAL + k * sp.eye_array(N) for k in range(CACHE.PLANS.count + 1)]
    for _ in range(3):
        for A in matrices:
            linear_solve(A, B[0])
    assert kept() == 0


def test_settings_of_another_type_are_looked_at() -> None:
    """False is 0 in Python, and no number of axes."""
    solve_often(GENERAL, batch_ndim=0)
    with pytest.raises(ValueError, match="batch_ndim"):
        linear_solve(GENERAL, B[0], batch_ndim=False)


@pytest.mark.parametrize("method", ["scipy-direct", "direct"])
def test_large_factors_are_not_kept(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of the process is not filled by what is solved twice."""
    for most, expected in ((1, 0), (1 << 27, 1)):
        monkeypatch.setattr(CACHE, "MOST_FACTORS", most)
        solve_often(GENERAL, method=method)
        assert kept() == (expected if method == "scipy-direct" else 1)  # dense factors are as large as the matrix
