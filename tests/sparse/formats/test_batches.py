"""Batches of matrices of one structure: each is the matrix that it would be alone, in every format and library."""

from typing import Any

import numpy as np
import pytest

import krylix
import krylix.sparse
from gradients import gradient
from krylix.sparse import COO, CSC, CSR, DIA, ELL, HYB, SparseMatrix, Stencil, UnsupportedOperation, block, eye, kron
from matrices import FORMATS, in_krylix, random_matrix
from modes import array, compiled, library, to_numpy

SYSTEMS, SHAPE, GRID = 3, (7, 6), (2, 3)
KINDS = (*FORMATS, "stencil", "dense")
QUICK = ("csr", "dia", "hyb", "stencil")  # the others are made of the same kernels
kinds = pytest.mark.parametrize("kind", KINDS)


def cells() -> list[Any]:
    modes = ("numpy", "torch", "jax-jit", "tf-function", "jax", "tf")
    return [
        pytest.param(kind, mode, marks=pytest.mark.slow if mode not in ("numpy", "torch") and kind not in QUICK else ())
        for kind in KINDS for mode in modes
    ]  # fmt: skip


def single(kind: str, dtype: str = "float64") -> Any:
    """One matrix on NumPy."""
    if kind == "stencil":
        numbers = [np.asarray(v, dtype) for v in (-2.0, 0.5)]
        array = random_matrix(GRID, dtype).toarray() + 1
        return Stencil([*numbers, array], [(0, 0), (0, 1), (-1, 1)], (3, 3), GRID).to(kind)  # values as it stores them
    S = random_matrix(SHAPE, dtype)
    return in_krylix("numpy", S, "csr").to(kind)


def many(A: Any) -> tuple[np.ndarray, ...]:
    """Other values, for three systems."""
    arrays = A.arrays() if isinstance(A, SparseMatrix) else (A.values,)
    factors = np.random.default_rng(5).uniform(0.5, 2, (len(arrays), SYSTEMS))
    return tuple(np.stack([v * f * (1 + 0.1 * np.cos(v)) for f in fs]) for v, fs in zip(arrays, factors, strict=True))


def values_of(given: Any) -> Any:
    return given[0] if len(given) == 1 else tuple(given)


def stack(A: Any, values: Any) -> np.ndarray:
    """The matrices one by one, as a dense array."""
    return np.stack([A.with_values(values_of([v[i] for v in values])).toarray() for i in range(SYSTEMS)])


def rows(shape: tuple[int, ...], dtype: str = "float64", seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(("kind", "mode"), cells())
def test_products(kind: str, mode: str) -> None:
    A = single(kind, "complex128" if kind == "csr" else "float64")
    values, (n, m) = many(A), A.shape
    M, x, X, Y = stack(A, values), rows((m,)), rows((2, SYSTEMS, m)), rows((SYSTEMS, n))
    known = krylix.as_operator(A, like=array(mode, x)) if library(mode) != "numpy" else A

    def everything(x: Any, X: Any, Y: Any, *values: Any) -> Any:
        B = known.with_values(values_of(values))
        return B(X), B.T(Y), B.H(Y), B @ x, B.T.T(X), B.diagonal(), B.dense(), (2 * B)(X[0]), B[1] @ x, B[[2, 0]] @ x

    grids = X.reshape(2, SYSTEMS, *A.in_shape), Y.reshape(SYSTEMS, *A.out_shape)
    found = compiled(mode, everything)(*(array(mode, a) for a in (x, *grids, *values)))
    image = np.einsum("kij,bkj->bki", M, X)
    back = [np.einsum("kij,ki->kj", K, Y) for K in (M, M.conj())]
    diagonal = np.diagonal(M, axis1=1, axis2=2)
    wanted = (image, *back, M @ x, image, diagonal, M, 2 * image[0], M[1] @ x, M[[2, 0]] @ x)
    for got, want in zip(found, wanted, strict=True):
        assert to_numpy(got).dtype == A.dtype
        np.testing.assert_allclose(to_numpy(got).reshape(want.shape), want, rtol=1e-12, atol=1e-12)


@kinds
def test_parts_formats_and_sums(kind: str) -> None:
    A = single(kind)
    values = many(A)
    B, M = A.with_values(values_of(values)), stack(A, values)
    assert B.systems == SYSTEMS and B.shape == A.shape and B.nnz == SYSTEMS * A.nnz and "3 systems" in repr(B)
    assert B.format == kind and "systems" in B.explain() + repr(B)
    for format in (f for f in KINDS if f != "stencil"):
        other = B.to(format)
        np.testing.assert_array_equal(other.toarray(), M)
        assert other.format == format and other.systems == SYSTEMS
    for i, one in enumerate(B):
        np.testing.assert_array_equal(one.toarray(), M[i])
        assert one.systems is None and one.format == kind
    rng = np.random.default_rng(2)
    v, V, W = (rng.normal(size=s) for s in (A.shape[0], (4, A.shape[0]), (A.shape[1], 4)))
    np.testing.assert_allclose(v @ B, v @ M, atol=1e-12)
    np.testing.assert_allclose(V @ B, V @ M, atol=1e-12)
    np.testing.assert_allclose(B @ W, M @ W, atol=1e-12)
    np.testing.assert_array_equal(B[1:].toarray(), M[1:])
    np.testing.assert_array_equal(B[np.array([True, False, True])].toarray(), M[[0, 2]])
    np.testing.assert_array_equal(B[-1][2:, 1].T, M[-1][2:, 1])
    assert not B.is_hermitian() and B.is_positive_definite() is None
    if kind == "dense":
        return
    T = M.swapaxes(1, 2)
    np.testing.assert_allclose((B @ B.T).toarray(), M @ T, atol=1e-12)
    np.testing.assert_allclose((A.T @ B).toarray(), A.toarray().T @ M, atol=1e-12)
    np.testing.assert_allclose((B - A).toarray(), M - A.toarray(), atol=1e-12)
    np.testing.assert_allclose((B.T @ B + eye(A.shape[1])).toarray(), T @ M + np.eye(A.shape[1]), atol=1e-12)
    for axis in (None, 0, 1):
        np.testing.assert_allclose(B.sum(axis), M.sum((1, 2) if axis is None else axis + 1), atol=1e-12)
    np.testing.assert_allclose(kron(eye(2), B).toarray(), [np.kron(np.eye(2), K) for K in M])
    np.testing.assert_allclose(block([[A, B]]).toarray(), np.concatenate([[A.toarray()] * SYSTEMS, M], 2))
    if kind != "stencil":  # which has no other structure to go to
        np.testing.assert_array_equal(B.prune().toarray(), M)
    with pytest.raises(ValueError, match="Batches of 2 and 3 matrices"):
        B + B[1:]


def test_constructors() -> None:
    """Untidy entries, with duplicates, in each constructor."""
    S = random_matrix(SHAPE)
    coo = S.tocoo()
    order = np.random.default_rng(0).permutation(2 * S.nnz)
    r, c = np.tile(coo.row, 2)[order], np.tile(coo.col, 2)[order]
    values = np.tile(np.stack([coo.data, 2 * coo.data]) / 2, 2)[:, order]
    by_row, by_col = np.argsort(r, kind="stable"), np.argsort(c, kind="stable")
    starts = [np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))]) for i, n in zip((r, c), SHAPE, strict=True)]
    want = np.stack([S.toarray(), 2 * S.toarray()])
    for mode in ("numpy", "torch"):
        for A in (
            COO(array(mode, values), r, c, SHAPE),
            CSR(array(mode, values[:, by_row]), c[by_row], starts[0], SHAPE),
            HYB(array(mode, values[:, by_row]), c[by_row], starts[0], SHAPE),
            CSC(array(mode, values[:, by_col]), r[by_col], starts[1], SHAPE),
        ):
            assert A.systems == 2 and A.bk.name == mode
            np.testing.assert_allclose(A.toarray(), want, atol=1e-12)
        diagonals = array(mode, np.arange(24.0).reshape(2, 2, 6))
        A = DIA(diagonals, [1, 0], (6, 6))
        np.testing.assert_array_equal(A[1].toarray(), DIA(diagonals[1], [1, 0], (6, 6)).toarray())
        columns = np.array([[0, 1, 2], [2, -1, 0]])
        B = ELL(diagonals[:, :, :3], columns, (3, 3))
        np.testing.assert_array_equal(B[1].toarray(), ELL(diagonals[1, :, :3], columns, (3, 3)).toarray())
        field, number = array(mode, rows((2, *GRID))), array(mode, np.array([3.0, 4.0]).reshape(2, 1, 1))
        C = Stencil([field, number, 5.0], [(0, 0), (0, 1), (1, 0)], GRID)
        one = Stencil([field[1], array(mode, np.array(4.0)), 5.0], [(0, 0), (0, 1), (1, 0)], GRID)
        np.testing.assert_array_equal(C[1].toarray(), one.toarray())


def test_refused() -> None:
    A = single("csr")
    B = A.with_values(many(A)[0])
    for what in (
        B.to_scipy,
        B.plot,
        lambda: B.native("jax") if B.bk.on_host else None,
        lambda: krylix.sparse.save("A.npz", B),
    ):
        with pytest.raises(UnsupportedOperation, match=r"batch of 3 matrices .* A\[i\]"):
            what()
    with pytest.raises(IndexError, match=r"A\[i\]\[rows, columns\]"):
        B[0, 1]
    with pytest.raises(IndexError):
        B[3]
    with pytest.raises(ValueError, match="one more axis in front"):
        A.with_values(np.ones((2, A.nnz + 1)))
    with pytest.raises(ValueError, match="one more in front for a batch"):
        CSR(np.ones((1, 2, 3)), [0], [0, 1], (1, 1))
    with pytest.raises(ValueError, match="takes 3 systems at once; got 2"):
        B(np.ones((2, A.shape[1])))


def positions(A: Any) -> list[np.ndarray]:
    """For each array of values, which value stands at each place of the matrix, from 1 on; 0 for none."""
    arrays, first, found = [v.shape for v in A.arrays()], 1, []
    for k, shape in enumerate(arrays):
        count = int(np.prod(shape))
        codes = [np.zeros(s) for s in arrays]
        codes[k] = np.arange(first, first + count, dtype=float).reshape(shape)
        found.append(
            A.with_values(values_of(codes)).toarray() - (first - 1) * (A.with_values(values_of(codes)).toarray() > 0)
        )
        first += count
    return found


def gradients(A: Any, M: np.ndarray, X: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    """Of `loss` by the values, from its gradient by the dense matrices."""
    by_entries = 2 * (w * np.einsum("kij,kj->ki", M, X))[:, :, None] * X[:, None]
    by_entries += 2 * w[:, :, None] * np.einsum("kij,ki->kj", M, w)[:, None]
    found = []
    for place, v in zip(positions(A), A.arrays(), strict=True):
        parts = [[G[place == code].sum() for code in range(1, v.size + 1)] for G in by_entries]
        found.append(np.array(parts).reshape(SYSTEMS, *v.shape))
    return found


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "dense"])
@pytest.mark.parametrize(
    "mode", [pytest.param("torch"), pytest.param("jax-jit"), pytest.param("tf", marks=pytest.mark.merge)]
)
def test_gradients(kind: str, mode: str, request: pytest.FixtureRequest) -> None:
    A = single(kind)
    values = many(A)
    X, w = rows((SYSTEMS, A.shape[1])), rows((SYSTEMS, A.shape[0]), seed=2)
    wanted = gradients(A, stack(A, values), X, w)
    given, (X, w) = [array(mode, v) for v in values], (array(mode, X), array(mode, w))
    B = krylix.as_operator(A, like=X)

    def loss(values: Any) -> Any:
        C = B.with_values(values_of(values))
        return B.bk.sum(w * C.apply(X) ** 2, (0, 1)) + B.bk.sum(C.T.apply(w) ** 2, (0, 1))

    found = gradient(mode, lambda *v: loss(list(v)), *given)
    for got, want in zip(found if len(given) > 1 else [found], wanted, strict=True):
        np.testing.assert_allclose(to_numpy(got), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", ("numpy", "torch", "jax-jit"))
@pytest.mark.parametrize("kind", ("csr", "hyb", "stencil", "dense"))
def test_stack(kind: str, mode: str) -> None:
    """A batch whose systems are the matrices, in their format, also of values that are traced."""
    A = single(kind)
    values = many(A)
    parts = [A.with_values(values_of([v[i] for v in values])) for i in range(SYSTEMS)]
    found = krylix.sparse.stack(parts)
    assert (found.systems, found.shape, found.format) == (SYSTEMS, A.shape, A.format)
    np.testing.assert_array_equal(found.toarray(), [P.toarray() for P in parts])
    np.testing.assert_array_equal(found[1].toarray(), parts[1].toarray())
    x = rows((SYSTEMS, *A.in_shape))
    if mode == "numpy":
        np.testing.assert_array_equal(found(x), [P(v) for P, v in zip(parts, x, strict=True)])
        return

    def product(*vs: Any) -> Any:
        each = [A.with_values(values_of([v[i] for v in vs])) for i in range(SYSTEMS)]
        return krylix.sparse.stack(each)(array(mode, x))

    given = product(*(array(mode, v) for v in values)) if mode == "torch" else None
    given = compiled(mode, product)(*(array(mode, v) for v in values)) if given is None else given
    np.testing.assert_allclose(to_numpy(given), found(x), rtol=1e-13, atol=1e-13)


def test_stack_of_other_forms() -> None:
    S = random_matrix((4, 4))
    own = in_krylix("numpy", S, "ell")
    found = krylix.sparse.stack([own, S, S.tocsc() * 2], format="csc")
    assert found.format == "csc" and np.array_equal(found.toarray(), [S.toarray(), S.toarray(), 2 * S.toarray()])
    before = found.toarray()
    given = S.copy()
    batch = krylix.sparse.stack([given, given])
    given.data[:], given.indices[:] = 7, 0
    assert np.array_equal(batch.toarray(), before[[0, 0]])
    number, numbers = Stencil([2.0], [(0,)], (3,)), Stencil([np.arange(1.0, 4)], [(0,)], (3,))
    assert np.array_equal(krylix.sparse.stack([number, numbers]).toarray(), [2 * np.eye(3), np.diag([1.0, 2, 3])])
    mixed = krylix.sparse.stack([in_krylix("numpy", S, "csr"), in_krylix("torch", S, "csr", known=False)])
    assert mixed.bk.name == "torch" and np.array_equal(mixed.toarray(), before[[0, 0]])
    single = krylix.sparse.stack([in_krylix("numpy", S.astype(np.float32), "csr"), own])
    assert single.dtype == np.float64


def test_stack_refuses() -> None:
    S = random_matrix((4, 4))
    A, other = in_krylix("numpy", S, "csr"), in_krylix("numpy", random_matrix((4, 4), seed=1), "csr")
    for matrices, error, words in (
        ([], ValueError, "No matrix"),
        ([A, other], ValueError, r"Matrices 0 and 1 have their \d+ and \d+ entries at different places; .*as_operator"),
        ([A, in_krylix("numpy", random_matrix((4, 3)), "csr")], ValueError, r"shapes \(4, 4\), \(4, 3\)"),
        ([A, A.with_values(np.ones((2, S.nnz)))], ValueError, r"matrices\[1\] is a batch of 2; .*A\[k\]"),
        ([A, A.to("dense")], TypeError, "Dense and sparse"),
        ([A, 3.0], TypeError, r"matrices\[1\] is of type float"),
        ([A, np.eye(4)], TypeError, "expected a matrix"),
    ):
        with pytest.raises(error, match=words):
            krylix.sparse.stack(matrices)
