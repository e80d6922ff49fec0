"""Blocks of large arrays on several threads: the same numbers for any number of these, and none for small arrays."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import in_turn
from krylix import linear_solve
from krylix.backends import get_backend, host_math
from krylix.backends.host_math import Cores, available, cores, rows_times
from krylix.sparse import Stencil

N = 2 * 131072 + 17  # several blocks, the last one short
DTYPES = ("float32", "float64", "complex64", "complex128")
rng = np.random.default_rng(0)
bk: Any = get_backend("numpy")


@pytest.fixture(autouse=True)
def give_back() -> Iterator[None]:
    yield
    cores.use(None)


def numbers(dtype: str, *shape: int) -> np.ndarray:
    found = rng.standard_normal(shape)
    return (found + 1j * rng.standard_normal(shape) if dtype.startswith("c") else found).astype(dtype)


def of_each_number(call: Callable[[], Any]) -> Any:
    """What it returns with one thread, which is what it returns with any number of them."""
    found = []
    for threads in (1, 2, 3):
        cores.use(threads)
        found.append(call())
        assert cores.started == (threads > 1)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    return found[0]


def tridiagonal(dtype: str, n: int = N) -> sp.csr_array:
    data = numbers(dtype, 3, n)
    return sp.csr_array(sp.dia_array((data, (-1, 0, 700)), shape=(n, n)))


@pytest.mark.parametrize(("dtype", "columns"), in_turn(DTYPES, [None, 1, 3]))
def test_rows_are_those_of_scipy(dtype: str, columns: int | None) -> None:
    A = tridiagonal(dtype)
    x = numbers(dtype, N) if columns is None else numbers(dtype, columns, N).T  # as solvers hold vectors
    found = of_each_number(lambda: rows_times(A, x))
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, A @ x)


def test_rows_in_any_order() -> None:
    """Legacy matrices, wide indices, duplicates, empty rows and rectangular matrices."""
    n, m = 200_000, 50
    rows, cols = rng.integers(0, n // 2, 300_000), rng.integers(0, m, 300_000)
    order = np.argsort(rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    x, values = numbers("float64", m), numbers("float64", len(rows))
    exact = np.zeros(n)
    np.add.at(exact, rows, values * x[cols])
    for kind in (sp.csr_array, sp.csr_matrix):
        for dtype in (np.int32, np.int64):
            A = kind((values[order], cols[order].astype(dtype), starts.astype(dtype)), (n, m))
            found = of_each_number(lambda A=A: rows_times(A, x))
            np.testing.assert_allclose(found, exact, atol=1e-12)
    with pytest.raises(ValueError):
        rows_times(A, x[:-1])


@pytest.mark.parametrize("kind", [sp.csc_array, sp.coo_array, sp.dia_array, "mixed"])
def test_what_is_left_to_scipy(kind: Any) -> None:
    A = tridiagonal("float64")
    A, x = (A, numbers("float32", N)) if kind == "mixed" else (kind(A), numbers("float64", N))
    cores.use(3)
    np.testing.assert_array_equal(rows_times(A, x), A @ x)
    assert not cores.started


@pytest.mark.parametrize(
    ("dtype", "transposed", "batch"),
    [("float32", False, 1), ("float64", True, 2), ("complex64", True, 1), ("complex128", False, 2)],
)
def test_diagonals(dtype: str, transposed: bool, batch: int) -> None:
    diagonals, x, offsets = numbers(dtype, 3, N), numbers(dtype, batch, N), (-900, 0, 1)
    found = of_each_number(lambda: bk.dia_product(diagonals, offsets, x, N, transposed))
    by_column = [np.roll(d, o) for d, o in zip(diagonals, offsets, strict=True)]
    A = sp.dia_array((np.array(by_column), offsets), shape=(N, N))
    exact = ((A.T if transposed else A) @ x.T).T
    np.testing.assert_allclose(found, exact, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("dtype", "grid", "batch"),
    [
        ("float32", (N,), 2),
        ("float64", (611, 450), 1),
        ("complex64", (3, 300, 300), 1),
        ("complex128", (2, 140_000), 2),
        ("float64", (N,), 1),
    ],
)
def test_boxes(dtype: str, grid: tuple[int, ...], batch: int) -> None:
    shifts = [(0,) * len(grid), (1,) * len(grid), (-1, *(0,) * (len(grid) - 1))]
    coefficients = [numbers(dtype)[()], numbers(dtype, *grid), numbers(dtype)[()]]
    A, x = Stencil(coefficients, shifts, grid), numbers(dtype, batch, N if len(grid) == 1 else int(np.prod(grid)))
    found = of_each_number(lambda: A.apply(x))
    exact = (A.to_scipy() @ x.T).T
    np.testing.assert_allclose(found, exact, atol=50 * np.finfo(dtype).eps)


def test_stencils_of_a_batch() -> None:
    grid, x = (600, 500), numbers("float64", 2, 300_000)
    A = Stencil([numbers("float64", 2, 1, 1), numbers("float64", 2, *grid)], [(0, 0), (0, 1)], grid)
    found = of_each_number(lambda: A.apply(x))
    np.testing.assert_allclose(found, [A[i].to_scipy() @ x[i] for i in range(2)], atol=1e-13)


@pytest.mark.parametrize(("dtype", "shape"), in_turn(DTYPES, [(1, N), (8, 40_000), (3, 131072), (20, 20_000)]))
def test_sums_and_updates(dtype: str, shape: tuple[int, int]) -> None:
    """And each row as if it were alone."""
    x, y, z = (numbers(dtype, *shape) for _ in range(3))
    a, b = numbers(dtype, shape[0], 1), numbers(dtype, shape[0], 1)
    wide, eps = np.result_type(dtype, np.longdouble), np.finfo(dtype).eps

    def all_of(rows: slice) -> list[np.ndarray]:
        own = [v[rows].copy() for v in (x, y, z)]
        updated, norm = bk.axpy_norm(a[rows], x[rows], own[1])
        moved, direction = bk.axpy_xpay(a[rows], own[0], own[2], y[rows], b[rows])
        single = bk.axpy(a[rows], x[rows], y[rows].copy()), bk.xpay(y[rows], b[rows], x[rows].copy())
        np.testing.assert_array_equal(single, (updated, direction))
        np.testing.assert_array_equal(norm, bk.square_norm(updated))
        return [bk.dot(x[rows], y[rows]), norm, moved, direction, updated]

    found = []
    for threads in (1, 2, 3):
        cores.use(threads)
        found.append(all_of(slice(None)))
        assert cores.started == (threads > 1)
        found.append([np.concatenate(parts) for parts in zip(*(all_of(slice(i, i + 1)) for i in range(shape[0])))])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    updated = y.astype(wide) + a * x.astype(wide)
    exact = [
        np.sum(x.astype(wide).conj() * y, 1, keepdims=True),
        np.sum(np.abs(updated) ** 2, 1, keepdims=True),
        z + a * x.astype(wide),
        y + b * x.astype(wide),
        updated,
    ]
    for one, true in zip(found[0], exact, strict=True):
        np.testing.assert_allclose(one, true, rtol=100 * eps, atol=1e4 * eps)


@pytest.mark.parametrize("kind", [None, "multigrid"])
def test_a_solve_has_the_same_digits(kind: str | None) -> None:
    """With any number of threads, of a matrix in rows, of diagonals, and of a stencil with what is made of it."""
    grid, b = (300, 300), numbers("float64", 90_000)
    A: Any = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)], grid)
    rows = A.to_scipy()
    for matrix in (A,) if kind else (A, rows, sp.dia_array(rows)):

        def solved(matrix: Any = matrix) -> np.ndarray:
            found = linear_solve(matrix, b, method="CG", preconditioner=kind, max_iter=4, on_failure="status")
            return np.asarray(found.x)

        x = of_each_number(solved)
        if kind is None:
            np.testing.assert_allclose(x, spl.cg(rows, b, rtol=0, maxiter=4)[0], atol=1e-10)
        else:
            assert np.linalg.norm(b - rows @ x) < 0.1 * np.linalg.norm(b)


def test_without_scipys_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are its own, and may move."""
    A, x, y, d = tridiagonal("float64"), numbers("float64", 1, N), numbers("float64", 1, N), numbers("float64", 3, N)
    a = numbers("float64", 1, 1)

    def all_of() -> list[np.ndarray]:
        return [rows_times(A, x[0]), bk.axpy(a, x, y.copy())[0], bk.dia_product(d, (-1, 0, 1), x, N)[0]]

    expected = all_of()
    monkeypatch.setattr(host_math, "_COMPLETE", False)
    np.testing.assert_allclose(all_of(), expected, rtol=1e-12, atol=1e-12)


def test_loops_never_read_beyond_their_arrays() -> None:
    short, long = np.ones(3), np.ones(5)
    for wrong in (
        lambda: host_math.add_product(short, long, long.copy()),
        lambda: host_math.add_product(long, long, short),
    ):
        with pytest.raises(ValueError, match="broadcast"):
            wrong()
    with pytest.raises(ValueError, match="broadcast"):
        host_math.add_multiple(np.ones(1), long, short)
    strided = np.zeros(6)
    host_math.add_product(np.arange(6.0)[::2], np.arange(6.0)[::2], strided[::2])
    host_math.add_multiple(np.ones(1), np.arange(6.0)[::2], strided[::2])
    np.testing.assert_array_equal(strided, [0, 0, 6, 0, 20, 0])


def test_each_block_once_and_in_fixed_places() -> None:
    for pool in map(Cores, (1, 2, 3)):
        found: set[tuple[int, int]] = set()
        pool.in_blocks(lambda *block: found.add(block), 10, 4)  # noqa: B023
        assert found == {(0, 4), (4, 8), (8, 10)}
        pool.in_blocks(lambda *_: pytest.fail("there is no block"), 0, 4)


def test_small_arrays_start_no_thread() -> None:
    cores.use(8)
    A, b = tridiagonal("float64", 1000), np.ones(1000)
    linear_solve(A @ A.T + sp.eye_array(1000), b, method="CG", on_failure="status", max_iter=5)
    for n in (1, 16384):
        bk.dia_product(np.ones((1, n)), (0,), np.ones((1, n)), n)
        rows_times(sp.eye_array(n, format="csr"), np.ones(n))
    assert not cores.started


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_errors_come_out(threads: int) -> None:
    cores, seen = Cores(threads), []

    def work(start: int, end: int) -> None:
        seen.append(start)
        if start == 7:
            raise IndexError("of block 7")

    with pytest.raises(IndexError, match="of block 7"):
        cores.in_blocks(work, 10, 1)
    assert len(set(seen)) == len(seen)
    cores.in_blocks(lambda start, end: seen.append(-1), 10, 1)
    assert seen.count(-1) == 10


def test_an_error_of_a_helper_comes_out() -> None:
    """Also where the caller's own blocks are fine."""
    cores, caller, raised = Cores(2), threading.get_ident(), threading.Event()

    def work(start: int, end: int) -> None:
        if threading.get_ident() != caller:
            raised.set()
            raise ArithmeticError("of the helper")
        assert raised.wait(10)

    with pytest.raises(ArithmeticError, match="of the helper"):
        cores.in_blocks(work, 2, 1)


def test_settings_for_floating_point_errors_are_the_callers() -> None:
    zeros, cores, here = np.zeros(4), Cores(2), threading.get_ident()
    helped = threading.Event()

    def work(start: int, end: int) -> None:
        if threading.get_ident() == here:
            helped.wait(10)
            return
        try:
            np.divide(1, zeros)
        finally:
            helped.set()

    with np.errstate(all="ignore"):
        cores.in_blocks(work, 2, 1)  # warnings are errors here
    helped.clear()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        cores.in_blocks(work, 2, 1)


def test_blocks_in_blocks_and_in_many_threads() -> None:
    cores, found, lock = Cores(3), [], threading.Lock()

    def inner(start: int, end: int) -> None:
        with lock:
            found.append(end - start)

    def outer() -> None:
        cores.in_blocks(lambda start, end: cores.in_blocks(inner, 20, 1), 20, 1)

    threads = [threading.Thread(target=outer) for _ in range(6)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not any(t.is_alive() for t in threads)
    assert len(found) == 6 * 20 * 20


def test_without_a_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    cores, found = Cores(3), []
    cores.in_blocks(lambda start, end: found.append(start), 10, 1)
    assert found == list(range(10))


def test_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for said, expected in {"": 6, "1": 1, "3": 3, "64": 6, "2,1": 2, "0": 6, "-1": 6, "many": 6}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert available() == expected, said
        assert Cores().count == expected, said
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert available() == 6
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(200)), raising=False)
    assert Cores().count < 20
