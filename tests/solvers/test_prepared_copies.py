"""A prepared solver solves the matrix as it was, whatever its owner writes to it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import in_turn
from krylix import prepare
from modes import array, to_numpy

A = 6 * np.eye(4) + np.random.default_rng(0).standard_normal((4, 4))
B = np.arange(1.0, 5)
X = np.linalg.solve(A, B)
METHODS = ("GMRES", "LSMR", "direct", "scipy-direct", "auto")


def sparse(kind: str) -> Any:
    matrix = getattr(sp, kind)(A)
    return matrix, matrix.data


def dense(order: str) -> Any:
    matrix = np.array(A, order=order)
    return matrix, matrix


# Name -> a matrix, and its numbers to write to.
OWNED: dict[str, Callable[[], Any]] = {
    **{k: partial(sparse, k) for k in ("csr_array", "csc_matrix", "coo_array", "dia_array", "bsr_array")},
    "dense": partial(dense, "C"),
    "Fortran": partial(dense, "F"),
}


@pytest.mark.compiled_by_default
@pytest.mark.parametrize(("kind", "mode"), in_turn(OWNED, ["numpy", "jax", "torch", "tf"], always=["numpy", "torch"]))
def test_a_matrix_that_is_written_to(kind: str, mode: str) -> None:
    b = array(mode, B)
    for method in METHODS if mode in ("numpy", "torch") else ("direct", "GMRES"):
        matrix, data = OWNED[kind]()
        solver = prepare(matrix, b, method=method)
        data *= 2
        np.testing.assert_allclose(to_numpy(solver.solve(b).x), X, rtol=1e-5, err_msg=method)
        updated = solver.update(matrix)
        data *= -3
        np.testing.assert_allclose(to_numpy(updated.solve(b).x), X / 2, rtol=1e-5, err_msg=method)


def test_each_matrix_of_a_list() -> None:
    matrices, b = [sp.csr_array(A), sp.csr_array(A)], np.stack([B, B])
    for method in METHODS:
        solver = prepare(matrices, b, method=method)
        matrices[1].data *= 2
        np.testing.assert_allclose(solver.solve(b).x, [X, X], rtol=1e-5)
        matrices[1].data /= 2


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_that_is_written_to(method: str) -> None:
    """It has its derivatives, whatever was recorded while the solver was made."""
    import torch

    matrix, b = torch.tensor(A, requires_grad=True), torch.tensor(B)
    with torch.no_grad():
        solver = prepare(matrix, b, method=method)
        matrix *= 2
    x = solver.solve(b).x
    np.testing.assert_allclose(x.detach(), X, rtol=1e-5)
    x.sum().backward()
    np.testing.assert_allclose(matrix.grad, -np.outer(np.linalg.inv(A).sum(0), X), rtol=1e-4)
