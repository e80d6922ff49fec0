"""`time_limit`: the solve ends after the iteration in which the time is over, as a failure that says so."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import NotConverged, Status, linear_solve, prepare
from krylix.solvers import METHODS
from krylix.solvers.plan import Rung
from modes import EAGER, MODES, array, compiled, solve, to_numpy

N = 8
MATRIX = np.diag(np.linspace(1, 30, N)) + 0.5 * (np.eye(N, k=1) + np.eye(N, k=-1))
B = np.cos(np.arange(N)) + 2
SOON = 1e-9  # over when the first iteration is
ITERATIVE = [name for name, method in METHODS.items() if not method.factorises]


@pytest.mark.parametrize("method", ITERATIVE)
def test_it_ends_after_an_iteration(method: str) -> None:
    result = linear_solve(MATRIX, B, method=method, time_limit=SOON, on_failure="status")
    first = linear_solve(MATRIX, B, method=method, callback=lambda _: True)
    if first.converged:  # in the iteration in which the time was over
        assert result.converged
        return
    assert result.status == Status.TIME_LIMIT and not result.converged and result.iterations == first.iterations
    np.testing.assert_array_equal(result.x, first.x)
    assert "reached the time limit of 1e-09 s" in result.message and "raise time_limit" in result.message


@pytest.mark.compiled_by_default("CG", "scipy-CG")
@pytest.mark.parametrize(
    ("method", "mode"), [*(("CG", mode) for mode in (*EAGER, "torch-compile")), *(("scipy-CG", mode) for mode in MODES)]
)
def test_every_library(method: str, mode: str) -> None:
    """A limit that is not reached changes nothing."""
    A, slow = array(mode, MATRIX), lambda _: time.sleep(0.02)
    result = solve(mode, A, B, method=method, time_limit=0.01, callback=slow, on_failure="status")
    assert result.status == Status.TIME_LIMIT and 1 <= result.iterations < N
    assert float(result.residual_norm) == pytest.approx(np.linalg.norm(B - MATRIX @ result.x), rel=1e-9)
    enough = solve(mode, A, B, method=method, time_limit=1000.0)
    assert enough.converged
    np.testing.assert_array_equal(enough.x, solve(mode, A, B, method=method, history=True).x)


@pytest.mark.compiled_by_default("CG", "scipy-CG", modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("method", ["CG", "scipy-CG"])
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_the_time_of_a_program_begins_when_it_runs(method: str, mode: str) -> None:
    """A limit that is not reached changes nothing: the iterations are those that NumPy takes without one."""
    waits = [0.0]

    def run(b: Any) -> Any:
        A = array(mode, MATRIX)
        return linear_solve(
            A, b, method=method, time_limit=0.5, callback=lambda _: time.sleep(waits[0]), on_failure="status"
        )

    program, b = compiled(mode, run), array(mode, B)
    for wait in (0, 0.6):
        time.sleep(wait)
        result = program(b)
        assert int(result.status) == Status.CONVERGED
        assert int(result.iterations) == linear_solve(MATRIX, B, method=method).iterations
    waits[0] = 0.3
    late = program(b)
    assert int(late.status) == Status.TIME_LIMIT and 1 <= int(late.iterations) < N
    assert float(late.residual_norm) == pytest.approx(np.linalg.norm(B - MATRIX @ to_numpy(late.x)), rel=1e-9)


def test_it_is_a_failure() -> None:
    with pytest.raises(NotConverged, match="time limit of 1e-09 s after 1 iteration:") as error:
        linear_solve(MATRIX, B, method="CG", time_limit=SOON)
    assert error.value.result.status == Status.TIME_LIMIT and error.value.result.iterations == 1
    with pytest.warns(RuntimeWarning, match="time limit"):
        linear_solve(MATRIX, B, method="CG", time_limit=SOON, on_failure="warn")
    assert np.isnan(linear_solve(MATRIX, B, method="CG", time_limit=SOON, on_failure="nan").x).all()
    batch = linear_solve(MATRIX, np.stack([B, 0 * B]), method="CG", time_limit=SOON, on_failure="status")
    assert batch.status.tolist() == [Status.TIME_LIMIT, Status.CONVERGED]


def test_the_answer_of_the_last_iteration_counts() -> None:
    assert linear_solve(MATRIX, B, method="direct", time_limit=SOON).converged
    assert linear_solve(MATRIX, B, time_limit=SOON).converged


def test_no_other_method_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the ladder: neither after an attempt that the time has ended, nor after another failure when it is over."""
    solver = prepare(sp.csr_array(MATRIX), B, method="CG", max_iter=3)
    plan = solver._plan  # as where it was chosen
    solver = replace(solver, _plan=replace(plan, rungs=(*plan.rungs, Rung(METHODS["scipy-direct"]))))
    assert "scipy-direct (after CG had failed)" in solver.solve(B).method
    assert solver.solve(B, time_limit=1000.0).converged
    with pytest.raises(NotConverged, match=r"^CG reached the time limit"):
        solver.solve(B, time_limit=SOON)
    monkeypatch.setattr("krylix.solvers.run.watch.StepReport._is_late", lambda *_: False)
    with pytest.raises(NotConverged, match=r"^CG reached the limit of iterations"):
        solver.solve(B, time_limit=SOON)


@pytest.mark.parametrize("given", [0, -1.0, float("nan"), "1", True, [1.0], 1j, np.complex128(1), -(10**400)])
def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="time_limit must be"):
        linear_solve(MATRIX, B, method="CG", time_limit=given)
    with pytest.raises((TypeError, ValueError), match="time_limit must be"):
        prepare(MATRIX, B).solve(B, time_limit=given)


@pytest.mark.parametrize(
    "given", [1000, np.float32(1000), 10**400, float("inf"), np.float32("inf"), np.longdouble("1e4000")]
)
def test_integers_and_more_than_a_float_holds(given: Any) -> None:
    assert linear_solve(MATRIX, B, method="CG", time_limit=given).converged
    assert prepare(MATRIX, method="CG").solve(B, time_limit=given).converged
