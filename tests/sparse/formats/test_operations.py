"""Sums, products, parts, assembly, files and other libraries' matrices, against SciPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import UnsupportedOperation, as_operator
from krylix.sparse import load, save
from krylix.sparse.formats import (
    FORMATS,
    Matrix,
    SparseMatrix,
    TracedCOO,
    block,
    block_diagonal,
    eye,
    from_native,
    from_scipy,
    hstack,
    kron,
    vstack,
)
from matrices import in_krylix, random_matrix
from modes import EAGER, array, compiled, library, native_sparse, to_numpy
from operands import NATIVE, SCIPY

eager = pytest.mark.parametrize("mode", EAGER)
S, T, U = random_matrix((8, 6)), random_matrix((8, 6), seed=1), random_matrix((6, 5), seed=2)


def same(A: Any, exact: Any) -> None:
    assert isinstance(A, Matrix) and A.shape == exact.shape
    exact = exact.toarray() if sp.issparse(exact) else exact
    np.testing.assert_allclose(A.toarray(), exact, rtol=1e-12, atol=1e-12)
    x = np.arange(1.0, exact.shape[1] + 1)
    np.testing.assert_allclose(to_numpy(A @ array(A.bk.name, x)), exact @ x, rtol=1e-10, atol=1e-10)


def cases(mode: str) -> list[tuple[SparseMatrix, SparseMatrix, SparseMatrix]]:
    """All known, all traced, and a mixture, in several formats."""
    found = [
        (in_krylix(mode, S, "csr"), in_krylix(mode, T, "ell"), in_krylix(mode, U, "coo")),
        (in_krylix(mode, S, "dia", False), in_krylix(mode, T, "csr", False), in_krylix(mode, U, "hyb", False)),
        (in_krylix(mode, S, "csc", False), in_krylix(mode, T, "dia"), in_krylix(mode, U, "csr")),
    ]
    return found[2:] if mode == "jax" else found  # which compiles each operation for each shape


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_arithmetic(mode: str) -> None:
    for A, B, C in cases(mode):
        two = array(mode, np.array(2.0))
        for found, exact in (
            (A + B, S + T), (A - B, S - T), (A + A, 2 * S), (-A, -S), (2 * A, 2 * S), (A * np.float64(2), 2 * S),
            (A * two, 2 * S), (A / 2, S / 2), (A / two, S / 2), (A @ C, S @ U), (A.T @ B, S.T @ T), (A + T, S + T),
            (A @ U, S @ U), (T - A, T - S), (A - T, S - T), (sum([A, B]), S + T), (A * np.array([2.0]), 2 * S),
        ):  # fmt: skip
            same(found, exact)
        assert (A * 1j).dtype == np.complex128 and (A * np.float32(2)).dtype == np.float64
        np.testing.assert_allclose((A * 1j).toarray(), 1j * S.toarray())
        with pytest.raises(ValueError, match=r"\(8, 6\) and \(6, 5\) were added"):
            A + C
        with pytest.raises(ValueError, match=r"\(8, 6\) and \(8, 6\) were multiplied"):
            A @ B
        for bad in (np.ones(6), "2", None):
            with pytest.raises(TypeError, match="expected a number"):
                A * bad
        with pytest.raises(TypeError):
            A + 1
        np.testing.assert_allclose(to_numpy(A.__rmatmul__(array(mode, np.ones(8)))), S.sum(axis=0))
        np.testing.assert_allclose(to_numpy(A.__rmatmul__(array(mode, np.ones((2, 8))))), np.ones((2, 8)) @ S)
        np.testing.assert_allclose(to_numpy(np.ones(8) @ A), S.sum(axis=0))
        assert isinstance(np.float64(2) * A, SparseMatrix)


def test_known_entries_that_cancel_are_dropped() -> None:
    A = in_krylix("numpy", S, "csr")
    B = A + in_krylix("numpy", -S + sp.csr_array(([3.0], ([0], [0])), S.shape), "csr")
    assert B.nnz == 1


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_parts(mode: str) -> None:
    M = S.toarray()
    mask = np.arange(8) % 3 == 0
    keys: list[Any] = [slice(2, 7), slice(None, None, -1), [3, 1, 1], np.array([0, 7]), mask,
                       (slice(None), slice(1, 6, 2)),
                       (slice(None), [0, 0, 5]), (mask, slice(2)), np.ix_([1, 2], [0, 3]), slice(0, 0), (slice(4), -1),
                       5, -1, (slice(None), 2), (2, [0, 1]), ([0, 2], [1, 5]), (2, slice(1, 4))]  # fmt: skip
    for A in (case[0] for case in cases(mode)):
        for key in keys:
            found, exact = A[key], M[key]
            if exact.ndim == 2:
                same(found, exact)
            else:
                np.testing.assert_array_equal(to_numpy(found), exact, err_msg=str(key))
        assert float(A[2, 3]) == M[2, 3]
        for bad in (8, (0, 6), ([0, 9],), (0, 0, 0)):
            with pytest.raises(IndexError):
                A[bad]
        with pytest.raises(TypeError, match="not iterated"):
            list(A)


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_assembly(mode: str) -> None:
    for A, B, C in cases(mode):
        same(block([[A, None], [T, sp.eye_array(8, 5)]]), sp.block_array([[S, None], [T, sp.eye_array(8, 5)]]))
        same(block([[None, A], [C, None]]), sp.block_array([[None, S], [U, None]]))
        same(block_diagonal([A, C, U]), sp.block_diag([S, U, U]))
        same(hstack([A, B]), sp.hstack([S, T]))
        same(vstack([A, T, B], format="csr"), sp.vstack([S, T, T]))
        same(kron(A, C), sp.kron(S, U))
        same(kron(sp.eye_array(2), A), sp.kron(sp.eye_array(2), S))
        assert A.bk is hstack([A, T]).bk
    same(hstack([S, T]), sp.hstack([S, T]))
    like = array(mode, np.ones(3, "float32"))
    for n, m, k in ((3, 3, 0), (3, 5, 2), (5, 3, -4), (3, 3, 7), (0, 0, 0)):
        same(eye(n, m, k, like=like), np.eye(n, m, k))
        assert eye(n, m, k, like=like).dtype == np.float32 and eye(n, m, k, like=like).bk.name == library(mode)
    for bad, message in (
        ([[S], [U]], "column 0"),
        ([[S, None]], "none but None"),
        ([], "as many"),
        ([[S], []], "as many"),
    ):
        with pytest.raises(ValueError, match=message):
            block(bad)
    with pytest.raises(TypeError, match="ndarray was given as a block"):
        block([[S, np.eye(8)]])


@eager
def test_assembly_of_dense_matrices(mode: str) -> None:
    """Their zeros are no entries of what is made of them."""
    A, B, row = (in_krylix(mode, s, "csr").to("dense") for s in (S, T, S[[0]]))
    found = block([[A, None], [T, in_krylix(mode, S, "csr")]])
    same(found, sp.block_array([[S, None], [T, S]]))
    assert found.nnz == 2 * S.nnz + T.nnz and found.bk is A.bk
    same(hstack([A, B]), sp.hstack([S, T]))
    same(kron(A, row), sp.kron(S, S[[0]]))
    for key in (slice(None, None, -1), (slice(None), slice(None, None, -1)), (0, slice(None, None, -1))):
        part = row[key]
        np.testing.assert_array_equal(
            part.toarray() if isinstance(part, Matrix) else to_numpy(part), S[[0]].toarray()[key]
        )


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@eager
def test_files(mode: str, dtype: str, tmp_path: Path) -> None:
    exact = random_matrix((7, 5), dtype)
    for name in ("A.npz", "A.mtx", "A.mtx.gz"):
        save(tmp_path / name, in_krylix(mode, exact, "dia"))
        A = load(str(tmp_path / name), like=array(mode, np.ones(1)), dtype=dtype)
        assert A.bk.name == library(mode) and A.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(A.toarray(), exact.toarray())
        assert load(tmp_path / name, format="hyb").format == "hyb"
    with pytest.raises(ValueError, match=r"ends with"):
        save(tmp_path / "A.txt", exact)
    with pytest.raises(ValueError, match=r"ends with"):
        load(tmp_path / "A.dat")


def test_files_of_others(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "csc.npz", S.tocsc())
    (tmp_path / "dense.mtx").write_text("%%MatrixMarket matrix array integer general\n2 2\n1\n0\n3\n4\n")
    (tmp_path / "symmetric.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 1 2\n2 1 5\n")
    same(load(tmp_path / "csc.npz"), S)
    same(load(tmp_path / "dense.mtx"), np.array([[1.0, 3], [0, 4]]))
    same(load(tmp_path / "symmetric.mtx"), np.array([[2.0, 5], [5, 0]]))


@pytest.mark.parametrize("kind", SCIPY)
@eager
def test_from_scipy(mode: str, kind: str) -> None:
    M = random_matrix((6, 6)).toarray()
    given = SCIPY[kind](M)
    before = given.copy()
    bk = krylix.choose_backend(library(mode))
    exact = 0 * M if kind == "no entries" else M
    for dtype in (None, np.float32):
        A = from_scipy(bk, given, dtype)
        assert A.dtype == (dtype or np.float64) and A.bk is bk
        np.testing.assert_allclose(A.toarray(), exact, rtol=1e-6)
        np.testing.assert_allclose(from_scipy(bk, given, dtype, format="ell", prune=True).toarray(), exact, rtol=1e-6)
    assert (given != before).nnz == 0
    for name, part in vars(before).items():
        if isinstance(part, np.ndarray):
            np.testing.assert_array_equal(vars(given)[name], part)


def test_scipy_shares_memory() -> None:
    bk = krylix.choose_backend("numpy")
    A = from_scipy(bk, S)
    assert np.shares_memory(A.values, S.data) and np.shares_memory(A.to_scipy().data, S.data)
    assert np.shares_memory(A.to_scipy().indices, S.indices) and np.shares_memory(A.T.values, S.data)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_native(mode: str) -> None:
    M = S.toarray()
    bk = krylix.choose_backend(library(mode))
    for format in ("csr", "hyb", "dia"):
        for known in (True, False):
            native = in_krylix(mode, S, format, known).native()
            assert bk.sparse.accepts(native)
            same(from_native(bk, native), M)
            assert sp.issparse(in_krylix(mode, S, format, known).native("numpy"))
            assert bk.sparse.accepts(in_krylix("numpy", S, format).native(library(mode)))
    for layout in {"jax": ("coo", "csr"), "torch": ("coo", "csr", "csc", "bsr"), "tf": ("coo",)}[mode]:
        same(from_native(bk, native_sparse(mode, M, layout)), M)
    assert from_native(bk, native_sparse(mode, M), np.float32).dtype == np.float32


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
def test_native_by_columns(mode: str) -> None:
    """CSC is the library's own CSC where it has that, with arrays that nobody else has."""
    layouts = {"numpy": "csc_array", "jax": "BCOO", "torch": "torch.sparse_csc", "tf": "SparseTensor"}
    for known in (True, False):
        A = in_krylix(mode, S, "csc", known)
        native = A.native()
        assert str(native.layout if mode == "torch" else type(native).__name__) == layouts[mode]
        same(from_native(A.bk, native), S.toarray())
        assert A.native("numpy").format == "csc" and A.native("torch").layout.__str__() == "torch.sparse_csc"
        for M in (A.native("numpy"), in_krylix("numpy", S, "csc").native(library(mode))):
            same(from_native(krylix.choose_backend(M), M), S.toarray())
    A = in_krylix("numpy", S, "csc")
    single = A.native()
    assert "scipy" not in A._made  # nothing is done by rows
    single.data[:], single.indices[:] = 0, 0
    assert single.nnz and np.array_equal(in_krylix("numpy", S, "csc").toarray(), S.toarray())
    pair = in_krylix(mode, S, "csc").with_values(np.ones((2, S.nnz)))
    if mode == "numpy":
        with pytest.raises(UnsupportedOperation, match="a batch of 2 matrices"):
            pair.native()
    else:
        assert from_native(pair.bk, pair.native()).systems == 2


@pytest.mark.needs("jax")
def test_native_by_columns_needs_known_values() -> None:
    import jax

    A = in_krylix("jax", S, "csc", False)
    with pytest.raises(UnsupportedOperation, match="not known before the compiled function runs"):
        jax.eval_shape(lambda values: A.with_values(values).native("numpy"), A.values)


@pytest.mark.needs("torch")
def test_native_by_columns_has_derivatives() -> None:
    import torch

    values = torch.arange(1.0, S.nnz + 1, dtype=torch.float64, requires_grad=True)
    native = in_krylix("torch", S, "csc").with_values(values).native()
    (gradient,) = torch.autograd.grad((native.to_dense() ** 2).sum(), values)
    assert torch.equal(gradient, 2 * values)


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_places_that_are_arguments(mode: str) -> None:
    bk, M = krylix.choose_backend(library(mode)), S.toarray()
    seen = []

    def function(x: Any, v: Any, w: Any) -> Any:
        A = from_native(bk, x)
        seen.append(A)
        return A @ v, A.T @ w, (2 * A).diagonal(), A.dense(), A.sum(), A.sum(0), A.sum(1), A.conj() @ v

    v, w = np.ones(6), np.ones(8)
    exact = (M @ v, M.T @ w, 2 * np.diagonal(M), M, M.sum(), M.sum(0), M.sum(1), M @ v)
    native = next(iter(NATIVE[bk.name].values()))(M)
    found = compiled(mode, function)(native, array(mode, v), array(mode, w))
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(to_numpy(got), want, rtol=1e-12, atol=1e-12)
    A = seen[0]
    assert isinstance(A, TracedCOO) and A.known() is None and "TracedCOO" in repr(A) + A.explain()
    for use in (
        lambda: A.to("csr"),
        lambda: A[0],
        lambda: A + A,
        lambda: A @ A,
        lambda: A.native(backend="numpy"),
        A.toarray,
    ):
        with pytest.raises(UnsupportedOperation, match="not known"):
            use()


@pytest.mark.needs("jax")
def test_values_not_known_in_jit() -> None:
    import jax

    A = in_krylix("jax", S, "csr", False)
    with pytest.raises(UnsupportedOperation, match="not known before the compiled function runs"):
        jax.jit(lambda v: A.with_values(v).toarray())(A.values)


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_dense(mode: str) -> None:
    M, N = S.toarray(), T.toarray()
    bk = krylix.choose_backend(library(mode))
    A, B = as_operator(array(mode, M)), from_scipy(bk, T)
    assert isinstance(A, Matrix) and (A.nnz, A.format) == (48, "dense") and "stored" in A.explain()
    for found, exact in (
        (A + B, M + N), (B + A, M + N), (A + T, M + N), (A - B, M - N), (B - A, N - M), (2 * A, 2 * M), (A / 2, M / 2),
        (-A, -M), (A @ U, M @ U), (A @ from_scipy(bk, U), M @ U), (B.T @ A, N.T @ M), (A[2:5], M[2:5]),
        (B.to("dense"), N),
        (A[[1, 2], 1:4], M[[1, 2], 1:4]), (A.with_values(array(mode, N)), N), (A.to("dense"), M),
        *((A.to(format), M) for format in FORMATS if format != "stencil"),
    ):  # fmt: skip
        same(found, exact)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(to_numpy(A.sum(axis)), M.sum(axis))
    np.testing.assert_array_equal(to_numpy(A[3]), M[3])
    assert float(A[1, 2]) == M[1, 2] and A.native() is A.values
    assert isinstance(A.native("numpy"), np.ndarray)
    several = as_operator(array(mode, np.stack([M, N])))
    assert isinstance(several, Matrix) and several.nnz == 96
    for found, exact in (
        (several.to("csr"), [M, N]), (several + B, [M + N, 2 * N]), (several[0], M), (several @ U, [M @ U, N @ U]),
        (B.T @ several, [N.T @ M, N.T @ N]), (several + several.to("ell"), [2 * M, 2 * N]),
    ):  # fmt: skip
        np.testing.assert_allclose(to_numpy(found.toarray()), np.asarray(exact))
    for axis in (None, 0, 1):
        np.testing.assert_allclose(to_numpy(several.sum(axis)), np.stack([M.sum(axis), N.sum(axis)]))


def test_libraries_do_not_mix() -> None:
    pytest.importorskip("jax"), pytest.importorskip("torch")
    A, B, C = (in_krylix(mode, S, "csr") for mode in ("jax", "torch", "numpy"))
    with pytest.raises(TypeError, match="jax and torch were combined"):
        A + B
    assert (A + C).bk.name == (C + A).bk.name == "jax" and (C.T @ B).bk.name == "torch"
