"""Blocks of rows: updates with small matrices, part by part; eigenvectors of small Hermitian matrices."""

from typing import Any

import numpy as np
import pytest

from contract import CELLS, LONG, check, covers, real_of, rows, run_each, wide

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)
SHAPES = ((1, 5), (3, 5), (1, LONG), (4, LONG), (3, 40_000))


@covers("axpy_block", "xpay_block")
@cells
def test_block_updates(mode: str, dtype: str) -> None:
    """y may be overwritten; x and the coefficients never are."""

    def updates(bk: Any, c: Any, x: Any, y: Any) -> Any:
        more = bk.axpy_block(c, x, bk.axpy_block(c, x, bk.copy(y)))
        twice = bk.xpay_block(x, c, bk.xpay_block(x, c, bk.copy(y)))
        return more, twice, bk.xpay_block(None, c, bk.copy(y)), bk.dot(more, twice)

    given = [(rows(dtype, (k, k), 3), rows(dtype, (k, n), 4), rows(dtype, (k, n), 5)) for k, n in SHAPES]
    before = [(c.copy(), x.copy()) for c, x, _ in given]
    every = run_each(mode, [(updates, case) for case in given])
    for (c, x, y), kept, (added, turned, product, dots) in zip(given, before, every, strict=True):
        n = x.shape[1]
        wc, wx, wy = wide(c), wide(x), wide(y)
        size = (1 + np.abs(wc)) @ ((1 + np.abs(wc)) @ (np.abs(wx) + np.abs(wy)))
        check(added, wy + 2 * wc @ wx, dtype, size)
        check(turned, wx + wc @ (wx + wc @ wy), dtype, size)
        check(product, wc @ wy, dtype, size)
        check(dots[:, 0], np.sum(added.conj() * turned, 1, dtype=wide(c).dtype), dtype, n * size.max() ** 2)
        assert np.array_equal(c, kept[0]) and np.array_equal(x, kept[1]) and added.dtype == np.dtype(dtype)


@covers("linalg.eigh")
@cells
def test_eigh(mode: str, dtype: str) -> None:
    several = [rows(dtype, (k, k), 3) for k in (1, 2, 7)]
    several = [a.astype(dtype) for m in several for a in (m + m.conj().T, np.zeros_like(m), np.eye(len(m)))]
    every = run_each(mode, [(lambda bk, m: bk.linalg.eigh(m), (matrix,)) for matrix in several])
    for matrix, (values, vectors) in zip(several, every, strict=True):
        assert values.dtype == real_of(dtype) and vectors.dtype == np.dtype(dtype) and np.all(np.diff(values) >= 0)
        limit = 40 * np.finfo(dtype).eps * max(np.linalg.norm(matrix), 1)
        np.testing.assert_allclose((vectors * values) @ vectors.conj().T, matrix, atol=limit)
        np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(len(matrix)), atol=limit)


@covers("by_parts")
@cells
def test_by_parts(mode: str, dtype: str) -> None:
    """New values of the first blocks, whether the function writes to its own or not, and sums over all unknowns."""

    def both(bk: Any, x: Any, y: Any, c: Any) -> Any:
        def function(x: Any, y: Any, z: Any) -> Any:
            return (bk.axpy_block(c, z, x), y + z), (bk.product(z, bk.conj(y)), bk.sum(z, 1, keepdims=True))

        (a, b), (g, s) = bk.by_parts(function, bk.copy(x), bk.copy(y), y)
        _, (other,) = bk.by_parts(lambda x: ((), (bk.product(x, bk.conj(x)),)), x)
        return a, b, g, s, other

    given = [(rows(dtype, (k, n), 3), rows(dtype, (k, n), 4), rows(dtype, (k, k), 5)) for k, n in SHAPES]
    for (x, y, c), (a, b, g, s, other) in zip(given, run_each(mode, [(both, case) for case in given]), strict=True):
        wx, wy, wc = wide(x), wide(y), wide(c)
        check(a, wx + wc @ wy, dtype, np.abs(wx) + np.abs(wc) @ np.abs(wy))
        check(b, 2 * wy, dtype)
        check(g, wy.conj() @ wy.T, dtype, np.abs(wy) @ np.abs(wy).T)
        check(s, wy.sum(1, keepdims=True), dtype, np.abs(wy).sum(1, keepdims=True))
        check(other, wx.conj() @ wx.T, dtype, np.abs(wx) @ np.abs(wx).T)
