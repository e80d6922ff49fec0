"""ILU of matrices with zeros on the diagonal: matched rows, against SciPy's matching and factors by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

import krylix
from krylix import linear_solve, preconditioner
from krylix.solvers.preconditioners.ilu import matching
from krylix.solvers.preconditioners.ilu.matching import row_matching
from modes import array, compiled, to_numpy
from named_problems import convection, poisson

N = 40


def exchanged(n: int = N, dtype: str = "float64", seed: int = 0) -> sp.csr_array:
    """Diagonally dominant, but for the order of its rows."""
    rng = np.random.default_rng(seed)
    m = rng.uniform(-1, 1, (n, n)) * (rng.random((n, n)) < 0.1)
    if np.dtype(dtype).kind == "c":
        m = m * np.exp(1j * rng.uniform(0, 6, (n, n)))
    m = m * (1 - np.eye(n)) + np.diag(3 + rng.random(n))
    return sp.csr_array(m[rng.permutation(n)].astype(dtype))


def circuit(n: int, sources: int, seed: int) -> sp.csr_array:
    """Nodal analysis: conductances of any size between nodes, and sources, whose rows have zeros on the diagonal."""
    rng = np.random.default_rng(seed)
    i = np.repeat(np.arange(n), 2)
    j = (i + rng.integers(1, 6, 2 * n)) % n
    g = 10.0 ** rng.uniform(-4, 0, 2 * n)
    G = sp.coo_array((np.r_[g, g, -g, -g], (np.r_[i, j, i, j], np.r_[i, j, j, i])), (n, n))
    a, c, d = rng.integers(0, n, (3, n // 20))
    G = G + sp.coo_array((np.full(n // 20, 0.05), (a, (c + d) % n)), (n, n)) + 1e-6 * sp.eye_array(n)
    B = sp.coo_array((np.ones(sources), (np.arange(sources), rng.permutation(n)[:sources])), (sources, n))
    return sp.csr_array(sp.block_array([[G, B.T], [B, None]]))


def matched(A: Any) -> Any:
    A = sp.coo_array(sp.csr_array(A))
    A.eliminate_zeros()
    return row_matching(A.row, A.col, np.abs(A.data), A.shape[0])


def random(seed: int) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    A = sp.random_array((n, n), density=min(1.0, 3 / n), rng=rng) + sp.csr_array(np.eye(n)[rng.permutation(n)])
    A.data = 10.0 ** rng.uniform(-5, 5, A.nnz)
    return sp.csr_array(A)


@pytest.mark.parametrize("seed", range(12))
def test_is_the_largest_product_and_scales_to_one(seed: int) -> None:
    A = random(seed) if seed % 3 else sp.csr_array((random(seed) != 0).astype(float))  # of equal numbers, too
    rows, scale = matched(A)
    assert sorted(rows) == [*range(A.shape[0])]
    weights = A.copy()
    weights.data = 100 - np.log(A.data)
    at, to = min_weight_full_bipartite_matching(weights)
    best = np.log(A.toarray()[at, to]).sum()
    np.testing.assert_allclose(np.log(A.toarray()[rows, np.arange(len(rows))]).sum(), best, rtol=1e-12, atol=1e-9)
    B = (A[rows] * scale).toarray()
    largest = np.diag(B)[:, None] * (1 + 1e-12)
    assert np.all(largest >= B)


def test_none_where_there_is_none() -> None:
    assert matched(sp.csr_array(([1.0, 2.0, 1.0], ([0, 1, 2], [0, 0, 1])), (3, 3))) is None
    wide = sp.block_diag([sp.csr_array(np.ones((3, 1))), np.ones((1, 3))])  # no empty row or column
    assert matched(sp.csr_array(wide)) is None and matched(sp.csr_array((2, 2))) is None


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    A = random(1)
    assert matched(A) is not None
    monkeypatch.setattr(matching, "_MOST_SCANNED", 10)
    assert matched(A) is None
    B = exchanged()
    B.data[:] = 1
    with pytest.raises(ValueError, match="singular by its pattern, or too large"):
        preconditioner(B, "ilu", matching=True)
    assert ("matching", True) not in preconditioner(B, "ilu").settings  # as it is, without a word too many


def test_equal_numbers_in_a_random_order() -> None:
    """For which SciPy's matching takes seconds to minutes."""
    A = poisson(60, 60)
    A = sp.csr_array(A[np.random.default_rng(0).permutation(3600)])
    assert np.all(A[matched(A)[0]].diagonal() == 4)
    A.data[:] = 1
    assert np.all(A[matched(A)[0]].diagonal() == 1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_dominant_rows_in_any_order(dtype: str) -> None:
    """M is the inverse of the textbook's factors of the rows in the right order, and its transpose likewise."""
    A = exchanged(dtype=dtype)
    M = preconditioner(A, "ilu")
    assert "large diagonal" in (M.note or "") and "large diagonal" in repr(M) and M.hermitian is False
    assert dict(M.settings)["apply"] == "exact" and M.dtype == np.dtype(dtype)
    tolerance = 1e-5 if dtype in ("float32", "complex64") else 1e-12
    dense = M.dense()
    np.testing.assert_allclose(M.T.dense(), dense.T, atol=tolerance * np.abs(dense).max())
    b = np.ones(N, dtype)
    result = linear_solve(A, b, method="GMRES", preconditioner=M)
    assert result.converged and result.iterations <= 15
    scaled = linear_solve(A, b, method="GMRES", preconditioner="jacobi", max_iter=15, on_failure="status")
    assert not scaled.converged


def test_exact_where_nothing_fills() -> None:
    """A tridiagonal matrix, scaled by many powers of ten, with exchanged rows and columns: M is its inverse."""
    rng = np.random.default_rng(0)
    T = sp.diags_array([-1.0, 3.0, -1.5], offsets=[-1, 0, 1], shape=(N, N)).toarray()
    A = (10.0 ** rng.uniform(-6, 6, (N, 1)) * T * 10.0 ** rng.uniform(-6, 6, N))[rng.permutation(N)]
    A = A[:, rng.permutation(N)]
    M = preconditioner(sp.csr_array(A), "ilu")
    np.testing.assert_allclose(M.dense() @ A, np.eye(N), atol=1e-3)
    x = linear_solve(sp.csr_array(A), A @ np.ones(N), method="GMRES", preconditioner=M, rtol=1e-12).x
    np.testing.assert_allclose(A @ x, A @ np.ones(N), rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_circuits(seed: int) -> None:
    A = circuit(300, 30, seed)
    settings: dict[str, Any] = {"method": "GMRES", "max_iter": 200, "on_failure": "status"}
    b = A @ np.random.default_rng(seed).standard_normal(A.shape[0])
    as_given = linear_solve(A, b, preconditioner=preconditioner(A, "ilu", matching=False, apply="exact"), **settings)
    found = linear_solve(A, b, preconditioner="auto", **settings)
    assert found.preconditioner == "ilu" and found.converged
    assert not as_given.converged or as_given.iterations > 2 * found.iterations


def test_not_where_the_diagonal_serves() -> None:
    """Large enough, or with zeros that the factors fill well, as those of a saddle point matrix."""
    K, B = poisson(8, 8), sp.eye_array(10, 64)
    saddle = sp.block_array([[K, B.T], [B, None]]) + 0.1 * sp.eye_array(74, k=1)
    right = exchanged()[matched(exchanged())[0]]
    for A in map(sp.csr_array, (convection(12, 1e-2), right, saddle)):
        assert ("matching", True) not in preconditioner(A, "ilu").settings
    M, plain = (preconditioner(sp.csr_array(saddle), "ilu", matching=m) for m in (None, False))
    np.testing.assert_array_equal(M.dense(), plain.dense())
    assert M.note is None


def test_singular_matrices_are_as_before() -> None:
    A = sp.csr_array(([1.0, 2.0, 1.0], ([0, 1, 2], [0, 0, 1])), (3, 3))
    assert preconditioner(A).kind == "jacobi"
    assert preconditioner(A, "ilu").kind == "ilu"
    with pytest.raises(ValueError, match="singular by its pattern"):
        preconditioner(A, "ilu", matching=True)
    with pytest.raises(ValueError, match="matching='yes' was given; expected True"):
        preconditioner(A, "ilu", matching="yes")
    with pytest.raises(ValueError, match="asked for a drop_tolerance, and for matching"):
        preconditioner(A, "ilu", matching=True, drop_tolerance=0.1)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_every_library(mode: str, tmp_path: Path) -> None:
    """Alone, as a batch on one pattern, transposed, in files, within compiled functions that know the values."""
    A = exchanged()
    several = [A, sp.csr_array((A.data * np.linspace(0.5, 2, A.nnz), A.indices, A.indptr), A.shape)]
    r = np.random.default_rng(1).standard_normal(N)
    expected = preconditioner(several, "ilu")
    M = preconditioner(several, "ilu", like=array(mode, r))
    assert M.systems == 2 and ("matching", True) in M.settings
    alone = preconditioner(A, "ilu", like=array(mode, r))
    alone.save(tmp_path / "M.npz")
    loaded = krylix.load_preconditioner(tmp_path / "M.npz", like=array(mode, r))
    found = compiled(mode, lambda r: (M @ r, M.T @ r, loaded @ r))(array(mode, r))
    for one, other in zip(found, (expected @ r, expected.T @ r, preconditioner(A, "ilu") @ r), strict=True):
        np.testing.assert_allclose(to_numpy(one), other, atol=1e-12)


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_in_programs(mode: str) -> None:
    A, b = exchanged(), np.linspace(1, 2, N)
    applied = compiled(mode, lambda b: preconditioner(A, "ilu", like=b) @ b)
    np.testing.assert_allclose(to_numpy(applied(array(mode, b))), preconditioner(A, "ilu") @ b, atol=1e-12)


@pytest.mark.needs("jax")
def test_traced_values_cannot_be_matched() -> None:
    import jax

    A = exchanged()
    own: Any = krylix.as_operator(A, jax.numpy.ones(N))

    def applied(values: Any, **settings: Any) -> Any:
        return preconditioner(own.with_values(values), "ilu", **settings) @ jax.numpy.ones(N)

    with pytest.raises(krylix.sparse.UnsupportedOperation, match="A matching of rows was asked for"):
        jax.jit(lambda values: applied(values, matching=True))(own.values)
    assert np.all(np.isfinite(jax.jit(applied)(own.values)))


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_derivatives() -> None:
    """The backward solve has the transposed preconditioner."""
    import jax
    import jax.numpy as jnp

    A = exchanged()
    loss = lambda b: jnp.sum(linear_solve(A, b, method="biCG-stab", preconditioner="ilu", rtol=1e-12).x ** 2)  # noqa: E731
    b = np.linspace(1, 2, N)
    x = np.linalg.solve(A.toarray(), b)
    np.testing.assert_allclose(
        jax.jit(jax.grad(loss))(jnp.asarray(b)), np.linalg.solve(A.toarray().T, 2 * x), rtol=1e-8
    )


@pytest.mark.needs("torch")
@pytest.mark.parametrize("settings", [{"matching": True}, {"drop_tolerance": 1e-3}], ids=str)
def test_all_arrays_are_on_the_device(settings: dict[str, Any]) -> None:
    """Those of the orders as well; PyTorch has a device without memory for such questions."""
    import torch

    like = torch.ones(N, dtype=torch.float64, device="meta")
    M = preconditioner(exchanged(), "ilu", like=like, **settings)
    assert {part.device.type for part in M.bk.flatten(M)[0]} == {"meta"}
