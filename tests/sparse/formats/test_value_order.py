"""`with_values` takes values in the order of the constructor or of the native object, in every format and library."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from gradients import gradient
from krylix.sparse import COO, CSC, CSR, DIA, ELL, HYB, Stencil, save
from modes import array, compiled, native_sparse, to_numpy

N = 4
ROWS, COLS = np.array([3, 0, 0, 1, 2, 1, 3]), np.array([3, 1, 0, 0, 2, 0, 2])  # (1, 0) twice
STARTS, LINES = np.array([0, 2, 2, 5, 7]), np.array([2, 0, 3, 1, 0, 3, 2])
SLOTS = np.array([[2, -1, 0, 3], [0, 1, -1, 1], [2, 3, 0, -1]])
SHIFTS = [(0, 0), (1, 0), (-1, 1), (7, 0)]  # the last leaves the grid
CONSTRUCTORS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "COO": (lambda v: COO(v, ROWS, COLS, (N, N)), (7,)),
    "CSR": (lambda v: CSR(v, LINES, STARTS, (N, N)), (7,)),
    "CSC": (lambda v: CSC(v, LINES, STARTS, (N, N)), (7,)),
    "HYB": (lambda v: HYB(v, LINES, STARTS, (N, N)), (7,)),
    "ELL": (lambda v: ELL(v, SLOTS, (N, N)), (3, N)),
    "DIA": (lambda v: DIA(v, [2, 0, -1], (N, N)), (3, N)),
    "Stencil": (lambda v: Stencil([v[0], v[1], v[2], v[3]], SHIFTS, (2, 2)), (4, 2, 2)),
}


def numbers(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(1, 2, shape)


def with_new_values(A: Any, values: Any, name: str) -> Any:
    return A.with_values(list(values)) if name == "Stencil" else A.with_values(values)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors(name: str) -> None:
    made, shape = CONSTRUCTORS[name]
    A, v, w = made(numbers(shape)), numbers(shape, 2), numbers(shape, 3)
    for B in (A, -A, A.astype(np.dtype("float32")), krylix.as_operator(A), pickle.loads(pickle.dumps(A))):
        np.testing.assert_allclose(with_new_values(B, v, name).toarray(), made(v).toarray())
        np.testing.assert_array_equal(B.with_values(B.values).toarray(), B.toarray())
    many = [np.stack(pair) for pair in zip(v, w, strict=True)] if name == "Stencil" else np.stack([v, w])
    batch = A.with_values(many)
    np.testing.assert_allclose(batch.toarray(), [made(v).toarray(), made(w).toarray()])
    np.testing.assert_array_equal(batch.with_values(batch.values).toarray(), batch.toarray())
    np.testing.assert_allclose(with_new_values(batch[1], v, name).toarray(), made(v).toarray())
    for C in (A.T, A.to("csr"), A @ A, A.to(A.format)):  # computed or converted: as they store them
        np.testing.assert_array_equal(C.with_values(C.values).toarray(), C.toarray())
    assert A.to(A.format).value_order is None and A.to("csr").value_order is None
    with pytest.raises(ValueError, match=r"Values of the shapes .* expected"):
        A.with_values(np.ones(3))


@pytest.mark.parametrize("like", ("numpy", "jax", "torch", "tf"))
@pytest.mark.parametrize("format", ("csr", "csc", "coo", "bsr", "dia", "lil"))
def test_scipy(format: str, like: str) -> None:
    """Zeros are entries, too, also those that SciPy's conversion of diagonals drops."""
    S: Any = sp.coo_array((numbers((7,)), (ROWS, COLS)), (N, N))
    if format == "dia":
        S = sp.dia_array((np.array([[0.0, 2, 3], [0, 5, 0], [1, 0, 4]]), [-1, 0, 2]), (N, N))
    elif format != "coo":
        S = S.asformat(format)
    data = S.tocsr().data if format == "lil" else S.data
    A: Any = krylix.as_operator(S, like=array(like, np.ones(N)))
    v, given = numbers(data.shape, 2), S.tocsr() if format == "lil" else S.copy()
    given.data = v
    np.testing.assert_array_equal(A.with_values(v).toarray(), given.toarray())
    np.testing.assert_array_equal(A.with_values(array(like, v)).toarray(), given.toarray())
    assert to_numpy(A.values).shape == v.shape or format == "lil"


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support is in beta")
@pytest.mark.parametrize(
    ("mode", "layout"),
    [("jax-jit", "padded"), ("jax-jit", "csr"), ("torch", "coo"), ("torch", "csc"), ("torch", "bsr"), ("tf", "coo")],
)
def test_native_objects(mode: str, layout: str) -> None:
    """In the order of `data` or `values`, with gradients: those of a sum of x over the entries."""
    A, data, rows, cols = native(mode, layout)
    pattern: Any = krylix.as_operator(A)
    v, x = numbers(data.shape, 2), np.array([1.0, 10, 100, 1000])
    want = np.zeros(N + 1)  # padding goes to a row that does not exist
    np.add.at(want, rows, v.ravel() * np.append(x, 0)[cols])
    found = compiled(mode, lambda v: pattern.with_values(v) @ array(mode, x))(array(mode, v))
    np.testing.assert_allclose(to_numpy(found), want[:N])
    slope = gradient(mode, lambda v: pattern.bk.sum(pattern.with_values(v) @ array(mode, x), (0,)), array(mode, v))
    np.testing.assert_allclose(to_numpy(slope).ravel(), np.append(x, 0)[cols])


def native(mode: str, layout: str) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A native matrix, its values, and the place of each."""
    unique = np.arange(5)  # without the second (1, 0)
    v, dense = numbers((7,)), np.zeros((N, N))
    np.add.at(dense, (ROWS, COLS), v)
    if layout == "padded":
        from jax.experimental.sparse import BCOO

        rows, cols, v = np.append(ROWS, N), np.append(COLS, N), np.append(v, 5)
        return BCOO((array(mode, v), array(mode, np.stack([rows, cols], 1))), shape=(N, N)), v, rows, cols
    if mode == "tf":
        import tensorflow as tf

        places = np.stack([ROWS, COLS], 1)[unique]
        return tf.SparseTensor(places, v[unique], (N, N)), v[unique], ROWS[unique], COLS[unique]
    rows, cols = np.nonzero(dense.T if layout == "csc" else dense)
    if layout == "csc":
        rows, cols = cols, rows
    if layout == "bsr":
        where = np.arange(N * N).reshape(N, N)
        blocks = [where[i : i + 2, j : j + 2] for i in (0, 2) for j in (0, 2) if dense[i : i + 2, j : j + 2].any()]
        rows, cols = np.divmod(np.array(blocks).ravel(), N)
        return native_sparse(mode, dense, layout), dense[rows, cols].reshape(-1, 2, 2), rows, cols
    return native_sparse(mode, dense, layout), dense[rows, cols], rows, cols


@pytest.mark.needs("jax")
def test_programs_are_kept_for_each_order() -> None:
    """Two matrices of one structure and different orders, as arguments of one compiled function."""
    import jax

    v, back = numbers((7,)), np.arange(7)[::-1]
    one, other = (COO(array("jax", v[i]), ROWS[i], COLS[i], (N, N)) for i in (np.arange(7), back))
    renewed = jax.jit(lambda A, v: A.with_values(v).dense())
    want = COO(v, ROWS, COLS, (N, N)).toarray()
    np.testing.assert_allclose(renewed(one, v), want)
    np.testing.assert_allclose(renewed(other, v[back]), want)
    both = krylix.sparse.stack([one, other])
    np.testing.assert_allclose(both.with_values(both.values).toarray(), [want, want])


def test_files_hold_no_order(tmp_path: Any) -> None:
    A = COO(numbers((7,)), ROWS, COLS, (N, N))
    save(tmp_path / "A.npz", A)
    B: Any = krylix.sparse.load(tmp_path / "A.npz")
    np.testing.assert_array_equal(B.with_values(B.values).toarray(), A.toarray())
