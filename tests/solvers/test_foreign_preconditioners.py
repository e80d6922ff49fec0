"""Objects of SciPy and pyamg as preconditioners, against the same given as a matrix of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from frameworks import jax, torch
from krylix import as_operator, choose_backend, linear_solve, prepare
from krylix.solvers.preconditioners import to_preconditioner
from krylix.sparse import Layout, UnsupportedOperation
from modes import array, solve, to_numpy

N = 30


def general(dtype: str = "float64") -> sp.csc_array:
    matrix = sp.diags_array([-1.0, 3.0, -1.7, 0.4], offsets=[-1, 0, 1, 5], shape=(N, N)).astype(dtype)
    if dtype.startswith("c"):
        matrix = matrix + 1j * sp.diags_array([0.5, -0.3], offsets=[-2, 1], shape=(N, N))
    return sp.csc_array(matrix, dtype=dtype)


def symmetric() -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson((8, 8), format="csr"))


def operator_of(M: Any, A: Any, b: np.ndarray) -> Any:
    bk = choose_backend(b)
    return to_preconditioner(M, as_operator(A), bk, Layout.of(bk, b, 0), b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("factorised", ["float32", "float64", "complex128"])
def test_all_forms_of_factors(factorised: str, dtype: str) -> None:
    if factorised.startswith("c") and not dtype.startswith("c"):
        pytest.skip("a complex inverse of a real matrix")
    lu = spl.splu(general(factorised))
    inverse = np.linalg.inv(general(factorised).toarray())
    M = operator_of(lu, general(dtype), np.ones(N, dtype))
    assert M.kind == "SuperLU" and M.dtype == dtype and M.memory == lu.nnz
    eps = 100 * np.finfo("float32" if "float32" in (dtype, factorised) or dtype == "complex64" else "float64").eps
    x = np.random.default_rng(0).standard_normal((3, N)).astype(dtype) * (1 + (2j if dtype.startswith("c") else 0))
    for form, matrix in ((M, inverse), (M.T, inverse.T), (M.conj(), inverse.conj()), (M.H, inverse.conj().T)):
        for rows in (x[:1], x):
            np.testing.assert_allclose(form.apply(rows), rows @ matrix.T, rtol=eps, atol=10 * eps)


@pytest.mark.compiled_by_default("biCG-stab(2)", modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf"])
@pytest.mark.parametrize("method", ["biCG-stab(2)", "scipy-biCG", "LSMR"])
def test_perfect_factors(method: str, mode: str) -> None:
    if method == "LSMR":
        with pytest.raises(ValueError, match="takes no preconditioner"):
            solve(mode, general(), np.ones(N), method=method, preconditioner=spl.splu(general()))
        return
    result = solve(mode, general(), np.ones(N), method=method, preconditioner=spl.splu(general()))
    assert result.iterations == 1
    np.testing.assert_allclose(general() @ result.x, np.ones(N), rtol=1e-8)


def test_incomplete_factors_and_shapes() -> None:
    A = general()
    incomplete = spl.spilu(A, drop_tol=0.2, fill_factor=1)
    plain, better = (linear_solve(A, np.ones(N), method="GMRES", preconditioner=M) for M in (None, incomplete))
    assert better.iterations < plain.iterations and better.preconditioner == "SuperLU"
    with pytest.raises(ValueError, match=r"shape \(30, 30\); expected \(64, 64\)"):
        linear_solve(symmetric(), np.ones(64), preconditioner=incomplete)
    assert "SuperLU" in repr(prepare(A, np.ones(N), method="GMRES", preconditioner=incomplete))


@pytest.mark.compiled_by_default("CG", modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf"])
@pytest.mark.parametrize("method", ["CG"])
def test_hierarchy(method: str, mode: str) -> None:
    A, b = symmetric(), np.ones((2, 64))
    hierarchy = pyamg.ruge_stuben_solver(A, max_coarse=5)
    plain = solve(mode, A, b, method=method)
    result = solve(mode, A, b, method=method, preconditioner=hierarchy)
    assert result.converged.all() and (result.iterations < plain.iterations).all()
    np.testing.assert_allclose(A @ result.x.T, b.T, atol=1e-8)


def test_asymmetric_cycles_are_no_symmetric_ones() -> None:
    A, b = symmetric(), np.ones(64)
    forward = ("gauss_seidel", {"sweep": "forward"})
    hierarchy = pyamg.ruge_stuben_solver(A, max_coarse=5, presmoother=forward, postsmoother=forward)
    M = operator_of(hierarchy, A, b)
    assert M.hermitian is False and M.kind == "pyamg"
    with pytest.raises(ValueError, match="needs a symmetric preconditioner"):
        linear_solve(A, b, method="CG", preconditioner=hierarchy)
    with pytest.raises(UnsupportedOperation, match="that of pyamg's cycle is not known"):
        linear_solve(A, b, method="scipy-biCG", preconditioner=hierarchy)
    result = linear_solve(A, b, method="biCG-stab", preconditioner=hierarchy)
    with pytest.raises(UnsupportedOperation, match="symmetric smoothing"):
        result.vjp(b)


@pytest.mark.needs("torch")
def test_gradients() -> None:
    A, forward = symmetric(), ("gauss_seidel", {"sweep": "forward"})
    exact = np.linalg.solve(A.toarray().T, np.ones(64))
    for M, method in ((spl.splu(A.tocsc()), "biCG-stab"), (pyamg.ruge_stuben_solver(A, max_coarse=5), "CG")):
        b = torch.ones(64, dtype=torch.float64, requires_grad=True)
        linear_solve(A, b, method=method, preconditioner=M).x.sum().backward()
        np.testing.assert_allclose(to_numpy(b.grad), exact, rtol=1e-7)
    hierarchy = pyamg.ruge_stuben_solver(A, max_coarse=5, presmoother=forward, postsmoother=forward)
    b = torch.ones(64, dtype=torch.float64, requires_grad=True)
    x = linear_solve(A, b, method="biCG-stab", preconditioner=hierarchy).x
    with pytest.raises(UnsupportedOperation, match="symmetric smoothing"):
        x.sum().backward()


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_no_reverse_derivative_in_jax() -> None:
    A, forward = symmetric(), ("gauss_seidel", {"sweep": "forward"})
    hierarchy = pyamg.ruge_stuben_solver(A, max_coarse=5, presmoother=forward, postsmoother=forward)

    def total(b: Any) -> Any:
        return linear_solve(A, b, method="biCG-stab", preconditioner=hierarchy).x.sum()

    with pytest.raises((TypeError, NotImplementedError, ValueError), match=r"(?i)transpose"):
        jax.grad(total)(array("jax", np.ones(64)))
