"""The product kernels of sparse matrices in every mode and dtype, against dense matrices in double precision."""

from typing import Any

import numpy as np
import pytest

import krylix.backends.interface.kernels
import krylix.backends.numpy.kernels
from contract import CELLS, MODES, backend, check, covers, rows, run, run_each, wide
from frameworks import torch
from krylix.backends import Backend
from krylix.backends.interface.kernels import Bilinear, diagonal_places
from krylix.sparse.formats.boxes import Shifted
from krylix.sparse.formats.entries.values import ell_sample, entries_sample
from modes import array, to_numpy

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)
modes = pytest.mark.parametrize("mode", MODES)
BATCHES = (1, 3)


def dense_diagonals(diagonals: np.ndarray, offsets: tuple[int, ...], m: int) -> np.ndarray:
    n = diagonals.shape[1]
    matrix = np.zeros((n, m), diagonals.dtype)
    for diagonal, o in zip(diagonals, offsets, strict=True):
        for i in range(max(0, -o), min(n, m - o)):
            matrix[i, i + o] += diagonal[i]
    return matrix


class Two(Bilinear):
    """Two diagonals of a `(3, 4)` matrix; there is one such form, so that it equals itself only."""

    def product(self, bk: Any, values: Any, indices: Any, x: Any) -> Any:
        return bk.dia_product(values[0], (-1, 1), x, 3)

    def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
        return bk.dia_product(values[0], (-1, 1), y, 4, transposed=True)

    def sample(self, bk: Any, indices: Any, y: Any, x: Any) -> Any:
        return (bk.dia_sample((-1, 1), y, x),)


# numbers of rows and columns, offsets: square, tall, wide, some diagonals and all outside, none, empty
DIAGONALS = [
    *((5, 5, (-4, -1, 0, 1, 4)), (7, 4, (-6, -3, 0, 2)), (4, 7, (-2, 0, 3, 6)), (3, 3, (-3, 0, 3, 100, -100))),
    *((3, 4, (-9, 9)), (3, 4, ()), (1, 1, (0,)), (0, 3, (0, 1)), (3, 0, (0, -1))),
]


@covers("dia_product", "dia_sample")
@cells
def test_diagonals(mode: str, dtype: str) -> None:
    """What has no place in the matrix is not read: it is NaN here."""
    cases, calls = [], []
    for n, m, offsets in DIAGONALS if dtype in ("float64", "complex128") else DIAGONALS[:3]:
        diagonals = rows(dtype, (len(offsets), n))
        for d, o in enumerate(offsets):
            outside = (np.arange(n) + o < 0) | (np.arange(n) + o >= m)
            diagonals[d, outside] = np.nan

        def all_three(bk: Backend, d: Any, x: Any, y: Any, n: int = n, m: int = m, o: Any = offsets) -> Any:
            back = bk.dia_product(d, o, y, m, transposed=True)
            return bk.dia_product(d, o, x, n), back, bk.dia_sample(o, y, x)

        for batch in BATCHES:
            x, y = rows(dtype, (batch, m), 1), rows(dtype, (batch, n), 2)
            cases.append((n, m, offsets, diagonals, x, y))
            calls.append((all_three, (diagonals, x, y)))
    for (n, m, offsets, diagonals, x, y), found in zip(cases, run_each(mode, calls), strict=True):
        matrix, size = dense_diagonals(wide(diagonals), offsets, m), 10 * (len(offsets) + 1)
        assert {a.dtype for a in found} == {np.dtype(dtype)}
        exact = np.zeros((len(offsets), n), wide(x).dtype)
        for d, o in enumerate(offsets):
            for i in range(max(0, -o), min(n, m - o)):
                exact[d, i] = wide(y)[:, i] @ wide(x)[:, i + o]
        for one, expected in zip(found, (wide(x) @ matrix.T, wide(y) @ matrix, exact), strict=True):
            check(one, expected, dtype, size)


@covers("dia_added", "prefers_diagonals")
@cells
def test_diagonals_are_added(mode: str, dtype: str) -> None:
    """Or left to the product and a sum: what has no place in the matrix is not read, and only y is overwritten."""
    assert isinstance(backend(mode).prefers_diagonals(array(mode, rows(dtype, (1, 2)))), bool)
    calls, expected = [], []
    for n, offsets in ((5, (-4, -1, 0, 1, 4)), (3, (-3, 0, 3)), (4, ())):
        diagonals = rows(dtype, (len(offsets), n))
        for d, o in enumerate(offsets):
            diagonals[d, (np.arange(n) + o < 0) | (np.arange(n) + o >= n)] = np.nan
        where = list(diagonal_places(offsets, n, n, False))

        def added(bk: Backend, d: Any, x: Any, y: Any, n: int = n, o: Any = offsets, where: Any = where) -> Any:
            own = y + 0 * x
            found = bk.dia_added(own, d, where, x)
            return (own + bk.dia_product(d, o, x, n) if found is None else found), x, y

        for batch in BATCHES:
            x, y = rows(dtype, (batch, n), 1), rows(dtype, (batch, n), 2)
            calls.append((added, (diagonals, x, y)))
            expected.append(wide(y) + wide(x) @ dense_diagonals(wide(diagonals), offsets, n).T)
    for (_, (_, *given)), exact, (found, *same) in zip(calls, expected, run_each(mode, calls), strict=True):
        check(found, exact, dtype, 60)
        for before, now in zip(given, same, strict=True):
            np.testing.assert_array_equal(before, now)


@covers("boxes_product")
@cells
def test_boxes(mode: str, dtype: str) -> None:
    """From one grid to another, with numbers, arrays and one of each for every row; or no way of its own."""
    boxes = [Shifted((0, 1), (3, 2), (1, 0)), Shifted((1, 0), (2, 3), (0, 1)), Shifted((2, 2), (0, 1), (0, 0))]
    calls, expected = [], []
    for batch in BATCHES:
        x = rows(dtype, (batch, 4, 5), 1)
        for each in ((), (1,), (batch,)):
            values = [rows(dtype, (*each, *(1,) * 2 * len(each)), 2), rows(dtype, (*each, 2, 3), 3), rows(dtype, (), 4)]
            exact = np.zeros((batch, 3, 4), wide(x).dtype)
            for box, value in zip(boxes, values, strict=True):
                exact[:, *box.rows] += wide(value) * x[:, *box.cols]

            def product(bk: Backend, x: Any, *values: Any, batch: int = batch) -> Any:
                found = bk.boxes_product(boxes, values, x, (3, 4))
                return bk.zeros((batch, 0), np.dtype(dtype), x) if found is None else found

            calls.append((product, (x, *values)))
            expected.append(exact)
    for found, exact in zip(run_each(mode, calls), expected, strict=True):
        assert found.dtype == np.dtype(dtype)
        assert found.shape == exact.shape or mode != "numpy"
        if found.size:
            check(found, exact, dtype, 30)


@covers("ell_product")
@cells
def test_rows_of_equal_length(mode: str, dtype: str) -> None:
    calls, columns = [], []
    for k, n, m in ((3, 5, 4), (1, 4, 6), (0, 3, 2), (2, 0, 3)):
        values, cols = rows(dtype, (k, n)), np.random.default_rng(0).integers(0, m, (k, n)).astype(np.int32)

        def both(bk: Backend, v: Any, x: Any, y: Any, cols: Any = cols) -> Any:
            return bk.ell_product(v, cols, x), ell_sample(bk, cols, y, x)

        for batch in BATCHES:
            calls.append((both, (values, rows(dtype, (batch, m), 1), rows(dtype, (batch, n), 2))))
            columns.append(cols)
    for (_, (values, x, y)), cols, (product, sample) in zip(calls, columns, run_each(mode, calls), strict=True):
        assert product.dtype == sample.dtype == np.dtype(dtype)
        check(product, np.einsum("di,bdi->bi", wide(values), wide(x)[:, cols]), dtype, 10 * (len(cols) + 1))
        check(sample, np.einsum("bi,bdi->di", wide(y), wide(x)[:, cols]), dtype, 10 * len(x))


def some_entries(n: int, m: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """In no order, with duplicates and rows without any."""
    rng = np.random.default_rng([n, m])
    return rng.integers(0, n, count).astype(np.int32), rng.integers(0, m, count).astype(np.int32)


@covers("entries_product")
@pytest.mark.parametrize(("n", "m", "count"), [(5, 4, 9), (3, 6, 1), (4, 3, 0), (0, 3, 0)])
@cells
def test_entries(mode: str, dtype: str, n: int, m: int, count: int) -> None:
    at, cols = some_entries(n, m, count)
    order = np.argsort(at, kind="stable")
    starts = np.searchsorted(at[order], np.arange(n + 1)).astype(np.int32)
    values = rows(dtype, (count,))
    matrix, size = np.zeros((n, m), wide(values).dtype), 10 * (count + 1)
    np.add.at(matrix, (at, cols), wide(values))

    def all_three(bk: Backend, v: Any, sorted_v: Any, x: Any, y: Any) -> Any:
        by_row = bk.entries_product(sorted_v, at[order], cols[order], x, n, starts)
        return bk.entries_product(v, at, cols, x, n), by_row, entries_sample(bk, at, cols, y, x)

    vectors = [(rows(dtype, (batch, m), 1), rows(dtype, (batch, n), 2)) for batch in BATCHES]
    every = run_each(mode, [(all_three, (values, values[order], *pair)) for pair in vectors])
    for (x, y), (product, by_row, sample) in zip(vectors, every, strict=True):
        assert product.dtype == by_row.dtype == sample.dtype == np.dtype(dtype)
        check(product, wide(x) @ matrix.T, dtype, size)
        check(by_row, wide(x) @ matrix.T, dtype, size)
        check(sample, np.sum(wide(y)[:, at] * wide(x)[:, cols], 0), dtype, 10 * len(x))


@covers("bilinear")
@modes
def test_bilinear_calls_the_form(mode: str) -> None:
    """Its derivatives: test_bilinear_derivatives.py."""
    x, y, diagonals = rows("float64", (2, 4)), rows("float64", (2, 3)), rows("float64", (2, 3))

    def both(bk: Backend, d: Any, x: Any, y: Any) -> Any:
        return bk.bilinear(Two(), (d,), (), x), bk.bilinear(Two(), (d,), (), y, transposed=True)

    image, back = run(mode, both, diagonals, x, y)
    matrix = dense_diagonals(diagonals, (-1, 1), 4)
    np.testing.assert_allclose(image, x @ matrix.T)
    np.testing.assert_allclose(back, y @ matrix)


@modes
def test_sample_of_rows_with_several_columns(mode: str) -> None:
    """The index arrays broadcast."""
    at, cols = np.array([2, 0, 1]), np.array([[0, 3, 1], [2, 2, 0]])
    for batch in BATCHES:
        x, y = rows("float64", (batch, 4), 1), rows("float64", (batch, 3), 2)
        found = run(mode, lambda bk, x, y: (entries_sample(bk, at, cols, y, x),), x, y)[0]
        np.testing.assert_allclose(found, np.sum(y[:, at][:, None] * x[:, cols], 0), rtol=1e-14)


@modes
def test_indices_of_the_library(mode: str) -> None:
    at, cols = some_entries(5, 4, 9)
    order = np.argsort(at, kind="stable")
    starts = np.searchsorted(at[order], np.arange(6)).astype(np.int32)
    values, x = rows("float64", (9,)), rows("float64", (2, 4), 1)

    def products(bk: Backend, v: Any, sorted_v: Any, x: Any, at: Any, cols: Any, starts: Any, *ordered: Any) -> Any:
        return bk.entries_product(v, at, cols, x, 5), bk.entries_product(sorted_v, ordered[1], ordered[0], x, 5, starts)

    for found in run(mode, products, values, values[order], x, at, cols, starts, cols[order], at[order]):
        exact = np.zeros((5, 4))
        np.add.at(exact, (at, cols), values)
        np.testing.assert_allclose(found, x @ exact.T, rtol=1e-13, atol=1e-13)


@modes
def test_not_a_number_stays_in_its_row(mode: str) -> None:
    """Also where other rows have no entry in that column, or none at all."""
    x, values = np.array([[1.0, np.nan, 2.0, np.inf]]), np.array([2.0, 3.0, 1.0])
    at, cols = np.array([0, 1, 3], np.int32), np.array([0, 1, 2], np.int32)
    diagonals = np.ones((2, 4))

    def products(bk: Backend, v: Any, d: Any, x: Any) -> Any:
        starts = np.array([0, 1, 2, 2, 3], np.int32)
        return (
            bk.entries_product(v, at, cols, x, 4),
            bk.entries_product(v, at, cols, x, 4, starts),
            bk.dia_product(d, (-2, 2), x, 4),
        )

    entries, by_row, diagonal = run(mode, products, values, diagonals, x)
    for found in (entries, by_row):
        np.testing.assert_array_equal(found[0], [2, np.nan, 0, 2])
    np.testing.assert_array_equal(diagonal[0], [2, np.inf, 1, np.nan])


@pytest.mark.parametrize("mode", ["numpy", "torch", pytest.param("jax", marks=pytest.mark.slow)])
def test_large_matrices_take_other_ways(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that stay in the cache, and SciPy's compiled loops: as for small ones."""
    if mode == "torch":
        monkeypatch.setattr("krylix.backends.torch.kernels._PART", 7)
    for module, name, value in (
        (krylix.backends.numpy.kernels, "_BYTES", 56),
        (krylix.backends.numpy.kernels, "_SMALL", 1),
        (krylix.backends.numpy.kernels, "_FEW", 1),
        (krylix.backends.interface.kernels, "_UNROLLED", 1),
    ):
        monkeypatch.setattr(module, name, value)
    for dtype in ("float32", "complex128"):
        test_diagonals(mode, dtype)
        test_rows_of_equal_length(mode, dtype)
        test_entries(mode, dtype, 5, 4, 9)
    bk, values = backend(mode), rows("float32", (9,))
    ids = np.array([3, 0, 0, 5, 1, 3, 3, 0, 5], np.int32)
    exact = np.zeros(7)
    np.add.at(exact, ids, values)
    np.testing.assert_allclose(to_numpy(bk.segment_sum(array(mode, values), ids, 7)), exact, rtol=1e-6)
    for n in (1024, 2050):  # longer than the smallest part
        d, x = rows("float64", (3, n)), rows("float64", (2, n), 1)
        found = to_numpy(bk.dia_product(array(mode, d), (-1000, 0, 1), array(mode, x), n))
        back = to_numpy(bk.dia_product(array(mode, d), (-1000, 0, 1), array(mode, x), n, transposed=True))
        matrix = dense_diagonals(d, (-1000, 0, 1), n)
        np.testing.assert_allclose(found, x @ matrix.T, atol=1e-13)
        np.testing.assert_allclose(back, x @ matrix, atol=1e-13)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_torch_kernels_have_derivatives_themselves(transform: str) -> None:
    """Where they are used outside of `bilinear`, nothing is lost."""
    bk = backend("torch")
    d, x = (torch.as_tensor(rows("float64", s)) for s in ((3, 4), (2, 4)))
    at, cols, starts = np.array([0, 1, 1, 3]), np.array([1, 0, 2, 3]), np.array([0, 1, 3, 3, 4])

    def function(d: Any, x: Any) -> Any:
        one = bk.dia_product(d, (-1, 0, 1), x, 4) + bk.dia_product(d, (-1, 0, 1), x, 4, transposed=True)
        return one + bk.entries_product(d[0], at, cols, x, 4, starts) + bk.dia_sample((0, 1), x, x).sum(0)

    def generic(d: Any, x: Any) -> Any:
        kernels: Any = krylix.backends.interface.kernels.Kernels
        products = (kernels.dia_product(bk, d, (-1, 0, 1), x, 4, transposed=t) for t in (False, True))
        sampled = kernels.dia_sample(bk, (0, 1), x, x).sum(0)
        return sum(products) + kernels.entries_product(bk, d[0], at, cols, x, 4) + sampled

    if transform == "grad":
        assert torch.autograd.gradgradcheck(function, (d.requires_grad_(), x.requires_grad_()))
        return
    if transform == "jvp":
        found, want = (torch.func.jvp(f, (d, x), (d, 2 * x))[1] for f in (function, generic))
    else:
        found, want = (torch.func.vmap(f, (None, 0))(d, torch.stack([x, 2 * x])) for f in (function, generic))
    torch.testing.assert_close(found, want)
