"""Every method, in every mode and dtype, on every kind of system it is made for: the answer, and the claim about it."""

import numpy as np
import pytest

from cells import ONE_SYSTEM, cast, cells, check_true_residual, fewer_in_torch, suits
from modes import MODES, solve
from problems import OPERATORS, SYSTEMS, has_operator, make_operator
from tiers import COMPILING


@pytest.mark.every_method
@pytest.mark.parametrize(("method", "dtype", "mode"), fewer_in_torch(cells()))
def test_solution(method: str, mode: str, dtype: str) -> None:
    """All systems of this method and dtype; one compiled function each."""
    names = [name for name in SYSTEMS if suits(method, SYSTEMS[name], dtype)]
    assert names
    for name in names if mode == "numpy" else names[:: max(1, len(names) // 3)]:
        system = SYSTEMS[name]
        matrix, b = cast(system.matrix, dtype), cast(system.right_hand_side(seed=1), dtype)
        result = solve(mode, make_operator(mode, "dense", matrix), b, method=method, **ONE_SYSTEM)
        assert result.converged, f"{name}: {result.message}"
        assert result.x.dtype == np.dtype(dtype)
        check_true_residual(result, system.matrix, b)
        if not system.singular:
            exact = np.linalg.solve(matrix.astype(np.complex128), b)
            limit = 30 * np.linalg.cond(system.matrix) * result.tolerance / np.linalg.norm(b)
            assert np.linalg.norm(result.x - exact) <= limit * np.linalg.norm(exact), name


# The product is the same for all; the rest on demand.
METHODS_FOR_OPERATORS = [
    *("CG", "scipy-biCG"),
    *(pytest.param(m, marks=pytest.mark.slow) for m in ("auto", "biCG-stab(2)", "direct", "scipy-direct")),
]


KINDS = [
    pytest.param(
        kind, dtype, mode, marks=pytest.mark.slow if mode in COMPILING and (dtype == "float32") ^ k % 2 else ()
    )
    for k, kind in enumerate(OPERATORS)
    for mode in MODES
    for dtype in ("float32", "complex128")
]
"""Both dtypes; where a program is compiled, one in turn."""


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize(("kind", "dtype", "mode"), KINDS)
@pytest.mark.parametrize("method", METHODS_FOR_OPERATORS)
def test_operators(method: str, mode: str, kind: str, dtype: str) -> None:
    if not has_operator(mode, kind):
        pytest.skip(f"{mode} has no {kind} matrices")
    name = ("complex Hermitian" if method == "CG" else "complex") if dtype.startswith("complex") else "definite"
    if method != "CG" and not dtype.startswith("complex"):
        name = "nonsymmetric"
    system = SYSTEMS[name]
    matrix, b = cast(system.matrix, dtype), cast(system.right_hand_side((2,), seed=2), dtype)
    A = make_operator(mode, kind, matrix)
    batch = {"batch_ndim": 1} if kind == "function" else {}
    result = solve(mode, A, b, method=method, on_failure="status", **batch)
    assert result.converged.all(), result.message
    check_true_residual(result, matrix, b)
