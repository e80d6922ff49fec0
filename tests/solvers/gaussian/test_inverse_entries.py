"""Entries of the inverse from factors, against NumPy's `inv`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from gaussian_matrices import MATRICES, cancelling, closed, grid_laplacian, scattered
from krylix import UnsupportedOperation, prepare
from krylix.solvers.factors.superlu import factors_of
from krylix.solvers.gaussian.factorised import FactorisedMatrix
from krylix.solvers.gaussian.selected_inverse import (
    SelectedInverse,
    filled_pattern,
    parents_of,
    postorder,
    sorted_columns,
    supernodes,
)
from modes import EAGER, array, compiled, to_numpy


def close(found: Any, A: sp.csr_array, expected: np.ndarray) -> None:
    """Up to what the condition number leaves."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(np.linalg.inv(A.toarray())).max())


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("name", MATRICES)
def test_against_numpy(name: str, form: str) -> None:
    A = MATRICES[name]
    n, X = A.shape[0], np.linalg.inv(A.toarray())
    solver = prepare(A if form == "sparse" else A.toarray())
    close(solver.inverse_diagonal(), A, X.diagonal())
    rows, columns = A.tocoo().coords
    close(solver.inverse_entries(columns, rows), A, X[columns, rows])
    some = np.random.default_rng(0).integers(0, n, (2, 3, 5))
    found = solver.inverse_entries(*some)
    assert found.shape == (3, 5)
    close(found, A, X[some[0], some[1]])


@pytest.mark.parametrize("indefinite", [False, True])
def test_different_units(indefinite: bool) -> None:
    """Of the rows and columns: each entry of the inverse, and the determinant, to the digits of one unit."""
    S = scattered(40, 0.1) if indefinite else grid_laplacian(8, 5)
    r, c = 10.0 ** np.arange(-20, 20), 10.0 ** np.arange(20, -20, -1.0)
    c = c if indefinite else r
    X, (sign, log) = np.linalg.inv(S.toarray()), np.linalg.slogdet(S.toarray())
    solver = prepare(
        sp.csr_array(sp.diags_array(r) @ S @ sp.diags_array(c)),
        method="GMRES",
        preconditioner=None,
        on_failure="status",
    )
    found = solver.inverse_entries(np.arange(40)[:, None], np.arange(40)) * c[:, None] * r
    np.testing.assert_allclose(found, X, atol=1e-12 * np.abs(X).max())
    det = solver.logdet()
    assert det.sign == sign
    np.testing.assert_allclose(det.logabsdet, log + np.log(r).sum() + np.log(c).sum(), rtol=1e-12)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("name", ["grid", "3-d", "line", "large grid", "cancelling", "Hermitian", "apart", "complex"])
def test_recursion(name: str, hermitian: bool) -> None:
    """All entries within the pattern of the factors, and which are not; from L alone where that is enough."""
    A = sp.csc_array(MATRICES[name])
    n, X, matrix = A.shape[0], np.linalg.inv(A.toarray()), FactorisedMatrix(A)
    if hermitian and matrix.definite is None:
        pytest.skip("L alone is for definite matrices")
    lu = matrix.definite if hermitian else factors_of(A)
    i, j = (k.ravel() for k in np.indices((n, n)))
    found, missing = SelectedInverse(lu, hermitian).entries(i, j)
    np.testing.assert_allclose(found[~missing], X[i, j][~missing], atol=1e-12 * np.abs(X).max())
    inside = (abs(lu.L) + abs(lu.U)).toarray()[lu.perm_r[j], lu.perm_c[i]] != 0
    assert not missing[inside].any()


def test_places_outside_of_the_factors() -> None:
    """Many, so that no column is solved for alone."""
    A = MATRICES["large grid"]
    n = A.shape[0]
    X = np.linalg.inv(A.toarray())
    np.testing.assert_allclose(
        prepare(A).inverse_entries(np.arange(n)[:, None], np.arange(n)), X, atol=1e-12 * np.abs(X).max()
    )


@pytest.mark.parametrize("name", ["grid", "large grid", "scattered", "cancelling", "apart"])
def test_supernodes(name: str) -> None:
    """Rows of a column are rows of its parent, subtrees are neighbours, and blocks hold all entries of the factors."""
    lu = factors_of(sp.csc_array(MATRICES[name]))
    pattern = filled_pattern(sorted_columns(lu.L), sorted_columns(lu.U))
    order = postorder(pattern)
    if order is not None:
        pattern = sp.csc_array(pattern[order][:, order])
        pattern.sort_indices()
        assert postorder(pattern) is None
    parents = parents_of(pattern)
    below = [set(pattern.indices[pattern.indptr[j] : pattern.indptr[j + 1]].tolist()) for j in range(pattern.shape[0])]
    for j, parent in enumerate(parents):
        assert parent < 0 or below[j] - {int(parent)} <= below[parent]
    nodes = supernodes(pattern)
    for s in range(len(nodes.rows)):
        places = set(nodes.places(s).tolist())
        assert all(below[j] <= places for j in range(nodes.first[s], nodes.first[s + 1]))
        assert nodes.parents[s] == -1 or nodes.parents[s] > s
        if nodes.parents[s] >= 0:
            assert set(nodes.rows[s].tolist()) <= set(nodes.places(int(nodes.parents[s])).tolist())


def test_any_order_of_the_columns() -> None:
    """Factors in an order that is no postorder."""
    rng = np.random.default_rng(2)
    A = sp.csc_array(grid_laplacian(9, 9))[rng.permutation(81)][:, rng.permutation(81)]
    lu = sp.linalg.splu(sp.csc_array(A), permc_spec="NATURAL")
    each = np.arange(81)
    found, missing = SelectedInverse(lu, False).entries(each, each)
    X = np.linalg.inv(A.toarray()).diagonal()
    np.testing.assert_allclose(found[~missing], X[~missing], rtol=1e-10)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    "mode",
    [
        *("numpy", "jax-jit", "torch", "tf-function"),
        *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("jax", "tf", "torch-compile")),
    ],
)
def test_every_library(mode: str) -> None:
    m = scattered(300, 0.01)
    A: Any = krylix.as_operator(m, array(mode, np.zeros(300))).to("csr")

    def entries(values: Any) -> Any:
        solver = prepare(A.with_values(values), method="GMRES", preconditioner=None)
        return solver.inverse_diagonal(), solver.inverse_entries([0, -1], [2, 3])

    diagonal, some = compiled(mode, entries)(array(mode, m.data))
    X = np.linalg.inv(m.toarray())
    np.testing.assert_allclose(to_numpy(diagonal), X.diagonal(), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(to_numpy(some), X[[0, -1], [2, 3]], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", EAGER)
def test_shape_of_the_unknowns(mode: str) -> None:
    """A function's diagonal is on its grid; single precision stays."""
    bk = krylix.choose_backend(array(mode, np.zeros(1)))
    like = array(mode, np.zeros((4, 5), np.float32))
    solver = prepare(lambda x: 3 * x - bk.xp.roll(x, 1, axis=-1), like)
    found = to_numpy(solver.inverse_diagonal())
    assert found.shape == (4, 5) and found.dtype == np.float32
    np.testing.assert_allclose(found, 1 / 3 / (1 - 3.0**-5), rtol=1e-5)
    assert solver.inverse_entries(0, 1).shape == ()


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_singular(form: str) -> None:
    for m in (np.diag([1.0, 0, 2]), np.ones((3, 3))):
        solver = prepare(sp.csr_array(m) if form == "sparse" else m, on_failure="status")
        with pytest.raises(ZeroDivisionError, match=r"singular.*multiple of the identity"):
            solver.inverse_diagonal()
    for m in (closed(30), sp.csr_array(sp.block_diag([scattered(40), np.ones((2, 2)) * 0.1]))):
        with pytest.raises(ZeroDivisionError, match="singular"):
            prepare(m, method="GMRES", preconditioner=None, on_failure="status").inverse_diagonal()
    nan = prepare(sp.csr_array(np.diag([1.0, np.nan])), method="CG", on_failure="status")
    assert np.isnan(nan.inverse_diagonal()).all()


def test_closed_domains_of_many_cells_are_singular() -> None:
    """A vector of random signs has hardly any constant part: the inverse would amplify it too little to be seen."""
    L = grid_laplacian(250, 250, shift=0)
    assert FactorisedMatrix(sp.csc_array(L - sp.diags_array(L.sum(axis=1)))).is_singular


def test_bad_input() -> None:
    solver = prepare(cancelling())
    with pytest.raises(IndexError, match="5; expected integers from -5 to 4"):
        solver.inverse_entries([0, 5], 0)
    with pytest.raises(TypeError, match="expected integers"):
        solver.inverse_entries(0.0, 0)
    with pytest.raises(ValueError, match="broadcast"):
        solver.inverse_entries([0, 1], [0, 1, 2])
    assert solver.inverse_entries([], []).shape == (0,)
    opaque = sp.linalg.LinearOperator((300, 300), matvec=lambda x: np.fft.ifft(np.fft.fft(x)).real, dtype=float)
    with pytest.raises(UnsupportedOperation, match="entries"):
        prepare(opaque, np.zeros(300), method="CG").inverse_diagonal()


def test_the_matrix_may_change_after_prepare() -> None:
    A = grid_laplacian(5, 5)
    solver = prepare(A)
    X = np.linalg.inv(A.toarray())
    A.data[:] = 7
    np.testing.assert_allclose(solver.inverse_diagonal(), X.diagonal())
    np.testing.assert_allclose(solver.T.inverse_diagonal(), X.diagonal())
    np.testing.assert_allclose(solver.update(2 * grid_laplacian(5, 5)).inverse_diagonal(), X.diagonal() / 2)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("batch", [False, True])
def test_singular_dense_matrices_have_no_inverse(batch: bool, mode: str) -> None:
    """By the rule of a direct solve, which rows and columns in other units do not change."""
    rng = np.random.default_rng(0)
    regular = 10.0 ** np.linspace(-30, 30, 6)[:, None] * rng.standard_normal((6, 6))
    singular = regular.copy()
    singular[-1] = singular[0]
    found = prepare(array(mode, regular)).inverse_diagonal()
    np.testing.assert_allclose(to_numpy(found), np.diagonal(np.linalg.inv(regular)), rtol=1e-8)
    solver = prepare(array(mode, np.stack([regular, singular]) if batch else singular), on_failure="status")
    for ask in (solver.inverse_diagonal, solver.logdet_gradient, lambda: solver.inverse_entries([0], [1])):
        with pytest.raises(ZeroDivisionError, match="singular"):
            ask()
