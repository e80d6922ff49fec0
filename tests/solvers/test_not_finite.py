"""A matrix with NaN or infinity never converges, also where b asks for nothing: b = 0, or |b| <= atol."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import METHOD_NAMES, in_turn
from krylix import linear_solve, prepare
from krylix.solvers import METHODS, Diverged, Status
from modes import MODES, array, compiled, native_sparse, product, solve, to_numpy

N = 4
GOOD = 4 * np.eye(N) + np.eye(N, k=1) + np.eye(N, k=-1)
B = np.stack([np.zeros(N), np.full(N, 0.1)])
FORMS = ("dense", "csr", "csc", "coo", "dia", "function", "LinearOperator", "native")


def bad(value: float) -> np.ndarray:
    matrix = GOOD.copy()
    matrix[2, 2] = value
    return matrix


def given(mode: str, form: str, matrix: np.ndarray) -> Any:
    if form in ("csr", "csc", "coo", "dia"):
        return getattr(sp, f"{form}_array")(matrix)
    if form == "LinearOperator":
        return spl.aslinearoperator(sp.csr_array(matrix))
    if form == "native":
        return native_sparse(mode, matrix)
    return product(mode, array(mode, matrix)) if form == "function" else array(mode, matrix)


@pytest.mark.every_method
@pytest.mark.compiled_by_default("CG", "direct", modes=("jax-jit",))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [*METHOD_NAMES, "auto"])
def test_every_method(method: str, mode: str) -> None:
    for value in (np.nan, np.inf, -np.inf):
        result = solve(mode, array(mode, bad(value)), B, method=method, atol=1.0, on_failure="status")
        assert (result.status == Status.DIVERGED).all() and not result.converged.any(), value
        assert not result.iterations.any()
        assert not (result.residual_norm <= result.tolerance).any()
    good = solve(mode, array(mode, GOOD), B, method=method, atol=1.0, on_failure="status")  # the same program
    assert good.converged.all() and not good.x.any() and not good.iterations.any()


@np.errstate(invalid="ignore")  # of the user's own product
@pytest.mark.compiled_by_default
@pytest.mark.parametrize(("form", "mode"), in_turn(FORMS, MODES, always=["numpy", "torch"]))
def test_every_form(form: str, mode: str) -> None:
    for value in (np.nan, np.inf):
        for b in B:
            A = given(mode, form, bad(value))
            for method in ("auto", "GMRES"):
                found = linear_solve(A, array(mode, b), method=method, atol=1.0, on_failure="status")
                assert to_numpy(found.diverged), (value, method)


@np.errstate(invalid="ignore")
@pytest.mark.parametrize("form", FORMS)
def test_where_failures_raise(form: str) -> None:
    """Entries that are known are refused at once."""
    with pytest.raises((ValueError, Diverged), match=r"not finite|finite numbers"):
        linear_solve(given("numpy", form, bad(np.nan)), 0 * B[0])
    with pytest.raises((ValueError, Diverged), match=r"not finite|finite numbers"):
        prepare(given("numpy", form, bad(np.inf)), B[0], atol=1.0).solve(0 * B[0])


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", MODES)
def test_one_matrix_of_a_batch(mode: str) -> None:
    A = np.stack([GOOD, bad(np.nan), GOOD])
    for method in ("CG", "direct") if mode in ("numpy", "torch") else ("CG",):
        for b in (np.ones(N), np.zeros(N)):
            mixed = np.array([b, np.zeros(N), np.zeros(N)])
            result = solve(mode, array(mode, A), mixed, method=method, on_failure="status")
            assert result.status.tolist() == [Status.CONVERGED, Status.DIVERGED, Status.CONVERGED]
            np.testing.assert_allclose(result.x, [np.linalg.solve(GOOD, b), 0 * b, 0 * b], rtol=1e-8)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", MODES)
def test_prepared_before_the_matrix_was_known(mode: str) -> None:
    def status(A: Any, b: Any) -> Any:
        return prepare(A, b, method="CG", on_failure="status").solve(0 * b).status

    found = compiled(mode, status)(array(mode, bad(np.nan)), array(mode, B[0]))
    assert int(to_numpy(found)) == Status.DIVERGED


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_zero_costs_one_product(method: str) -> None:
    """And a singular matrix makes no trouble; of checkpoints all are the same."""
    singular = np.diag([1.0, 2.0, 3.0, 0.0])
    settings = METHODS[method]
    for b in (np.zeros(N), np.zeros((2, N))):
        result = linear_solve(singular, b, method=method)
        assert not result.x.any() and not np.any(result.iterations)
        assert np.all(result.function_evaluations <= (3 if settings.least_squares else 1))
    steps = linear_solve(GOOD, np.stack([np.zeros(N), np.ones(N)]), method=method, max_iter=[0, 1, 50])
    assert steps.status[:, 0].tolist() == [Status.CONVERGED] * 3 and not steps.x[:, 0].any()
