"""An iteration that was chosen ends when it has taken as long as factors would, and these solve the system."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from best_factors import BEST_FACTORS
from cells import in_turn
from frameworks import jax, torch
from krylix import as_operator, linear_solve, preconditioner, prepare, setup_cache
from krylix.solvers import METHODS, plan
from krylix.solvers import choose as table
from krylix.solvers import cost as fill
from krylix.solvers.read.arguments import Request
from krylix.solvers.read.system import read_system
from matrices import in_random_order
from modes import EAGER, array, to_numpy

N = 1600
LATE = re.compile(rf"{BEST_FACTORS} \(after (\S+) had taken (\d+) iterations\)")


def hard(n: int = 40) -> tuple[sp.csr_array, np.ndarray, np.ndarray]:
    """A definite matrix on which scaled conjugate gradients need thousands of iterations, b and x."""
    rng = np.random.default_rng(0)
    plane = in_random_order(pyamg.gallery.poisson((n, n), format="csr"))
    A = sp.csr_array(plane @ sp.diags_array(10.0 ** rng.uniform(-3, 3, n * n)) @ plane)
    x = rng.standard_normal(n * n)
    return A, A @ x, x


@pytest.fixture
def without_cheap_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a matrix on which the choice errs."""
    for limit in ("FEW", "ONE_SOLVE", "AFFORDED", "MANY_SOLVES"):
        monkeypatch.setattr(table, limit, 0)


pytestmark = pytest.mark.usefixtures("without_cheap_factors")


@pytest.mark.parametrize(("history", "mode"), in_turn([False, True], EAGER, always=["numpy"]))
def test_factors_take_over(history: bool, mode: str) -> None:
    A, b, x = hard()
    result = linear_solve(A, array(mode, b), history=history)
    found = LATE.fullmatch(result.method)
    assert found and found[1] == "CG" and plan.LEAST <= int(found[2]) < 3000
    assert result.converged and int(found[2]) < result.iterations < int(found[2]) + 10
    assert found[0] in result.message
    np.testing.assert_allclose(to_numpy(result.x), x, rtol=1e-5, atol=1e-5)
    assert result.function_evaluations > int(found[2])
    if history:
        lines = to_numpy(result.history)
        assert lines.shape == (result.iterations + 1,) and np.isfinite(lines).all()
        np.testing.assert_allclose(lines[0], np.linalg.norm(b))
        assert lines[-1] < 1e-8 * lines[0]


def test_not_from_a_method_that_is_named() -> None:
    A, b, _ = hard()
    result = linear_solve(A, b, method="CG", max_iter=1500, on_failure="status")
    assert result.method == "CG" and result.iterations == 1500


def test_nor_before_the_limit_of_the_user() -> None:
    """Which counts as a failure, as ever."""
    A, b, _ = hard()
    result = linear_solve(A, b, max_iter=20)
    assert result.method == f"{BEST_FACTORS} (after CG had failed)" and result.converged


def test_where_factors_take_longer_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From where it was, and what is counted and recorded is that of both."""
    A, b, _ = hard()
    monkeypatch.setattr(plan, "_EXCHANGES", 1)
    monkeypatch.setattr(plan, "_SET_UP", 1e12)
    A = sp.csr_array(A + 10 * sp.eye_array(N))
    whole = linear_solve(A, b, method="CG", preconditioner="jacobi", history=True)
    result = linear_solve(A, b, history=True)
    assert result.method == "CG" and result.converged
    first = _steps(A, b)
    assert first < whole.iterations <= result.iterations <= whole.iterations + first
    assert result.history.shape == (result.iterations + 1,) and np.isfinite(result.history).all()
    np.testing.assert_allclose(result.history[: first // 2], whole.history[: first // 2], rtol=1e-6)
    np.testing.assert_allclose(A @ result.x, b, atol=1e-6 * np.linalg.norm(b))


def _steps(A: sp.csr_array, b: np.ndarray) -> int:
    """Iterations that scaled conjugate gradients get before the cost of factors is counted."""
    system = read_system(Request(A, b), None)
    first = plan.Rung(METHODS["CG"], preconditioner(A, "jacobi"))
    rungs = plan._rungs(system, first, METHODS["scipy-direct"], as_operator(A), False)
    assert [rung.goes_on for rung in rungs] == [False, True, False, True] and rungs[0].steps
    return rungs[0].steps


def test_where_factors_have_no_room_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    A, b, _ = hard()
    A = sp.csr_array(A + 10 * sp.eye_array(N))
    monkeypatch.setattr(fill, "_memory", lambda: 1e6)
    result = linear_solve(A, b, history=True)
    assert result.method == "CG" and result.converged
    assert result.history.shape == (result.iterations + 1,)


def test_where_factors_fail_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from krylix.solvers.factors import sparse

    def fail(*_: Any) -> Any:
        raise MemoryError

    A, b, _ = hard()
    A = sp.csr_array(A + 10 * sp.eye_array(N))
    monkeypatch.setattr(sparse, "_solver_of", fail)
    result = linear_solve(A, b)
    assert result.method == "CG" and result.converged


def test_of_a_batch_those_that_are_late() -> None:
    """The others are as they were."""
    A, b, x = hard()
    rng = np.random.default_rng(1)
    result = linear_solve(A, np.stack([b, np.zeros(N), rng.standard_normal(N)]), history=True, on_failure="status")
    late = result.method.removeprefix("CG, for 2 of 3 systems ")
    assert LATE.fullmatch(late) and result.converged.all()
    assert result.iterations[1] == 0 and (result.iterations[[0, 2]] > plan.LEAST).all()
    np.testing.assert_allclose(result.x[0], x, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(result.x[1], 0)
    for k in range(3):
        assert np.isfinite(result.history[: result.iterations[k] + 1, k]).all()


def test_general_and_complex_matrices() -> None:
    rng = np.random.default_rng(2)
    A, _, _ = hard(20)
    A = sp.csr_array(A + sp.eye_array(400, k=7) * 50j + sp.eye_array(400, k=-3))
    x = rng.standard_normal(400) + 1j * rng.standard_normal(400)
    result = linear_solve(A, A @ x, rtol=1e-10)
    assert result.converged
    np.testing.assert_allclose(result.x, x, rtol=1e-3, atol=1e-3)


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("known", [True, False])
def test_in_compiled_functions(known: bool) -> None:
    """Of a matrix whose values are arguments the pattern tells; and derivatives are those of the solution."""
    from jax.experimental import sparse

    A, b, x = hard(20)
    matrix = sparse.BCOO.from_scipy_sparse(sp.coo_array(A))

    def total(b: Any, values: Any) -> Any:
        own = A if known else sparse.BCOO((values, matrix.indices), shape=A.shape)
        found = linear_solve(own, b, preconditioner=None if known else "jacobi")
        return (found.x * b).sum(), found

    if known:
        _, found = jax.jit(total)(b, matrix.data)
        assert found.method == "direct"
    else:
        gradient, found = jax.jit(jax.grad(total, has_aux=True))(b, matrix.data)
        np.testing.assert_allclose(gradient, 2 * x, rtol=1e-3, atol=1e-3)
        late = re.search(r"direct \(after (\S+) had taken (\d+) iterations\)", found.method)
        assert late and int(late[2]) < found.iterations < int(late[2]) + 10
        assert found.preconditioner is None and late[0] in found.message
        some = jax.jit(lambda b, values: total(b, values)[1])(np.stack([b, 0 * b]), matrix.data)
        assert some.method.startswith(f"{late[1]}, for 1 of 2 systems ") and some.iterations[1] == 0
    np.testing.assert_allclose(found.x, x, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("jax")
def test_a_program_does_not_go_on_without_its_preconditioner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host has no room for factors, the outcome is that of the iterations in the program."""
    A, b, _ = hard()
    solver = prepare(A, jax.numpy.asarray(b), on_failure="status")
    monkeypatch.setattr(fill, "_memory", lambda: 1e6)
    found = jax.jit(solver.solve)(b)
    steps = solver._plan.rungs[0].steps
    assert found.method == "CG" and not found.converged and int(found.iterations) == steps
    np.testing.assert_allclose(found.residual, b - A @ np.asarray(found.x), atol=1e-9 * np.linalg.norm(b))


@pytest.mark.needs("torch")
def test_with_recorded_derivatives() -> None:
    A, b, x = hard(20)
    b = torch.tensor(b, requires_grad=True)
    found = linear_solve(A, b)
    (found.x @ b).backward()
    np.testing.assert_allclose(found.x.detach(), x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(b.grad, 2 * x, rtol=1e-3, atol=1e-3)


def test_of_a_prepared_solver_the_bound_is_told() -> None:
    A, b, x = hard()
    solver = prepare(A, b)
    text = solver.explain()
    found = re.search(rf"after (\d+) iterations, which take as long: {BEST_FACTORS}", text)
    assert found and f"if it fails: {BEST_FACTORS}" in text
    result = solver.solve(b)
    late = LATE.fullmatch(result.method)
    assert late and late[2] == found[1]
    np.testing.assert_allclose(result.x, x, rtol=1e-5, atol=1e-5)


def test_repeated_solves() -> None:
    A, b, x = hard()
    with setup_cache(True):
        for _ in range(3):
            np.testing.assert_allclose(linear_solve(A, b).x, x, rtol=1e-5, atol=1e-5)


def test_a_callback_that_stops_is_obeyed() -> None:
    A, b, _ = hard()
    result = linear_solve(A, b, callback=lambda state: state.iterations >= 5)
    assert result.method == "CG" and result.status.name == "STOPPED"
