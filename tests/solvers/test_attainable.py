"""Without a tolerance of the user's, what the precision can reach counts as converged; never more than that."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import METHOD_NAMES, in_turn, later_where_compiled, methods_and_modes
from gradients import gradients
from krylix import as_operator, choose_backend, clear_setup_cache, linear_solve
from krylix.solvers import METHODS, Status
from modes import MODES, array, library, solve

N = 48
SQUARE = [name for name in METHOD_NAMES if not name.startswith("scipy-ls")]
# SciPy's GCrotMK makes NaN of a goal below what the precision holds, and forgets the x that it had.
DEAR = "scipy-lGMres"  # thousands of steps in Python
STEADY = [name for name in SQUARE if not METHODS[name].amplifies_rounding and name != "scipy-GCrotMK"]
SINGLE = np.finfo(np.float32).eps


@cache
def laplacian(n: int, h: float = 1.0) -> sp.csr_array:
    """5-point, Dirichlet."""
    line = sp.diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(n, n))
    return (sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line)) / h**2).tocsr()


@cache
def neumann(n: int) -> sp.csr_array:
    """Singular: constants are its null space."""
    line = sp.diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    line[0, 0] = line[-1, -1] = 1
    return sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))


@cache
def jumps(n: int) -> sp.csr_array:
    """Diffusion with a coefficient that jumps by 1e4 between blocks; Dirichlet."""
    rng = np.random.default_rng(0)
    c = np.kron(np.where(rng.random((8, 8)) < 0.5, 1.0, 1e4), np.ones((n // 8, n // 8)))
    c = np.pad(c, 1, mode="edge")
    difference = sp.eye_array(n + 1, n) - sp.eye_array(n + 1, n, k=-1)
    found = sp.csr_array((n * n, n * n))
    for gradient, one, other in (
        (sp.kron(difference, sp.eye_array(n)), c[1:, 1:-1], c[:-1, 1:-1]),
        (sp.kron(sp.eye_array(n), difference), c[1:-1, 1:], c[1:-1, :-1]),
    ):
        found += gradient.T @ sp.diags_array((2 * one * other / (one + other)).ravel()) @ gradient
    return sp.csr_array(found)


def single_problem() -> tuple[sp.csr_array, np.ndarray]:
    """In which the precision decides, and not the default tolerance."""
    return laplacian(N).astype(np.float32), np.ones(N * N, np.float32)


def right_hand_side(kind: str, n: int) -> np.ndarray:
    if kind == "ones":
        return np.ones(n * n)
    if kind == "random":
        return np.random.default_rng(3).standard_normal(n * n)
    grid = np.arange(n) / n
    if kind == "smooth":
        return np.outer(np.sin(3 * grid), np.cos(2 * grid)).ravel()
    point = np.zeros((n, n))
    point[n // 3, n // 2] = 1
    return point.ravel()


def check_to_the_limit(result: Any, A: sp.csr_array, b: np.ndarray, condition: float) -> None:
    """Converged, with the true residual below the tolerance, which is small, and an error of rounding's size."""
    assert np.all(result.converged), result.message
    x = result.x.astype(np.float64)
    norm = np.linalg.norm(b - A @ x)
    assert norm <= result.tolerance * (1 + 1e-3) + 4 * SINGLE * np.linalg.norm(abs(A) @ np.abs(x))
    assert result.tolerance <= max(0.05, 1e-5) * np.linalg.norm(b)
    exact = sp.linalg.spsolve(A.tocsc(), b)
    assert np.linalg.norm(x - exact) <= 4 * condition * SINGLE * np.linalg.norm(exact)


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize(
    ("method", "mode"),
    methods_and_modes((m for m in STEADY if m not in (DEAR, "direct")), MODES)
    + later_where_compiled("direct")  # a dense matrix of 2304 unknowns
    + [pytest.param(DEAR, mode, marks=pytest.mark.slow) for mode in MODES],
)
def test_textbook_problem_in_single_precision(method: str, mode: str) -> None:
    n = 32 if METHODS[method].least_squares else N  # which take as many steps as the condition number
    A, b = laplacian(n), np.ones(n * n)
    result = solve(mode, A.astype(np.float32), b.astype(np.float32), method=method)
    check_to_the_limit(result, A, b, condition=0.5 * n**2)


@pytest.mark.parametrize("method", ["CG", "MINRES", "biCG-stab(2)", "GMRES", "IDR(4)", "scipy-direct", "LSMR"])
@pytest.mark.parametrize("kind", ["random", "smooth", "point"])
def test_other_right_hand_sides(method: str, kind: str) -> None:
    A, b = laplacian(N, 1 / N), right_hand_side(kind, N)
    result = solve("numpy", A.astype(np.float32), b.astype(np.float32), method=method)
    check_to_the_limit(result, A, b, condition=0.5 * N**2)


@pytest.mark.parametrize(
    "n", [128, pytest.param(256, marks=pytest.mark.slow), pytest.param(512, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("method", ["CG", "MINRES", "biCG-stab(2)", "scipy-direct", "mixed-CG"])
def test_larger_systems(method: str, n: int) -> None:
    A, b = laplacian(n), np.ones(n * n)
    result = solve("numpy", A.astype(np.float32), b.astype(np.float32), method=method)
    assert result.tolerance > 1e-5 * n  # it is the precision that decides
    check_to_the_limit(result, A, b, condition=0.5 * n**2)


def test_double_precision_has_a_limit_too() -> None:
    A, b = laplacian(64), np.ones(64 * 64)
    scale = sp.diags_array(10.0 ** np.linspace(-4, 4, 64 * 64))
    A = sp.csr_array(scale @ A @ scale)
    result = linear_solve(A, b, method="scipy-direct")
    assert result.converged and result.residual_norm <= result.tolerance


@pytest.mark.parametrize("method", ["CG", "MINRES", "GMRES", "biCG-stab(2)", "scipy-direct", "scipy-CG", "direct"])
def test_a_tolerance_that_is_asked_for_is_kept(method: str) -> None:
    A, b = single_problem()
    result = solve("numpy", A, b, method=method, rtol=1e-5, on_failure="status")
    assert not result.converged and result.status == Status.STAGNATED
    assert result.tolerance == pytest.approx(1e-5 * N, rel=1e-5)
    assert "accuracy that float32 allows" in result.message and "double precision" in result.message


def test_a_tolerance_just_above_the_limit_is_reached() -> None:
    """A round whose goal is the bound itself ends just above it, and would pass for stalled."""
    A, b = single_problem()
    attainable = float(linear_solve(A, b, method="CG").attainable)
    for method in ("CG", "MINRES", "biCG-stab(2)", "GMRES", "IDR(4)"):
        for factor in (0.55, 0.7, 1.0, 1.1):
            result = linear_solve(A, b, method=method, rtol=0.0, atol=factor * attainable, on_failure="status")
            assert result.converged, (method, factor, result.message)


@pytest.mark.parametrize("method", [m for m in SQUARE if METHODS[m].takes_complex])
def test_easy_systems_cost_what_they_did(method: str) -> None:
    """The limit is measured only where a round has missed the tolerance."""
    A = np.diag(np.linspace(1, 2, 20)).astype(np.float32)
    b = np.ones(20, np.float32)
    left, given = linear_solve(A, b, method=method), linear_solve(A, b, method=method, rtol=1e-5)
    assert left.attainable == 0 and left.function_evaluations == given.function_evaluations
    assert np.array_equal(left.x, given.x) and left.tolerance == given.tolerance


def test_one_product_for_each_round_that_missed() -> None:
    A, b = single_problem()
    calls = []

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return (A @ x.T).T

    result = linear_solve(counted, b, method="CG", history=True)
    assert result.converged
    seen = len(calls)
    rounds = (result.function_evaluations - result.iterations) // 2  # each ends with a residual, and a measurement
    assert seen - result.function_evaluations <= 6 and 1 <= rounds <= 3  # those that tests of the function take


@pytest.mark.parametrize(("method", "M"), [("CG", "jacobi"), ("scipy-direct", None)])
def test_columns_of_different_size(method: str, M: str | None) -> None:
    """Where `eps |A| |x|` would accept an error of 6e-3; of factors no more than their own error can be expected."""
    A, b = jumps(64).astype(np.float32), np.random.default_rng(1).standard_normal(64 * 64).astype(np.float32)
    result = linear_solve(A, b, method=method, preconditioner=M)
    exact = sp.linalg.spsolve(A.astype(np.float64).tocsc(), b.astype(np.float64))
    allowed = 1e-4 * np.linalg.norm(exact)
    if method == "scipy-direct":
        allowed = max(allowed, np.linalg.norm(sp.linalg.spsolve(A.tocsc(), b) - exact))
    assert np.linalg.norm(result.x - exact) <= allowed


@pytest.mark.parametrize("side", ["rows", "columns", "both"])
@pytest.mark.parametrize(
    ("mode", "dtype"),
    in_turn(["jax-jit", "numpy", "torch", "tf"], ["complex64", "float32", "float64"], tier="merge"),
)
def test_direct_methods_and_units(mode: str, side: str, dtype: str) -> None:
    """Pivots of different size are no sign of a singular matrix, and 1e12 between two rows is no reason for a shift."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 40)) + (1j * rng.standard_normal((40, 40)) if dtype == "complex64" else 0)
    scales = 10.0 ** rng.uniform(-6, 6, 40)
    left, right = (scales if side != "columns" else 1.0), (scales if side == "columns" else 1.0)
    right = 10.0 ** rng.uniform(-3, 3, 40) if side == "both" else right
    A = (np.reshape(left, (-1, 1)) * A * right).astype(dtype)
    b = (left * rng.standard_normal(40)).astype(dtype)
    result = solve(mode, array(mode, A), b, method="direct", on_failure="status")
    exact = np.linalg.solve(A.astype(np.complex128), b)
    error = np.linalg.norm((result.x - exact) * right) / np.linalg.norm(exact * right)
    assert result.converged and error <= 3e3 * np.finfo(dtype).eps


@pytest.mark.parametrize("part", [0.06, 0.3, 1.0])
@pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.slow if m == DEAR else ()) for m in SQUARE])
def test_no_solution_is_never_accepted(method: str, part: float) -> None:
    n = 16
    b = np.random.default_rng(0).standard_normal(n * n)
    b -= b.mean()
    b += part * np.linalg.norm(b) / n / np.sqrt(max(1 - part**2, 1e-3))
    result = linear_solve(
        neumann(n).astype(np.float32), b.astype(np.float32), method=method, on_failure="status", max_iter=2000,
        nullspace=None,
    )  # fmt: skip
    assert not result.converged and "accuracy that float32 allows" not in result.message, result.message


@pytest.mark.parametrize("method", ["CG", "MINRES", "scipy-CG", "mixed-CG"])
def test_singular_and_consistent_up_to_rounding(method: str) -> None:
    n = 32
    b = np.random.default_rng(0).standard_normal(n * n)
    b = (b - b.mean()).astype(np.float32)
    A = neumann(n).astype(np.float32)
    assert linear_solve(A, b, method=method).converged
    assert linear_solve(A, b, method=method, nullspace="constant").converged


@pytest.mark.compiled_by_default("CG")
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
@pytest.mark.parametrize("method", ["CG", "MINRES", "biCG-stab(2)"])
def test_a_batch_is_its_systems(method: str, mode: str) -> None:
    """Easy, at the limit, without a solution, zero, NaN."""
    n = 10
    A, singular = laplacian(n).toarray(), neumann(n).toarray()
    spread = 10.0 ** np.linspace(0, 2, n * n)
    matrices = np.stack([np.eye(n * n) * 2, spread[:, None] * A * spread, singular, A, A]).astype(np.float32)
    b = np.ones((5, n * n), np.float32)
    b[3], b[4, 3] = 0, np.nan
    settings = {"method": method, "on_failure": "status", "max_iter": 1500, "nullspace": None}
    together = solve(mode, array(mode, matrices), b, **settings)
    single = "numpy" if mode == "jax-jit" else mode  # which saves a program
    for i in range(5):
        alone = solve(single, array(single, matrices[i : i + 1]), b[i : i + 1], **settings)
        assert together.status[i] == alone.status[0]
        if together.status[i] == Status.CONVERGED:
            assert np.all(together.residual_norm[i] <= together.tolerance[i])
            assert np.all(alone.residual_norm <= alone.tolerance)


@pytest.mark.parametrize("power", [-40, 40])
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "GMRES", "scipy-direct"])
def test_units_play_no_role(method: str, power: int) -> None:
    A, b = single_problem()
    clear_setup_cache()  # with an order that was kept, factors have other rounding errors
    first = linear_solve(A, b, method=method)
    clear_setup_cache()
    other = linear_solve(A * np.float32(2.0**power), b * np.float32(2.0 ** (power // 2)), method=method)
    assert first.iterations == other.iterations and first.status == other.status
    assert other.tolerance == pytest.approx(float(first.tolerance) * 2.0 ** (power // 2), rel=1e-5)


def test_noise_is_not_accepted() -> None:
    """A product that is wrong by a tenth leaves residuals that nothing can be said about."""
    A, b = laplacian(16).astype(np.float32), np.ones(256, np.float32)
    rng = np.random.default_rng(0)

    def noisy(x: np.ndarray) -> np.ndarray:
        y = A @ x
        noise = rng.standard_normal(256)
        return (y + 0.1 * np.linalg.norm(y) / np.linalg.norm(noise) * noise).astype(np.float32)

    result = linear_solve(as_operator(sp.linalg.LinearOperator((256, 256), matvec=noisy, dtype=np.float32)), b,
                          method="biCG-stab(2)", on_failure="status", max_iter=400)  # fmt: skip
    assert not result.converged


def test_the_limit_of_iterations_at_the_limit_of_precision() -> None:
    A, b = single_problem()
    needed = int(linear_solve(A, b, method="CG").iterations)
    result = linear_solve(A, b, method="CG", max_iter=needed)
    assert result.converged and result.at_limit_of_precision and "limit of float32" in result.message


@pytest.mark.parametrize("mode", ["jax-jit", "torch", "tf"])
def test_derivatives_obey_the_same_rule(mode: str) -> None:
    """A backward solve at the limit of single precision does not raise, and is right."""
    A = laplacian(N)
    b = np.ones(N * N)
    want = sp.linalg.spsolve(A.T.tocsc(), 2 * sp.linalg.spsolve(A.tocsc(), b))
    single, total = A.astype(np.float32), choose_backend(library(mode)).sum
    (got,) = gradients(mode, lambda b: total(linear_solve(single, b, method="CG").x ** 2, 0), b.astype(np.float32))
    assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)


@pytest.mark.parametrize("compatible", [True, False])
@pytest.mark.parametrize("method", ["LSMR", "CGLS"])
def test_least_squares_at_the_limit(method: str, compatible: bool) -> None:
    rng = np.random.default_rng(0)
    u, _ = np.linalg.qr(rng.standard_normal((80, 40)))
    v, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    A = u * np.geomspace(1, 1e-3, 40) @ v.T
    b = A @ rng.standard_normal(40) + (0 if compatible else rng.standard_normal(80))
    result = linear_solve(A.astype(np.float32), b.astype(np.float32), method=method, max_iter=4000)
    exact = np.linalg.lstsq(A, b, rcond=None)[0]
    assert result.converged and np.linalg.norm(result.x - exact) <= 4e6 * SINGLE * np.linalg.norm(exact)


@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "GMRES"])
def test_a_function_that_hands_out_its_own_memory(method: str) -> None:
    """The second product must not overwrite the first, with which it is compared."""
    A, b = single_problem()
    memory = np.empty_like(b)

    def function(x: np.ndarray) -> np.ndarray:
        memory[:] = A @ x
        return memory

    found, plain = linear_solve(function, b, method=method), linear_solve(A, b, method=method)
    assert found.iterations == plain.iterations and found.attainable == pytest.approx(float(plain.attainable), rel=1e-3)
    check_to_the_limit(found, laplacian(N), np.ones(N * N), condition=0.5 * N**2)


@pytest.mark.parametrize("method", ["CG", "MINRES", "biCG-stab(2)", "GMRES"])
def test_an_x_that_grew_without_limit_is_no_solution(method: str) -> None:
    """Rounding makes a singular matrix regular: x becomes 1e14 b, and what rounding leaves of its product 0.02 b."""
    for n in (12, 40):
        A = 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)
        ranges = np.stack([A @ np.random.default_rng(seed).standard_normal(n) for seed in range(10)])
        parts = np.array([1e-3, 1e-2, 3e-2])[:, None, None] * np.linalg.norm(ranges, axis=1, keepdims=True)
        outside = ranges + parts / np.sqrt(n)
        for b in (outside, *outside[:, 0]):  # all at once, and some of them alone
            found = linear_solve(sp.csr_array(A), b, method=method, nullspace=None, on_failure="status", axis=-1)
            assert not np.any(found.converged)
