"""NumPy and SciPy operands with other libraries: constants to each of them, and x in the type of b."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import as_operator, linear_solve, prepare
from modes import EAGER, array, native_sparse, to_numpy

rng = np.random.default_rng(0)
N = 12
G = rng.standard_normal((N, N))
MATRIX = G @ G.T + 3 * np.eye(N)
B = rng.standard_normal(N)
EXACT = np.linalg.solve(MATRIX, B)
NARROW = sp.csr_array(MATRIX)


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_prepared_on_numpy_solved_with_another_library(mode: str) -> None:
    cells = [("direct", None), ("scipy-direct", None), ("auto", "auto"), ("CG", "jacobi"), ("GMRES", "ilu")]
    kinds = itertools.product((MATRIX, NARROW), cells) if mode == "torch" else ((MATRIX, cell) for cell in cells[:2])
    for A, (method, M) in kinds:
        solver = prepare(A, B, method=method, preconditioner=M)
        x = solver.solve(array(mode, B)).x
        assert type(x) is type(array(mode, B))
        np.testing.assert_allclose(to_numpy(x), EXACT, rtol=1e-7, err_msg=f"{method} {M}")
    line = np.diag([1.0, *([2.0] * (N - 2)), 1.0]) - np.eye(N, k=1) - np.eye(N, k=-1)
    b = B - B.mean()
    singular = prepare(line, b, method="direct").solve(array(mode, b)).x
    np.testing.assert_allclose(to_numpy(singular), np.linalg.pinv(line) @ b, atol=1e-8)


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_x_has_the_type_of_b(mode: str) -> None:
    A, sparse = array(mode, MATRIX), native_sparse(mode, MATRIX)
    for operator, method in ((A, "direct"), (sparse, "CG")) if mode != "jax" else ((A, "direct"),):
        result = linear_solve(operator, B, method=method, history=True)
        for part in (result.x, result.residual, result.history):
            assert type(part) is np.ndarray
        assert type(result.iterations) is int and result.converged is True
        np.testing.assert_allclose(result.x, EXACT, rtol=1e-7)
        result.x[0] = 1.0  # and it is the caller's own
    assert "converged" in result.message
    with pytest.raises(krylix.NotConverged) as caught:
        linear_solve(A, B, method="scipy-CG", max_iter=1)
    assert type(caught.value.result.x) is np.ndarray
    assert type(prepare(A, array(mode, B), method="direct").solve(B).x) is np.ndarray
    assert type(linear_solve(MATRIX, array(mode, B), method="direct").x) is type(array(mode, B))


@pytest.mark.needs("torch")
def test_derivatives_are_not_lost_for_the_type_of_b() -> None:
    A = array("torch", MATRIX).requires_grad_()
    linear_solve(A, B, method="direct").x.sum().backward()
    y = np.linalg.solve(MATRIX, np.ones(N))
    np.testing.assert_allclose(A.grad.numpy(), -np.outer(y, EXACT), rtol=1e-8)


@pytest.mark.needs("jax")
def test_traced_matrices_with_a_numpy_right_hand_side() -> None:
    import jax

    gradient = jax.jit(jax.grad(lambda A: linear_solve(A, B, method="direct").x.sum()))(array("jax", MATRIX))
    np.testing.assert_allclose(gradient, -np.outer(np.linalg.solve(MATRIX, np.ones(N)), EXACT), rtol=1e-8)


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix, sp.bsr_array])
def test_compressed_matrices_with_spare_room(kind: Any, mode: str) -> None:
    """As SciPy's have it before `prune`; what lies in there is not looked at, and stays as it is."""
    A = kind(sp.bsr_array(MATRIX, blocksize=(2, 2))) if kind is sp.bsr_array else kind(MATRIX)
    A.data = np.concatenate([A.data, np.full_like(A.data[:3], np.nan)])
    A.indices = np.concatenate([A.indices, np.full(3, 10**6, A.indices.dtype)])
    room = len(A.data)
    for method in ("CG", "scipy-direct") if mode in ("numpy", "torch") else ("scipy-direct",):
        np.testing.assert_allclose(to_numpy(linear_solve(A, array(mode, B), method=method).x), EXACT, rtol=1e-7)
    assert len(A.data) == len(A.indices) == room
    np.testing.assert_allclose(as_operator(A).toarray(), MATRIX, rtol=1e-14)
