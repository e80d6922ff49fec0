"""Sums, multiples and successions of preconditioners, against the same of dense matrices."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import in_turn
from krylix import Preconditioner, as_operator, linear_solve, preconditioner
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.preconditioners import coarse_correction, multiplicative
from modes import EAGER, array, compiled, library, product, to_numpy

N = 36
close = {"rtol": 0, "atol": 1e-12}


def symmetric() -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson((6, 6), format="csr"))


def general(dtype: str = "float64") -> sp.csr_array:
    A = symmetric() + 0.4 * sp.eye_array(N, k=1) + sp.diags_array(np.linspace(0, 3, N))
    return sp.csr_array(A + 0.3j * sp.eye_array(N, k=-2) if dtype == "complex128" else A)


def as_dense(M: Any) -> np.ndarray:
    return to_numpy(M.dense())


def pieces(mode: str, A: sp.csr_array) -> tuple[Any, Preconditioner, Preconditioner]:
    matrix = as_operator(A, array(mode, np.ones(N, A.dtype)))
    return matrix, preconditioner(matrix, "jacobi"), preconditioner(matrix, "block-jacobi", block_size=4)


@pytest.mark.parametrize(("mode", "dtype"), in_turn(EAGER, ["float64", "complex128"]))
def test_formulas(mode: str, dtype: str) -> None:
    A = general(dtype)
    matrix, first, second = pieces(mode, A)
    M1, M2, dense = as_dense(first), as_dense(second), A.toarray()
    both = M1 + M2 - M2 @ dense @ M1
    three = both + M1.conj().T - M1.conj().T @ dense @ both
    for M, exact in (
        (first + second, M1 + M2),
        (first + second + first, 2 * M1 + M2),
        (sum([first, second]), M1 + M2),
        (0.25 * first, M1 / 4),
        (second * np.float32(-2), -2 * M2),
        (first + 2 * (second + first), 3 * M1 + 2 * M2),
        (multiplicative(matrix, first, second), both),
        (multiplicative(matrix, first, second, symmetric=True), three),
        (multiplicative(A, first, second, first + second), both + (M1 + M2) @ (np.eye(N) - dense @ both)),
    ):
        np.testing.assert_allclose(as_dense(M), exact, **close)
        np.testing.assert_allclose(as_dense(M.T), exact.T, **close)
        np.testing.assert_allclose(as_dense(M.H), exact.conj().T, **close)
        np.testing.assert_allclose(to_numpy(M.diagonal()), np.diag(exact), **close)
        rows = array(mode, np.random.default_rng(0).standard_normal((3, N)).astype(dtype))
        np.testing.assert_allclose(to_numpy(M(rows)), to_numpy(rows) @ exact.T, **close)
    if dtype == "complex128":
        np.testing.assert_allclose(as_dense((2 + 1j) * first), (2 + 1j) * M1, **close)
        np.testing.assert_allclose(as_dense(((2 + 1j) * first).H), (2 - 1j) * M1.conj().T, **close)


@pytest.mark.parametrize("kind", ["multiplicative", "deflated"])
def test_made_of_values_of_its_own(kind: str) -> None:
    """Those that multiply with A do so with the one that they were made for."""
    A = sp.csr_array(sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 2], shape=(30, 30)))
    if kind == "deflated":
        M = preconditioner(A, "cluster", clusters=5, form="deflated")
    else:
        M = multiplicative(A, preconditioner(A, "jacobi"), preconditioner(A, "ssor"))
    before = M.dense()
    A.data[:] *= 2
    np.testing.assert_array_equal(M.dense(), before)


def test_names_costs_and_facts() -> None:
    A = symmetric()
    matrix, first, second = pieces("numpy", A)
    total = first + second
    assert total.kind == "jacobi + block-jacobi" and "jacobi + block-jacobi preconditioner" in repr(total)
    assert (total.memory, total.work, total.entries) == (N + 4 * N, N + 4 * N, A.nnz)
    assert total.hermitian and (0.5 * total).hermitian and (0.5 * total).kind == "0.5 * (jacobi + block-jacobi)"
    one_after = multiplicative(matrix, total, second)
    assert one_after.kind == "(jacobi + block-jacobi), then block-jacobi" and one_after.hermitian is None
    assert one_after.work == 9 * N + A.nnz and one_after.memory == 9 * N
    again = multiplicative(matrix, second, first, symmetric=True)
    assert again.kind == "block-jacobi, then jacobi, then block-jacobi" and again.hermitian is True
    assert again.work == 9 * N + 2 * A.nnz
    assert multiplicative(general(), second, first, symmetric=True).hermitian is None
    other = preconditioner(general(), "block-jacobi", block_size=4)
    assert other.hermitian is False
    assert (first + other).hermitian is False and (other + other).hermitian is None
    lost = 1j * preconditioner(A.astype(complex), "block-jacobi", block_size=4)
    assert lost.hermitian is False


def test_symmetric_successions_are_definite() -> None:
    A = symmetric()
    matrix, first, second = pieces("numpy", A)
    columns = np.kron(np.eye(4), np.ones((9, 1)))
    Q = coarse_correction(A, columns)
    b = np.ones(N)
    for M in (
        multiplicative(matrix, 0.5 * first, second, symmetric=True),
        multiplicative(matrix, second, Q, symmetric=True),
        multiplicative(matrix, Q, first, symmetric=True),
        multiplicative(matrix, 0.5 * first, symmetric=True),
        first + Q,
    ):
        values = np.linalg.eigvalsh((as_dense(M) + as_dense(M).T) / 2)
        assert M.hermitian is not False and values.min() > 0
        result = linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-10)
        np.testing.assert_allclose(A @ result.x, b, atol=1e-8)


def test_anything_that_tells_its_size_is_a_piece() -> None:
    A = symmetric()
    first = preconditioner(A, "jacobi")
    factors, hierarchy = spl.spilu(sp.csc_matrix(A)), pyamg.ruge_stuben_solver(sp.csr_matrix(A), max_coarse=5)
    linear = spl.aslinearoperator(sp.csr_array(np.eye(N) / 3))
    function = as_operator(lambda r: r / 5, np.ones(N))
    for piece, kind in (
        (factors, "SuperLU"), (hierarchy, "pyamg"), (linear, "user's matrix"), (function, "user's matrix"),
        (np.eye(N), "user's matrix"), (sp.eye_array(N), "user's matrix"),
    ):  # fmt: skip
        total = first + piece
        exact = as_dense(first) + np.array([(total.inner.second.apply(e[None]))[0] for e in np.eye(N)]).T  # type: ignore[attr-defined]
        assert total.kind == f"jacobi + {kind}"
        np.testing.assert_allclose(as_dense(total), exact, **close)
        if not isinstance(piece, np.ndarray):
            assert multiplicative(A, piece, first).kind == f"{kind}, then jacobi"
    np.testing.assert_allclose(as_dense(first + function), as_dense(first) + np.eye(N) / 5, **close)
    np.testing.assert_allclose(as_dense(np.eye(N) + first), as_dense(first) + np.eye(N), **close)
    with pytest.raises(TypeError, match=r"A function was given as a part .*as_operator\(function, like=b\)"):
        first + (lambda r: r)


@pytest.mark.parametrize("mode", EAGER)
def test_factors_and_hierarchies_are_preconditioners(mode: str) -> None:
    """`preconditioner(x)` of what SciPy factorised or pyamg built, also in other libraries."""
    A, b = symmetric(), np.ones(N)
    factors = spl.splu(sp.csc_matrix(A))
    for M in (preconditioner(factors), preconditioner(factors, like=array(mode, b))):
        assert M.kind == "SuperLU" and M.memory == factors.nnz
        result = linear_solve(A, array(mode, b), method="CG", preconditioner=M)
        np.testing.assert_allclose(A @ to_numpy(result.x), b, rtol=1e-5)
        assert int(result.iterations) == 1
    own = preconditioner(as_operator(A, array(mode, b)), "jacobi") + preconditioner(factors)
    np.testing.assert_allclose(to_numpy(own @ array(mode, b)), factors.solve(b) + b / 4, rtol=1e-12)
    assert preconditioner(pyamg.smoothed_aggregation_solver(sp.csr_matrix(A), max_coarse=5)).hermitian is not None
    with pytest.raises(ValueError, match="is a preconditioner by itself; got kind='jacobi' too"):
        preconditioner(factors, "jacobi")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda M, A: M + preconditioner(np.eye(3), "jacobi"),
            ValueError,
            r"shapes \(36, 36\), \(3, 3\) were",
        ),
        (lambda M, A: M * np.ones(3), TypeError, "multiplied by array.*expected a number"),
        (lambda M, A: M * 0, ValueError, "expected a finite number that is not 0"),
        (lambda M, A: M * float("nan"), ValueError, "multiplied by nan"),
        (lambda M, A: 1j * M, TypeError, "expected a real number"),
        (lambda M, A: multiplicative(A, M), ValueError, "1 preconditioners were given .*; expected two"),
        (lambda M, A: multiplicative(np.eye(3), M, M), ValueError, "were combined; expected square ones of one size"),
    ],
)
def test_refusals(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(preconditioner(symmetric(), "jacobi"), symmetric())


def test_systems_must_agree() -> None:
    dense = symmetric().toarray()
    two, three = (preconditioner(np.array([dense] * k), "jacobi") for k in (2, 3))
    one = preconditioner(dense, "jacobi")
    assert (one + two).systems == (two + one).systems == 2
    np.testing.assert_allclose(as_dense(one + two), np.array([np.eye(N) / 2] * 2), **close)
    with pytest.raises(ValueError, match="for 2 and 3 systems"):
        two + three


@pytest.mark.needs("torch", "jax")
def test_two_libraries_are_refused() -> None:
    ours, theirs = (preconditioner(array(mode, np.eye(3)), "jacobi") for mode in ("jax", "torch"))
    with pytest.raises(TypeError, match="operator on arrays of"):
        ours + theirs


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "torch-compile", "tf", "tf-function"])
def test_composed_in_a_compiled_function(mode: str) -> None:
    A = symmetric()
    pattern, b = as_operator(A, array(mode, np.ones(N))), array(mode, np.linspace(1, 2, N))

    def solve(values: Any, b: Any) -> Any:
        matrix = pattern.with_values(values)
        M = 0.5 * preconditioner(matrix, "jacobi") + preconditioner(matrix, "cluster", clusters=4)
        return linear_solve(matrix, b, method="CG", preconditioner=M, rtol=1e-10).x

    function = solve if mode == "torch-compile" else compiled(mode, solve)  # operators are made between its graphs
    x = to_numpy(function(pattern.values, b))
    np.testing.assert_allclose(A @ x, to_numpy(b), rtol=1e-8)


@pytest.mark.parametrize("kind", [k for k in PRECONDITIONERS if k != "jacobi"])
def test_can_be_pickled(kind: str) -> None:
    A = symmetric()
    settings = {"block_size": 4} if kind == "block-jacobi" else {}
    M = preconditioner(A, kind, **settings)
    for each in (M, M + M, multiplicative(A, M, M)):
        again = pickle.loads(pickle.dumps(each))
        np.testing.assert_array_equal(again @ np.ones(N), each @ np.ones(N))
        assert repr(again) == repr(each)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=() if k in ("jacobi", "ilu", "multigrid") else pytest.mark.merge) for k in PRECONDITIONERS],
)
def test_an_argument_of_a_compiled_function(kind: str) -> None:
    import jax

    A, b = symmetric(), array("jax", np.linspace(1, 2, N))
    settings = {"block_size": 4} if kind == "block-jacobi" else {}
    matrix = as_operator(A, b)
    M = preconditioner(matrix, kind, **settings)
    each = [M, 2 * M + M, multiplicative(matrix, M, M)]
    apply = jax.jit(lambda M, r: M @ r)
    for one in each:
        np.testing.assert_allclose(to_numpy(apply(one, b)), to_numpy(one @ b), rtol=1e-12)
        batch = jax.vmap(lambda r, one=one: one @ r)(np.stack([b, 2 * b]))
        np.testing.assert_allclose(to_numpy(batch[1]), 2 * to_numpy(one @ b), rtol=1e-12)


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("kind", list(PRECONDITIONERS))
def test_every_kind_takes_a_function(kind: str, mode: str) -> None:
    A = sp.csr_array(symmetric()) if kind == "ic" else general()
    f, b = product(mode, array(mode, A.toarray())), array(mode, np.random.default_rng(0).standard_normal(N))
    settings = {"block_size": 4} if kind == "block-jacobi" else {}
    M = preconditioner(f, kind, like=b, **settings)
    assert M.kind == kind and M.bk.name == library(mode)
    exact = as_dense(preconditioner(A, kind, **settings)) @ to_numpy(b)
    np.testing.assert_allclose(to_numpy(M @ b), exact, rtol=0, atol=1e-9 * np.abs(exact).max())
