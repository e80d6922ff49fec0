"""What a result holds: history, checkpoints, counts, dtypes; and the switches that must change nothing else."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import DTYPES, METHOD_NAMES, cast, later_where_compiled, methods_and_modes
from krylix import linear_solve
from krylix.solvers import METHODS, MixedPrecision, find_method
from modes import EAGER, MODES, array, compiled, solve, to_numpy
from problems import SYSTEMS, make_operator

MATRIX = SYSTEMS["definite"].matrix
# those with a line of history for every iteration
OWN = tuple(m for m in METHOD_NAMES if not METHODS[m].on_host and not isinstance(METHODS[m], MixedPrecision))
KRYLOV = ("CG", "CG-adaptive", "biCG-stab", "biCG-stab(2)", "GMRES(20)", "FGMRES(20)", "IDR(4)", "MINRES")


def hard(n: int = 40) -> np.ndarray:
    return np.diag(np.linspace(1, 300, n)) + np.eye(n, k=1) + np.eye(n, k=-1)


@pytest.mark.compiled_by_default("CG", "scipy-CG", eagerly=True)
@pytest.mark.parametrize(("method", "mode"), methods_and_modes(METHOD_NAMES))
def test_history_changes_nothing(method: str, mode: str) -> None:
    A, b = make_operator(mode, "dense", MATRIX), np.random.default_rng(14).standard_normal((3, 12))
    b[1] *= 1e4
    plain, recorded = (solve(mode, A, b, method=method, history=h) for h in (False, True))
    assert plain.history is None
    assert np.array_equal(plain.x, recorded.x) and plain.iterations.tolist() == recorded.iterations.tolist()
    history, steps = recorded.history, recorded.iterations
    np.testing.assert_allclose(history[0], np.linalg.norm(b, axis=1), rtol=1e-12)
    for k in range(3):
        assert np.isnan(history[steps[k] + 1 :, k]).all()
        last = history[steps[k], k]
        assert last <= recorded.tolerance[k] * (1 + 1e-6)
        if method in OWN:
            assert np.isfinite(history[: steps[k] + 1, k]).all()
            # the recurrence and the true residual agree as long as nothing drifts
            assert abs(last - recorded.residual_norm[k]) <= 1e-10 * history[0, k]


@pytest.mark.compiled_by_default("CG", modes=("jax-jit",))
@pytest.mark.parametrize(
    ("method", "mode"),
    [*methods_and_modes([*KRYLOV, "scipy-CG", "scipy-direct"]), *later_where_compiled("direct")],
)
def test_checkpoints(method: str, mode: str) -> None:
    """Each checkpoint is what a solve with that limit returns, and the rest goes on as if not stopped."""
    A, b = make_operator(mode, "dense", hard()), np.random.default_rng(15).standard_normal((2, 40))
    b[1] = hard() @ np.eye(40)[3]
    limits = (2, 5, 200)
    eager = mode if mode in EAGER else "numpy"  # a limit is a program each
    own = make_operator(eager, "dense", hard())
    result = solve(mode, A, b, method=method, max_iter=limits, on_failure="status", history=True)
    assert result.x.shape == (3, 2, 40) and result.converged.shape == (3, 2) and result.history.shape[0] == 3
    for i, limit in enumerate(limits):
        single = solve(eager, own, b, method=method, max_iter=limit, on_failure="status")
        assert single.iterations.tolist() == result.iterations[i].tolist()
        assert single.status.tolist() == result.status[i].tolist()
        assert single.function_evaluations.tolist()[0] <= result.function_evaluations[i].tolist()[0]
        np.testing.assert_allclose(result.x[i], single.x, rtol=1e-9, atol=1e-11)
    assert result.converged[2].all()
    if mode in EAGER:
        plain = solve(mode, A, b, method=method, max_iter=limits, on_failure="status")
        assert plain.history is None and np.array_equal(plain.x, result.x)
        assert solve(mode, A, b, method=method, max_iter=(200,)).x.shape == (1, 2, 40)


@pytest.mark.parametrize("method", [*KRYLOV, "biCG-stab(4)"])
@pytest.mark.parametrize("start", [False, True])
def test_function_evaluations_are_those_made(method: str, start: bool) -> None:
    matrix, calls = hard(), [0]

    def A(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return matrix @ x

    x0 = np.linspace(0, 1, 40) if start else None
    linear_solve(A, np.ones(40), x0=x0, method=method)  # seen once: the test of linearity is done
    calls[0] = 0
    result = linear_solve(A, np.ones(40), x0=x0, method=method)
    assert result.function_evaluations == calls[0] - 2  # at zero for affine functions, at ones for singular ones
    per_step = find_method(method).products_made(None)
    at_start = find_method(method).products_at_start
    assert result.function_evaluations == per_step * result.iterations + at_start + 1 + start


# Where programs are compiled, by default single precision: it is the one that can get lost.
DTYPES_IN_TURN = {"CG": ("float32",), "direct": ("complex64",)}


@pytest.mark.compiled_by_default("CG", "direct", eagerly=True)
@pytest.mark.parametrize(
    ("method", "mode", "dtype"),
    [
        pytest.param(method, mode, dtype, marks=pytest.mark.slow if later else ())
        for method in ("CG", "biCG-stab(2)", "direct", "scipy-CG")
        for mode in MODES
        for dtype in DTYPES
        for later in [mode not in ("numpy", "torch") and dtype not in DTYPES_IN_TURN.get(method, DTYPES)]
    ],
)
def test_dtypes_follow_the_inputs(method: str, mode: str, dtype: str) -> None:
    matrix = cast(SYSTEMS["complex Hermitian" if dtype.startswith("complex") else "definite"].matrix, dtype)
    b = np.ones((2, 12), dtype)
    real = np.empty(0, dtype).real.dtype
    result = solve(mode, make_operator(mode, "dense", matrix), b, method=method, history=True)
    assert result.x.dtype == result.residual.dtype == np.dtype(dtype)
    assert result.residual_norm.dtype == result.tolerance.dtype == result.history.dtype == real
    assert result.iterations.dtype == result.status.dtype == np.int32 and result.converged.dtype == bool


@pytest.mark.parametrize("mode", EAGER)
def test_mixed_dtypes(mode: str) -> None:
    """The width is that of b; complex if A is; integers become floats."""
    double, single = make_operator(mode, "dense", MATRIX), make_operator(mode, "dense", MATRIX.astype(np.float32))
    b = np.ones(12)
    assert solve(mode, double, b.astype(np.float32), method="CG").x.dtype == np.float32
    assert solve(mode, single, b, method="CG").x.dtype == np.float64
    assert solve(mode, sp.csr_array(MATRIX), b.astype(np.float32), method="CG").x.dtype == np.float32
    assert solve(mode, make_operator(mode, "dense", MATRIX + 0j), b, method="CG").x.dtype == np.complex128
    whole = solve(mode, double, np.arange(12), method="CG")
    assert whole.x.dtype == np.float64
    np.testing.assert_allclose(whole.x, np.linalg.solve(MATRIX, np.arange(12)), rtol=1e-8)


@pytest.mark.compiled_by_default("CG")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-direct", "scipy-GMres"])
def test_matrix_offset(method: str, mode: str) -> None:
    """A constant added to every entry, which makes the singular Neumann matrix regular."""
    matrix, b = SYSTEMS["constant null vector"].matrix, np.linspace(-1, 2, 12)
    kinds = {"jax-jit": ("function",), "tf": ("scipy",), "tf-function": ("dense",)}
    for kind in kinds.get(mode, ("dense", "scipy", "function")):
        result = solve(
            mode, make_operator(mode, kind, matrix), b, method=method, matrix_offset=0.25, on_failure="status"
        )
        assert result.converged, f"{kind}: {result.message}"
        np.testing.assert_allclose(result.x, np.linalg.solve(matrix + 0.25, b), rtol=1e-6, atol=1e-7)


@pytest.mark.compiled_by_default("CG")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-direct", "scipy-MINRES"])
def test_nullspace(method: str, mode: str) -> None:
    """The solution has no part in the given vectors; b is consistent."""
    system = SYSTEMS["constant per region"]
    b, basis = system.right_hand_side((2,), seed=16), np.kron(np.eye(2), np.ones(6))
    exact = b @ np.linalg.pinv(system.matrix).T
    result = solve(
        mode, make_operator(mode, "dense", system.matrix), b, np.ones((2, 12)), method=method, nullspace=basis
    )
    np.testing.assert_allclose(result.x, exact, rtol=1e-6, atol=1e-7)
    path = SYSTEMS["constant null vector"]
    b = path.right_hand_side(seed=17)
    result = solve(mode, make_operator(mode, "dense", path.matrix), b, method=method, nullspace="constant")
    np.testing.assert_allclose(result.x, np.linalg.pinv(path.matrix) @ b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("method", ["CG", "GMRES", "MINRES"])
def test_complex_null_vector(method: str) -> None:
    """Of a Hermitian matrix: z, and not its conjugate."""
    rng = np.random.default_rng(3)
    Q, _ = np.linalg.qr(rng.standard_normal((8, 8)) + 1j * rng.standard_normal((8, 8)))
    A = (Q * np.arange(8)) @ Q.conj().T
    b = A @ rng.standard_normal(8)
    result = linear_solve(A, b, x0=np.ones(8, complex), method=method, nullspace=Q[:, 0][None])
    np.testing.assert_allclose(result.x, np.linalg.pinv(A, rcond=1e-10) @ b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_tolerances_per_system(mode: str) -> None:
    A, b = make_operator(mode, "dense", hard()), np.ones((3, 40))
    rtol = np.array([1e-2, 1e-6, 1e-10])
    result = solve(mode, A, b, method="CG", rtol=rtol)
    assert (np.diff(result.iterations) > 0).all()
    np.testing.assert_allclose(result.tolerance, rtol * np.sqrt(40), rtol=1e-12)
    if mode in EAGER:
        loose = solve(mode, A, b[0], method="CG", rtol=0.0, atol=0.5)
        assert loose.residual_norm <= 0.5 == loose.tolerance


@pytest.mark.compiled_by_default("CG")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "scipy-CG"])
def test_warm_start_saves_iterations(method: str, mode: str) -> None:
    A, b = make_operator(mode, "dense", hard()), np.ones(40)
    exact = np.linalg.solve(hard(), b)
    cold, warm = (solve(mode, A, b, x0, method=method) for x0 in (0 * b, exact * (1 + 1e-8)))  # one program
    assert warm.converged and warm.iterations < cold.iterations


@pytest.mark.parametrize("mode", MODES)
def test_progress(mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, float, float]] = []
    A, b = make_operator(mode, "dense", hard()), 100 * np.ones(40)
    plain = solve("numpy", hard(), b, method="CG")
    result = solve(mode, A, b, method="CG", progress=lambda *values: seen.append(values))
    np.testing.assert_allclose(result.x, plain.x, rtol=1e-12)
    assert sorted(k for k, _, _ in seen) == list(range(1, int(result.iterations) + 1))
    last = max(seen)
    assert last[1] <= last[2] == pytest.approx(float(result.tolerance)) and min(seen)[1] > last[2]
    solve(mode, A, b, method="CG", progress=True)
    assert "CG [" in capfd.readouterr().err


@pytest.mark.merge
def test_result_is_a_container() -> None:
    jax = pytest.importorskip("jax")
    A = array("jax", MATRIX)

    def step(x: Any, _: Any) -> tuple[Any, Any]:
        result = linear_solve(A, x, method="CG")
        return result.x, result

    _, results = compiled("jax-jit", lambda b: jax.lax.scan(step, b, None, length=3))(array("jax", np.ones(12)))
    assert results.x.shape == (3, 12) and results.iterations.shape == (3,) and results.method == "CG"
    expected = np.linalg.matrix_power(np.linalg.inv(MATRIX), 3) @ np.ones(12)
    np.testing.assert_allclose(to_numpy(results.x[2]), expected, rtol=1e-8)
    mapped = jax.vmap(lambda b: linear_solve(A, b, method="biCG-stab(2)"))(array("jax", np.eye(12)[:4]))
    np.testing.assert_allclose(to_numpy(mapped.x), np.linalg.inv(MATRIX)[:4], rtol=1e-6, atol=1e-9)
    assert mapped.converged.all() and mapped.residual_norm.shape == (4,)


@pytest.mark.parametrize("backend", ["numpy", "jax", "torch", "tensorflow"])
def test_default_backend_for_lists(backend: str) -> None:
    with krylix.choose_backend(backend):
        result = linear_solve([[2.0, 0], [0, 4]], [2.0, 4.0], method="CG")
    assert krylix.choose_backend(result.x).name == backend and to_numpy(result.x).tolist() == [1.0, 1.0]


@pytest.mark.compiled_by_default("CG", "scipy-CG")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-CG"])
def test_no_iterations_at_all(method: str, mode: str) -> None:
    A, x0 = make_operator(mode, "dense", MATRIX), np.linspace(0, 1, 12)
    result = solve(mode, A, np.ones(12), x0, method=method, max_iter=0, on_failure="status")
    assert result.iterations == 0 and not result.converged and np.array_equal(result.x, x0)
    assert result.residual_norm == pytest.approx(np.linalg.norm(np.ones(12) - MATRIX @ x0))


@pytest.mark.parametrize("mode", MODES)
def test_preconditioner_made_with_numpy_serves_every_library(mode: str) -> None:
    A = sp.csr_array(MATRIX)
    M = krylix.preconditioner(A, "jacobi")
    result = solve(mode, A, np.ones(12, np.float32), method="CG", preconditioner=M)
    assert result.converged and result.x.dtype == np.float32
