"""Tolerances that mean nothing are refused, where their values are known; where not, the solve ends as diverged."""

from typing import Any

import numpy as np
import pytest

from krylix import linear_solve, precision, prepare
from modes import EAGER, array, compiled, library, to_numpy

A, B = np.diag([1.0, 2.0, 3.0]), np.ones((2, 3))
RTOL = [np.inf, -np.inf, np.nan, True, False, 5.0, 1, 1.0, -1e-9, "1e-3", 1j, [0.1, 2.0], [0.1, np.nan], [True, False],
        np.full(3, 0.1), np.array([1e-3 + 0j, 1e-3]), np.float32(np.inf), np.bool_(True), object()]  # fmt: skip
ATOL = [np.inf, np.nan, True, -1.0, "0", 1j, [1.0, np.inf], [True, True], np.ones((1, 2)), np.float64(np.nan)]
GIVEN = [*(("rtol", value) for value in RTOL), *(("atol", value) for value in ATOL)]


@pytest.mark.parametrize(("name", "value"), GIVEN, ids=lambda value: str(value)[:20])
def test_refused(name: str, value: Any) -> None:
    for call in (lambda **kw: linear_solve(A, B, **kw), lambda **kw: prepare(A, B, **kw)):
        with pytest.raises((ValueError, TypeError), match=f"^{name} (must be|has the shape)"):
            call(**{name: value})


def test_a_number_that_was_taken_before_says_nothing_of_others() -> None:
    """Python calls 1.0 and True equal; of several precisions each has a tolerance of its own."""
    assert linear_solve(A, B, atol=1.0).converged.all()
    with pytest.raises(TypeError, match=r"^atol must be a number"):
        linear_solve(A, B, atol=True)
    for dtype in (np.float32, np.float64, np.float32):
        result = linear_solve(A.astype(dtype), B.astype(dtype), method="CG")
        assert result.tolerance.dtype == result.x.dtype == dtype
        with precision(32):
            assert linear_solve(A, B, method="CG").x.dtype == np.float32


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", EAGER)
def test_arrays_of_the_library(mode: str) -> None:
    for wrong in ([0.1, np.inf], [0.1, 1.0], [True, False], [1j, 0]):
        with pytest.raises((ValueError, TypeError), match=r"^rtol must be"):
            linear_solve(array(mode, A), array(mode, B), rtol=array(mode, np.array(wrong)))
    found = linear_solve(array(mode, A), array(mode, B), rtol=array(mode, np.array([1e-3, 0.9])), atol=np.float64(0))
    assert to_numpy(found.converged).all()


@pytest.mark.needs("jax")
@pytest.mark.parametrize("value", [np.inf, 1.0, np.nan, -1.0])
def test_not_known_before_the_program_runs(value: float) -> None:
    program = _program()
    status, x = program(array("jax", B), array("jax", np.array([1e-6, value])))
    assert status.tolist() == [1, 5]
    np.testing.assert_allclose(x[0], B[0] / np.diag(A), rtol=1e-6)


_programs: list[Any] = []


def _program() -> Any:
    """Compiled once."""

    def solve(b: Any, rtol: Any) -> Any:
        result = linear_solve(array("jax", A), b, rtol=rtol, method="CG", on_failure="status")
        return result.status, result.x

    if not _programs:
        _programs.append(compiled("jax-jit", solve))
    return _programs[0]


@pytest.mark.needs("jax")
def test_of_lineax() -> None:
    pytest.importorskip("lineax")
    from krylix.adapters.lineax import LineaxSolver

    assert library("jax-jit") == "jax"
    for wrong in ({"rtol": np.inf}, {"rtol": True}, {"rtol": 1.0}, {"atol": np.inf}, {"atol": True}, {"rtol": np.nan}):
        with pytest.raises((ValueError, TypeError), match="must be"):
            LineaxSolver(**wrong)
