"""A batch of k systems is k single solves: steps, status and x, whatever stands beside.

Of a method that couples the systems: no more steps, and x within the tolerance.
"""

import numpy as np
import pytest

from cells import ONE_SYSTEM, cast, cells, check_true_residual, complex_system_of, fewer_in_torch
from krylix.solvers import METHODS, MixedPrecision
from modes import MODES, solve
from problems import SYSTEMS, make_operator

SCALES = (1.0, 1e6, 1e-3, 0.0)


def system_for(method: str, dtype: str) -> np.ndarray:
    return (complex_system_of(method) if dtype.startswith("complex") else SYSTEMS["definite"]).matrix


@pytest.mark.every_method
@pytest.mark.parametrize(("method", "dtype", "mode"), fewer_in_torch(cells()))
def test_scaled_zero_and_nan_systems(method: str, mode: str, dtype: str) -> None:
    matrix = cast(system_for(method, dtype), dtype)
    rng = np.random.default_rng(5)
    rows = cast(rng.standard_normal((1, len(matrix))), dtype)
    b = np.concatenate([rows * np.asarray(SCALES, rows.dtype)[:, None], np.full_like(rows, np.nan), 3 * rows[:, ::-1]])
    A = make_operator(mode, "dense", matrix)
    result = solve(mode, A, b, method=method, on_failure="status")
    assert result.converged.tolist() == [True, True, True, True, False, True], result.message
    assert result.diverged.tolist() == [False, False, False, False, True, False] and "NaN" in result.message
    assert result.iterations[3] == 0 and result.iterations[4] == 0
    assert not result.x[3].any() and not result.x[4].any()
    single = solve(mode, A, b[0], method=method, **ONE_SYSTEM)
    # Where the condition number counts squared, rounding may decide about the last step in single precision; and so it
    # may in each correction that is computed in single precision.
    mixed = isinstance(METHODS[method], MixedPrecision) and dtype in ("float64", "complex128")
    slack = int(METHODS[method].least_squares and dtype in ("float32", "complex64")) + 2 * mixed
    coupled = METHODS[method].couples_systems
    more = result.iterations[[0, 1, 2]] - single.iterations
    assert more.max() <= max(slack, coupled) and (coupled or more.min() >= -slack)  # units play no role
    rounding = 1e3 * np.finfo(dtype).eps
    close = rounding + (coupled or mixed) * 100 * single.tolerance / np.linalg.norm(b[0])
    np.testing.assert_allclose(result.x[0], single.x, rtol=0, atol=close * np.abs(single.x).max())
    for k, scale in enumerate(SCALES):
        np.testing.assert_allclose(result.x[k], result.x[0] * scale, rtol=2e-2 if scale in (1e6, 1e-3) else 0)
    other = solve(mode, A, b[5], method=method, **ONE_SYSTEM)
    more = result.iterations[5] - other.iterations
    assert more <= max(slack, coupled) and (coupled or more >= -slack)
    b[4] = b[5]
    check_true_residual(solve(mode, A, b, method=method, on_failure="status"), matrix, b)


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("kind", ["dense", "function"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-GMres", "scipy-direct"])
def test_one_matrix_per_system(method: str, mode: str, kind: str) -> None:
    base = SYSTEMS["definite"].matrix
    matrices = np.stack([base, 5 * base + np.eye(len(base)), 1e3 * base])[:, None] * np.ones((1, 2, 1, 1))
    b = np.random.default_rng(6).standard_normal((3, 2, len(base)))
    A = make_operator(mode, kind, matrices)
    batch = {"batch_ndim": 2} if kind == "function" else {}
    result = solve(mode, A, b, method=method, on_failure="status", **batch)
    assert result.converged.all() and result.converged.shape == (3, 2) and result.x.shape == b.shape
    np.testing.assert_allclose(result.x, np.linalg.solve(matrices, b[..., None])[..., 0], rtol=1e-6, atol=1e-12)
    if kind == "dense":
        single = solve(mode, make_operator(mode, kind, matrices[1, 1]), b[1, 1], method=method, **ONE_SYSTEM)
        assert single.iterations == result.iterations[1, 1]


@pytest.mark.compiled_by_default("CG", modes=("tf",))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "method", ["CG", "CG-adaptive", "biCG-stab", "biCG-stab(2)", "biCG-stab(4)", "GMRES(5)", "IDR(4)", "MINRES"]
)
def test_batch_of_one_and_large_batch(method: str, mode: str) -> None:
    """Short rows take other code paths than long ones."""
    matrix = SYSTEMS["definite"].matrix
    b = np.random.default_rng(7).standard_normal((300, len(matrix)))
    A = make_operator(mode, "dense", matrix)
    many, one = solve(mode, A, b, method=method), solve(mode, A, b[17:18], method=method)
    assert one.x.shape == (1, len(matrix)) and one.iterations.shape == (1,)
    assert one.iterations[0] == many.iterations[17]
    np.testing.assert_allclose(many.x[17], one.x[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(many.x, np.linalg.solve(matrix, b.T).T, rtol=1e-6, atol=1e-8)
