"""Blocks of rows: updates with small matrices, part by part; eigenvectors of small Hermitian matrices."""

from typing import Any

import numpy as np
import pytest

from contract import CELLS, LONG, check, covers, real_of, rows, run, wide

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)
SHAPES = ((1, 5), (3, 5), (1, LONG), (4, LONG), (3, 40_000))


@covers("axpy_block", "xpay_block")
@cells
def test_block_updates(mode: str, dtype: str) -> None:
    """y may be overwritten; x and the coefficients never are."""
    for k, n in SHAPES:
        c, x, y = rows(dtype, (k, k), 3), rows(dtype, (k, n), 4), rows(dtype, (k, n), 5)
        kept = c.copy(), x.copy()

        def updates(bk: Any, c: Any, x: Any, y: Any) -> Any:
            more = bk.axpy_block(c, x, bk.axpy_block(c, x, bk.copy(y)))
            twice = bk.xpay_block(x, c, bk.xpay_block(x, c, bk.copy(y)))
            return more, twice, bk.xpay_block(None, c, bk.copy(y)), bk.dot(more, twice)

        added, turned, product, dots = run(mode, updates, c, x, y)
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
    for k in (1, 2, 7):
        m = rows(dtype, (k, k), 3)
        for matrix in ((m + m.conj().T).astype(dtype), np.zeros_like(m), np.eye(k, dtype=dtype)):
            values, vectors = run(mode, lambda bk, m: bk.linalg.eigh(m), matrix)
            assert values.dtype == real_of(dtype) and vectors.dtype == np.dtype(dtype) and np.all(np.diff(values) >= 0)
            limit = 40 * np.finfo(dtype).eps * max(np.linalg.norm(matrix), 1)
            np.testing.assert_allclose((vectors * values) @ vectors.conj().T, matrix, atol=limit)
            np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(k), atol=limit)


@covers("by_parts")
@cells
def test_by_parts(mode: str, dtype: str) -> None:
    """New values of the first blocks, whether the function writes to its own or not, and sums over all unknowns."""
    for k, n in SHAPES:
        x, y, c = rows(dtype, (k, n), 3), rows(dtype, (k, n), 4), rows(dtype, (k, k), 5)

        def both(bk: Any, x: Any, y: Any, c: Any) -> Any:
            def function(x: Any, y: Any, z: Any) -> Any:
                return (bk.axpy_block(c, z, x), y + z), (bk.product(z, bk.conj(y)), bk.sum(z, 1, keepdims=True))

            (a, b), (g, s) = bk.by_parts(function, bk.copy(x), bk.copy(y), y)
            _, (other,) = bk.by_parts(lambda x: ((), (bk.product(x, bk.conj(x)),)), x)
            return a, b, g, s, other

        a, b, g, s, other = run(mode, both, x, y, c)
        wx, wy, wc = wide(x), wide(y), wide(c)
        check(a, wx + wc @ wy, dtype, np.abs(wx) + np.abs(wc) @ np.abs(wy))
        check(b, 2 * wy, dtype)
        check(g, wy.conj() @ wy.T, dtype, np.abs(wy) @ np.abs(wy).T)
        check(s, wy.sum(1, keepdims=True), dtype, np.abs(wy).sum(1, keepdims=True))
        check(other, wx.conj() @ wx.T, dtype, np.abs(wx) @ np.abs(wx).T)
