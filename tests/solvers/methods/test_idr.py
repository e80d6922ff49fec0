"""IDR(s): what the tests of all methods do not see."""

from typing import Any

import numpy as np
import pytest

from cells import check_true_residual
from krylix import linear_solve
from krylix.solvers import IDR
from modes import MODES, solve
from problems import make_operator

pytestmark = pytest.mark.compiled_by_default()


def nonsymmetric(n: int, complex_: bool = False) -> np.ndarray:
    rng = np.random.default_rng(5)
    matrix = rng.standard_normal((n, n)) / np.sqrt(n) + 2 * np.eye(n)
    return matrix + 1j * rng.standard_normal((n, n)) / np.sqrt(n) if complex_ else matrix


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("s", [1, 3, 12, 20])
def test_ends_after_n_and_n_over_s_products(s: int, mode: str) -> None:
    """12 unknowns; more shadow vectors than these are not used."""
    matrix = nonsymmetric(12, complex_=True)
    b = np.ones((2, 12), complex)
    b[1] = matrix[:, 3]
    result = solve(mode, make_operator(mode, "dense", matrix), b, method=f"IDR({s})", rtol=1e-9, on_failure="status")
    assert result.converged.all() and (result.iterations <= 12 + 12 // min(s, 12)).all()
    check_true_residual(result, matrix, b)


def test_more_shadow_vectors_need_fewer_products() -> None:
    """On convection problems, where GMRES without restarts needs the fewest of all; some b make a second round."""
    n = 120
    matrix = 2.1 * np.eye(n) - 1.6 * np.eye(n, k=-1) - 0.5 * np.eye(n, k=1)
    b = np.random.default_rng(2).standard_normal((5, n))
    steps = [np.median(linear_solve(matrix, b, method=m).iterations) for m in ("IDR(1)", "IDR(4)", f"GMRES({n})")]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("mode", MODES)
def test_eigenvalues_on_the_imaginary_axis(mode: str) -> None:
    """<r, A r> = 0: the minimising step alone would be zero, and the lengthened one is not."""
    rotation = np.kron(np.diag([1.0, 2, 3, 4]), np.array([[0.0, 1], [-1, 0]]))
    b = np.arange(1.0, 9)
    for method in ("IDR(1)", "IDR(4)"):
        result = solve(mode, make_operator(mode, "dense", rotation), b, method=method)
        check_true_residual(result, rotation, b)


def test_breakdown_tries_other_shadow_vectors() -> None:
    """A zero matrix is one breakdown per attempt; x stays what it was."""
    start = np.arange(5.0)
    settings = {"method": "IDR(2)", "on_failure": "status", "nullspace": None}
    result = linear_solve(np.zeros((5, 5)), np.ones(5), x0=start, **settings)
    assert not result.converged and result.iterations == 3 and np.array_equal(result.x, start)


@pytest.mark.parametrize("s", [0, -1, 2.0, True])
def test_settings_are_checked(s: Any) -> None:
    with pytest.raises(ValueError, match="integer s >= 1"):
        IDR(s)
