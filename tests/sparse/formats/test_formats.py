"""Every format on every backend, eager and compiled, known and traced values, against SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from krylix.sparse.formats import DIA, SparseMatrix, from_diagonals, from_entries
from matrices import FORMATS, in_krylix, random_matrix, tolerance
from modes import EAGER, array, compiled, library, to_numpy

DTYPES = ("float64", "complex128", "float32")
SHAPES = [(12, 12), (12, 7), (7, 12)]
EDGES = [(1, 1), (3, 1), (1, 3), (0, 3), (3, 0), (0, 0)]
formats = pytest.mark.parametrize("format", FORMATS)
eager = pytest.mark.parametrize("mode", EAGER)
formats_and_libraries = pytest.mark.parametrize(("format", "mode"), in_turn(FORMATS, EAGER, always=("numpy", "torch")))


def cells() -> list[Any]:
    """(format, dtype, mode); where much is compiled, one dtype for each format in every run, the others on demand."""
    found = []
    for i, format in enumerate(FORMATS):
        for dtype in DTYPES:
            for mode in EAGER:
                quick = mode in ("numpy", "torch") or (format, mode) in (("csr", "jax"), ("dia", "tf"), ("hyb", "tf"))
                quick = quick and (mode in ("numpy", "torch") or dtype == DTYPES[i % 3])
                found.append(pytest.param(format, dtype, mode, marks=() if quick else pytest.mark.slow))
    return found


def rows(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def everything(A: SparseMatrix, v: Any, V: Any, w: Any, X: Any) -> tuple[Any, ...]:
    return (A @ v, A @ V, A(X), A.T @ w, A.H @ w, A.conj() @ v, A.T.T @ v, A.diagonal(), A.dense(), A.sum(), A.sum(0),
            A.sum(1))  # fmt: skip


def expected(M: np.ndarray, v: Any, V: Any, w: Any, X: Any) -> tuple[Any, ...]:
    c = M.conj()
    return (M @ v, M @ V, X @ M.T, M.T @ w, c.T @ w, c @ v, M @ v, np.diagonal(M), M, M.sum(), M.sum(0), M.sum(1))


@pytest.mark.parametrize(("format", "dtype", "mode"), cells())
def test_everything(mode: str, format: str, dtype: str) -> None:
    for shape in SHAPES[1:2] if mode in ("jax", "tf") else SHAPES:  # which take long for every shape
        S = random_matrix(shape, dtype)
        M = S.toarray()
        vectors = [rows(s, dtype) for s in ((shape[1],), (shape[1], 3), (shape[0],), (2, 2, shape[1]))]
        for known in (True, False):
            A = in_krylix(mode, S, format, known)
            assert (A.format, A.nnz, A.shape, A.dtype) == (format, S.nnz, shape, np.dtype(dtype))
            assert A.bk.name == library(mode) and (A.constant is not None) == (known or mode == "numpy")
            for got, want in zip(everything(A, *(array(mode, x) for x in vectors)), expected(M, *vectors), strict=True):
                assert to_numpy(got).dtype == np.dtype(dtype)
                np.testing.assert_allclose(to_numpy(got), want, **tolerance(dtype))
            np.testing.assert_array_equal(A.toarray(), M)
            assert all(part in repr(A) for part in (f"{shape[0]}x{shape[1]}", str(S.nnz), dtype, library(mode)))
            assert "stored" in A.explain() and format.upper() in repr(A)


@pytest.mark.parametrize(
    ("mode", "format", "known", "dtype"),
    [
        pytest.param(mode, format, known, DTYPES[j % 3], marks=pytest.mark.merge if (i + j + known) % 2 else ())
        for i, mode in enumerate(("jax-jit", "tf-function"))
        for j, format in enumerate(FORMATS)
        for known in (True, False)
    ],  # every two of the three together, by default
)
def test_compiled(mode: str, format: str, known: bool, dtype: str) -> None:
    """With values that are known, and values that are arguments."""
    S = random_matrix((8, 8), dtype)
    M = S.toarray()
    vectors = [rows(s, dtype) for s in ((8,), (8, 3), (8,), (2, 2, 8))]
    A = in_krylix(mode, S, format)
    values = A.arrays()
    inputs = [array(mode, x) for x in vectors]

    def function(*x: Any) -> tuple[Any, ...]:
        return everything(A, *x) if known else everything(A.with_values(x[: len(values)]), *x[len(values) :])

    given = inputs if known else [*values, *inputs]
    for got, want in zip(compiled(mode, function)(*given), expected(M, *vectors), strict=True):
        np.testing.assert_allclose(to_numpy(got), want, **tolerance(dtype))


@pytest.mark.compiled_by_default(modes=("tf",))
@formats
@eager
def test_every_format_from_every_format(mode: str, format: str) -> None:
    S = random_matrix((9, 6))
    for known in (True, False):
        A = in_krylix(mode, S, format, known)
        for other in FORMATS:
            B = A.to(other)
            assert B.format == other and B.nnz == S.nnz
            np.testing.assert_array_equal(B.toarray(), S.toarray())
            np.testing.assert_array_equal(B.T.toarray(), S.toarray().T)
        np.testing.assert_array_equal(to_numpy(A.to("dense").dense()), S.toarray())
    with pytest.raises(ValueError, match="'bsr' was asked for; there are"):
        A.to("bsr")


@pytest.mark.compiled_by_default(modes=("tf",))
@formats
@eager
def test_edges(mode: str, format: str) -> None:
    for shape in EDGES if mode != "jax" else EDGES[1::2]:
        for fill in (0, 1):
            S = sp.csr_array(np.full(shape, fill, float))
            A = in_krylix(mode, S, format)
            v, w = np.ones(shape[1]), np.ones(shape[0])
            np.testing.assert_array_equal(to_numpy(A @ array(mode, v)), S @ v)
            np.testing.assert_array_equal(to_numpy(A.T @ array(mode, w)), S.T @ w)
            np.testing.assert_array_equal(to_numpy(A @ array(mode, np.ones((shape[1], 2)))), S @ np.ones((shape[1], 2)))
            np.testing.assert_array_equal(A.toarray(), S.toarray())
            np.testing.assert_array_equal(to_numpy(A.dense()), S.toarray())
            assert (A.nnz, A.to("csr").nnz, A.T.shape) == (S.nnz, S.nnz, shape[::-1])


@formats_and_libraries
def test_not_finite_numbers_reach_only_their_rows(mode: str, format: str) -> None:
    S = random_matrix((12, 12))
    for known in (True, False):
        A = in_krylix(mode, S, format, known)
        for bad in (0, 5, 11):
            x = np.ones(12)
            x[bad] = np.nan
            found = to_numpy(A @ array(mode, x))
            touched = S.toarray()[:, bad] != 0
            assert np.isnan(found[touched]).all()
            if format in ("csr", "csc", "coo"):  # padding, which is 0, multiplies entries of x too
                np.testing.assert_allclose(found[~touched], (S @ np.ones(12))[~touched])


@formats_and_libraries
def test_with_values(mode: str, format: str) -> None:
    """What is given for padding has no effect."""
    S = random_matrix((8, 8))
    A = in_krylix(mode, S, format)
    ones = [np.ones(s) for s in A.structure.value_shapes]
    pattern = (S.toarray() != 0).astype(float)
    for B in (A.with_values(ones), A.with_values([array(mode, one) for one in ones])):
        np.testing.assert_array_equal(B.toarray(), pattern)
        np.testing.assert_array_equal(to_numpy(B @ array(mode, np.ones(8))), pattern.sum(1))
        np.testing.assert_array_equal(to_numpy(B.T @ array(mode, np.ones(8))), pattern.sum(0))
        assert B.structure == A.structure
    with pytest.raises(ValueError, match=r"Values of the shapes .* expected"):
        A.with_values([np.ones(3)])


@eager
def test_mixed_dtypes(mode: str) -> None:
    S = random_matrix((6, 6), "float32")
    A = in_krylix(mode, S, "csr")
    for dtype in ("float64", "complex64", "complex128"):
        v = rows((6,), dtype)
        found = to_numpy(A @ array(mode, v))
        assert found.dtype == np.result_type("float32", dtype)
        np.testing.assert_allclose(found, S @ v, rtol=1e-5, atol=1e-5)
    assert A.astype(np.dtype("float64")).dtype == np.float64 and A.astype(np.dtype("float32")) is A


@formats
def test_structures_are_equal_by_content(format: str) -> None:
    A, B = (in_krylix("numpy", random_matrix((8, 8)), format) for _ in range(2))
    other = in_krylix("numpy", random_matrix((8, 8), seed=5), format)
    assert A.structure == B.structure and hash(A.structure) == hash(B.structure) and A.structure is not B.structure
    assert A.structure != other.structure and A.structure != "csr"
    assert A.structure.form == B.structure.form and hash(A.structure.form) == hash(B.structure.form)


@formats_and_libraries
def test_other_library_and_host(mode: str, format: str) -> None:
    S = random_matrix((6, 6))
    host = in_krylix("numpy", S, format)
    like = array(mode, np.ones(6))
    moved = host.on_backend(krylix.choose_backend(library(mode)), like)
    np.testing.assert_allclose(to_numpy(moved @ like), S.sum(axis=1))
    for known in (True, False):
        arrays, rebuild = in_krylix(mode, S, format, known).for_host()
        back = rebuild([to_numpy(a) for a in arrays])
        np.testing.assert_array_equal(back.per_system(0).toarray(), S.toarray())
        assert back.bk.name == "numpy"


@eager
def test_pruning(mode: str) -> None:
    rows_, cols, values = np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([1.0, 0.0, 2.0])
    bk = krylix.choose_backend(library(mode))
    kept = from_entries(bk, rows_, cols, values, (2, 2), prune=False)
    assert (kept.nnz, kept.prune().nnz, from_entries(bk, rows_, cols, values, (2, 2)).nnz) == (3, 2, 2)
    diagonals = np.array([[0.0, 3, 0], [0, 0, 0], [1, 2, 3]])
    D = from_diagonals(bk, [-1, 1, 0], diagonals, (3, 3))
    assert (D.nnz, D.format, len(D.structure.offsets)) == (4, "dia", 2)
    np.testing.assert_array_equal(D.toarray(), [[1, 0, 0], [3, 2, 0], [0, 0, 3]])
    assert from_diagonals(bk, [-1, 1, 0], diagonals, (3, 3), prune=False).nnz == 7


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_diagonals_in_any_order_add_up(mode: str) -> None:
    bk, rng = krylix.choose_backend(library(mode)), np.random.default_rng(0)
    for n, m in ((5, 5), (5, 8), (8, 5)) if mode in ("numpy", "torch") else ((5, 8),):
        offsets, values = [2, 0, 2, -3], rng.normal(size=(4, n))
        exact = sum(
            np.array([[v[i] if j - i == o else 0 for j in range(m)] for i in range(n)])
            for o, v in zip(offsets, values, strict=True)
        )
        for given in (values, array(mode, values)):
            for format in (None, *FORMATS):
                A = from_diagonals(bk, offsets, given, (n, m), format=format)
                np.testing.assert_allclose(A.toarray(), exact)
                np.testing.assert_allclose(to_numpy(A @ array(mode, np.ones(m))), exact.sum(1))


def test_traced_diagonals_with_a_mask() -> None:
    present = np.array([[True, False, True], [True, True, True]])
    bk = krylix.choose_backend("numpy")
    A = from_diagonals(bk, [0, 1], np.where(present, 2.0, 0.0), (3, 3), prune=False, present=lambda: present)
    assert A.nnz == 4 and A.to("csr").nnz == 4
    np.testing.assert_array_equal(A.structure.entries().cols, [0, 1, 2, 2])


@pytest.mark.parametrize("size", [1000, 40000])
def test_large_diagonals_become_rows(size: int) -> None:
    """More rows than one block of the cache."""
    rng = np.random.default_rng(0)
    offsets = np.array([-300, -1, 0, 2, 299])
    values = rng.normal(size=(5, size)) * (rng.random((5, size)) < 0.8)
    S = sp.csr_array((size, size))
    for o, v in zip(offsets, values, strict=True):
        S = S + sp.diags_array(v[max(0, -o) : size - max(0, o)], offsets=o, shape=(size, size))
    S.eliminate_zeros()
    for A in (
        DIA(values, offsets, (size, size)),
        from_diagonals(krylix.choose_backend("numpy"), offsets, values, S.shape),
    ):
        found = A.prune().to_scipy()
        found.check_format(full_check=True)
        assert found.nnz == S.nnz and found.has_canonical_format and abs(found - S).max() == 0
        rows_, cols, slots = A.prune().structure.entries()
        assert np.all(np.diff(rows_.astype(np.int64) * size + cols) > 0)
        np.testing.assert_array_equal(A.prune().constant[0].ravel()[slots], found.data)


@eager
def test_shapes_of_arrays(mode: str) -> None:
    S = random_matrix((6, 12))
    A = in_krylix(mode, S, "csr", in_shape=(3, 4), out_shape=(2, 3))
    x = rows((5, 3, 4), "float64")
    for B in (A, A.to("ell"), A.T.T, 1.0 * A, A.astype(np.dtype("complex128"))):
        assert (B.in_shape, B.out_shape, B.T.in_shape, B.T.out_shape) == ((3, 4), (2, 3), (2, 3), (3, 4))
        np.testing.assert_allclose(to_numpy(B(array(mode, x))), (x.reshape(5, 12) @ S.T).reshape(5, 2, 3))
    with pytest.raises(ValueError, match=r"in_shape=\(3, 3\)"):
        in_krylix(mode, S, "csr", in_shape=(3, 3))
