"""What iterative refinement does beyond the tests that all methods share: single precision inside, double outside."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import Status, linear_solve
from krylix.solvers import CG, BiCGStab, MixedPrecision, find_method
from modes import MODES, array, compiled, library, solve
from problems import SYSTEMS, make_operator

pytestmark = pytest.mark.compiled_by_default()

MATRIX = SYSTEMS["definite"].matrix


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["mixed-CG", "mixed-biCG-stab(2)"])
def test_reaches_double_precision(method: str, mode: str, complex_: bool) -> None:
    system = SYSTEMS["complex Hermitian" if complex_ else "definite"]
    b = system.right_hand_side((2,), seed=1)
    for kind in ("dense", "function") if not complex_ else ("scipy",):
        batch = {"batch_ndim": 1} if kind == "function" else {}
        result = solve(mode, make_operator(mode, kind, system.matrix), b, method=method, rtol=1e-12, **batch)
        assert result.converged.all() and result.x.dtype == b.dtype
        assert np.all(np.linalg.norm(b - result.x @ system.matrix.T, axis=1) <= 2e-12 * np.linalg.norm(b, axis=1))


def laplace(mode: str, seen: list[str]) -> Any:
    """A function without arrays of its own, which notes what it is called with."""

    def f(x: Any) -> Any:
        seen.append(str(x.dtype).replace("torch.", "").replace("<dtype: '", "").replace("'>", ""))
        return 3 * x - 0.5 * x[..., ::-1] if mode != "torch" else 3 * x - 0.5 * x.flip(-1)

    return f


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf", "tf-function"])
def test_products_inside_are_in_single_precision(mode: str) -> None:
    seen: list[str] = []
    f = laplace(mode, seen)
    linear_solve(f, array(mode, np.ones(8)), method="CG")  # the test of linearity is done
    b = array(mode, np.linspace(1, 2, 8))
    plain = compiled(mode, lambda b: linear_solve(f, b, method="mixed-CG", rtol=1e-12))
    seen.clear()
    result = plain(b)
    assert "float32" in seen
    if mode in ("numpy", "torch", "tf"):
        inner, outer = seen.count("float32"), seen.count("float64")
        assert inner == int(result.iterations) > outer - 3
        assert int(result.function_evaluations) == len(seen) - 2  # the evaluations at zero and at ones


@pytest.mark.parametrize("mode", MODES)
def test_functions_that_close_over_double_precision(mode: str) -> None:
    """Libraries mix two precisions, or refuse: the answer is the same."""
    matrix = array(mode, MATRIX)
    f = make_operator(mode, "function", MATRIX)
    result = solve(mode, f, np.arange(12.0), method="mixed-CG", rtol=1e-12)
    np.testing.assert_allclose(result.x, np.linalg.solve(MATRIX, np.arange(12.0)), rtol=1e-10, atol=1e-10)
    assert matrix.shape == (12, 12) and library(mode)


def test_preconditioners_are_cast_too() -> None:
    seen: list[np.dtype] = []

    def M(r: np.ndarray) -> np.ndarray:
        seen.append(r.dtype)
        return r / np.diag(MATRIX)

    for preconditioner in (M, "jacobi", np.linalg.inv(MATRIX)):
        result = linear_solve(sp.csr_array(MATRIX), np.ones(12), method="mixed-CG", preconditioner=preconditioner)
        assert result.converged
    assert np.dtype(np.float32) in seen


def test_single_precision_systems_are_solved_by_the_inner_method() -> None:
    b = np.arange(12, dtype=np.float32)
    mixed, plain = (solve("numpy", MATRIX.astype(np.float32), b, method=m) for m in ("mixed-CG", "CG"))
    assert mixed.x.dtype == np.float32 and mixed.iterations == plain.iterations
    np.testing.assert_allclose(mixed.x, plain.x, rtol=1e-5)


@pytest.mark.parametrize("mode", ["numpy", "torch", "jax-jit", "tf-function"])
@pytest.mark.parametrize("scale", [1e-300, 1e-60, 1e-30, 1e-25, 1e30, 1e60, 1e300])
def test_sizes_beyond_single_precision(scale: float, mode: str) -> None:
    """Right-hand sides of any size are solved; entries of A that float32 does not have are reported.

    1e-30 times what is left of b is at the end of its range: some programs flush that to zero.
    """
    b, exact = np.arange(12.0), np.linalg.solve(MATRIX, np.arange(12.0))
    result = solve(mode, make_operator(mode, "dense", MATRIX), scale * b, method="mixed-CG")
    np.testing.assert_allclose(result.x / scale, exact, rtol=1e-8, atol=1e-9)
    result = solve(mode, make_operator(mode, "dense", scale * MATRIX), b, method="mixed-CG", on_failure="status")
    if 1e-26 < scale < 1e38 or result.converged:
        assert result.converged and 1e-31 < scale < 1e38
        np.testing.assert_allclose(result.x * scale, exact, rtol=1e-8, atol=1e-9)
    else:
        limit = [Status.MAX_ITER] if scale > 1e-31 else []
        assert result.status in (Status.BREAKDOWN, Status.STAGNATED, Status.DIVERGED, *limit)
        assert np.isfinite(result.x).all()


@pytest.mark.parametrize("method", ["mixed-CG", "mixed-biCG-stab(2)"])
@pytest.mark.parametrize("condition", [1e4, 1e6, 1e9, 1e14])
def test_ill_conditioned_systems_end_with_a_true_status(condition: float, method: str) -> None:
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))[0]
    matrix = (q * np.geomspace(1, condition, 30)) @ q.T
    matrix = (matrix + matrix.T) / 2
    b = np.random.default_rng(1).standard_normal(30)
    result = solve("numpy", matrix, b, method=method, rtol=1e-8, max_iter=3000, on_failure="status")
    residual = np.linalg.norm(b - matrix @ result.x)
    assert (residual <= 1.01e-8 * np.linalg.norm(b)) == bool(result.converged)
    assert result.residual_norm == pytest.approx(residual, rel=1e-3, abs=1e-14 * condition)
    if condition == 1e4:
        assert result.converged, result.message


def test_names_and_settings() -> None:
    assert find_method("Mixed-biCG-stab(3)") == MixedPrecision(BiCGStab(3))
    assert MixedPrecision(CG(), 1e-3).name == "mixed-CG" and MixedPrecision().needs_hermitian
    for name in ("mixed-direct", "mixed-scipy-CG", "mixed-mixed-CG", "mixed-block-CG"):
        with pytest.raises(ValueError, match="needs an inner method of the library that iterates"):
            find_method(name)
    with pytest.raises(ValueError, match="No method is called 'nonsense'"):
        find_method("mixed-nonsense")
    for rtol in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="inner_rtol must lie between 0 and 1"):
            MixedPrecision(CG(), rtol)
