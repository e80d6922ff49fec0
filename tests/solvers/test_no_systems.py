"""No systems have no solutions, of the right shape: for every method and preconditioner; likewise no unknowns."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import METHOD_NAMES, in_turn
from krylix import linear_solve, prepare
from krylix.solvers import METHODS, PRECONDITIONERS
from modes import MODES, array, compiled, library, to_numpy

N = 3
A = 4 * np.eye(N) + np.eye(N, k=1) + np.eye(N, k=-1)
FORMS = ("dense", "csr", "LinearOperator", "function", "batch")


def given(mode: str, form: str) -> tuple[Any, dict[str, Any]]:
    """A, and how its batch axes are told."""
    if form == "function":
        return (lambda x: 4 * x), {"batch_ndim": 1}
    made = {"csr": sp.csr_array(A), "LinearOperator": spl.aslinearoperator(sp.csr_array(A))}
    return made.get(form, array(mode, np.zeros((0, N, N)) if form == "batch" else A)), {}


def check(result: Any, shape: tuple[int, ...]) -> None:
    assert tuple(result.x.shape) == tuple(result.residual.shape) == shape
    for name in ("status", "converged", "diverged", "iterations", "residual_norm", "tolerance", "attainable"):
        assert tuple(getattr(result, name).shape) == shape[:-1], name


@pytest.mark.compiled_by_default("CG", "direct", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [*METHOD_NAMES, "auto"])
def test_no_systems(method: str, mode: str) -> None:
    none = array(mode, np.zeros((0, N)))
    for form in FORMS:
        M, how = given(mode, form)
        check(compiled(mode, partial(linear_solve, M, method=method, **how))(none), (0, N))
        if library(mode) == "numpy":
            check(linear_solve(M, none, method=method, x0=none, history=True, **how), (0, N))
            steps = linear_solve(M, none, method=method, max_iter=[1, 2], **how)
            assert steps.x.shape == (2, 0, N) and "no systems" in steps.message
            check(prepare(M, none, method=method, **how).solve(none), (0, N))
    if library(mode) in ("numpy", "torch"):
        solver = prepare(array(mode, A), none, method=method)
        check(solver.solve(none), (0, N))
        np.testing.assert_allclose(
            to_numpy(solver.solve(array(mode, np.ones((2, N)))).x)[1], np.linalg.solve(A, np.ones(N)), rtol=1e-4
        )


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize(("kind", "mode"), in_turn(PRECONDITIONERS, MODES, always=["numpy", "torch"]))
def test_no_systems_with_a_preconditioner(kind: str, mode: str) -> None:
    none = array(mode, np.zeros((0, N)))
    for form in ("dense", "function", "batch"):
        M, how = given(mode, form)
        solve = compiled(mode, partial(linear_solve, M, method="CG", preconditioner=kind, **how))
        check(solve(none), (0, N))


@pytest.mark.compiled_by_default("CG", "direct", modes=("jax-jit",))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", [*METHOD_NAMES, "auto"])
def test_no_unknowns(method: str, mode: str) -> None:
    """Solved by x of no numbers, in no iterations."""
    none = array(mode, np.zeros((2, 0)))
    batch = [array(mode, np.zeros((2, 0, 0)))] if method == "auto" or not METHODS[method].couples_systems else []
    for M, how in (
        (array(mode, np.zeros((0, 0))), {}),
        (lambda x: 4 * x, {"batch_ndim": 1}),
        *((M, {}) for M in batch),
    ):
        result = compiled(mode, partial(linear_solve, M, method=method, **how))(none)
        if library(mode) == "numpy":
            check(prepare(M, none, method=method, **how).solve(none), (2, 0))
        check(result, (2, 0))
        assert to_numpy(result.converged).all() and not to_numpy(result.iterations).any()


@pytest.mark.parametrize("method", ["auto", "CG", "direct", "scipy-direct", "LSMR"])
def test_prepared_for_an_empty_batch(method: str) -> None:
    solver = prepare(np.eye(4) * 2, np.zeros((0, 4)), batch_ndim=1, method=method)
    assert solver.solve(np.zeros((0, 4))).x.shape == (0, 4)
    np.testing.assert_allclose(solver.solve(np.ones((3, 4))).x, 0.5)


def test_derivatives() -> None:
    result = linear_solve(A, np.zeros((0, N)), method="direct")
    gradient = result.vjp(np.zeros((0, N)))
    assert gradient.b.shape == (0, N) and not gradient.A.any() and result.jvp(b=np.zeros((0, N))).shape == (0, N)
    assert linear_solve(np.ones((5, N)), np.zeros((0, 5)), method="LSMR").x.shape == (0, N)
    assert linear_solve(A, np.zeros((N, 0)), axis=0, method="direct").x.shape == (N, 0)
    assert prepare(A, np.zeros((N, 0)), axis=-2).solve(np.ones((N, 2))).x.shape == (N, 2)


@pytest.mark.needs("torch")
def test_derivatives_in_torch() -> None:
    import torch

    matrix, b = torch.tensor(A, requires_grad=True), torch.zeros((0, N), dtype=torch.float64, requires_grad=True)
    for method in ("CG", "direct", "auto"):
        linear_solve(matrix, b, method=method).x.sum().backward()
        assert b.grad.shape == (0, N) and not matrix.grad.any()


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_derivatives_in_jax() -> None:
    import jax

    none = array("jax", np.zeros((0, N)))
    for method in ("CG", "direct"):
        found = jax.grad(lambda A, m=method: linear_solve(A, none, method=m).x.sum())(array("jax", A))
        assert found.shape == (N, N) and not np.asarray(found).any()
