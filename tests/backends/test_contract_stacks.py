"""Several vectors for each system in one array; and rows in the form in which grids stay spread over devices."""

from typing import Any

import numpy as np
import pytest

from contract import CELLS, backend, check, covers, rows, run, wide

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)


@covers("room_for", "fold", "unfold")
@cells
def test_stacks(mode: str, dtype: str) -> None:
    """Zeros at first; rows that are put in are found again, combined as by a matrix, after folding and unfolding."""
    first, second, weights = rows(dtype, (2, 7), 3), rows(dtype, (2, 7), 4), rows(dtype, (2, 3), 5)

    def stacked(bk: Any, first: Any, second: Any, weights: Any) -> Any:
        room = bk.room_for(first, 3)
        stack = bk.put_row(room, bk.asarray(np.array([[0], [2]], np.int32), like=first), first)
        stack = bk.unfold(bk.fold(stack), 3)
        stack = bk.put_row(stack, bk.asarray(np.array([[1], [1]], np.int32), like=first), second)
        return bk.fold(stack), bk.product(bk.matrix_transpose(stack), weights), bk.product(stack, second)

    flat, combined, products = run(mode, stacked, first, second, weights)
    expected = np.zeros((2, 3, 7), wide(first).dtype)
    expected[0, 0], expected[1, 2], expected[:, 1] = first[0], first[1], second
    assert flat.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(flat.reshape(2, 3, 7), expected)
    size = np.abs(wide(first)) + np.abs(wide(second))
    check(combined, np.einsum("bkn,bk->bn", expected, wide(weights)), dtype, 3 * size * np.abs(weights).max())
    check(products, np.einsum("bkn,bn->bk", expected, wide(second)), dtype, 7 * size.max() ** 2)


@covers("on_grid", "flat", "spreads_arrays")
@cells
def test_rows_as_grids(mode: str, dtype: str) -> None:
    """On one device they are the rows themselves; on several, `test_sharding.py` looks at them."""
    x = rows(dtype, (2, 12), 3)

    def there_and_back(bk: Any, x: Any) -> Any:
        grid = bk.on_grid(x, (3, 4))
        return bk.flat(grid), bk.flat(grid + grid), bk.dot(grid, grid)

    same, doubled, dots = run(mode, there_and_back, x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(doubled, x + x)
    check(dots, np.sum(np.abs(wide(x)) ** 2, 1, keepdims=True), dtype, 12 * np.abs(wide(x)).max() ** 2)
    assert not backend(mode).spreads_arrays()


@covers("stack_dots", "unknowns", "replicated")
@cells
def test_vectors_that_are_whole(mode: str, dtype: str) -> None:
    """Without a communicator sums are those of the rows; `test_over.py` looks at parts of vectors."""
    stack, v = rows(dtype, (2, 3, 7), 3), rows(dtype, (2, 7), 4)

    def products(bk: Any, stack: Any, v: Any) -> Any:
        return bk.stack_dots(stack, v), bk.replicated(v)

    dots, same = run(mode, products, stack, v)
    size = np.abs(wide(stack)).max() * np.abs(wide(v)).max()
    check(dots, np.einsum("bkn,bn->bk", wide(stack), wide(v)), dtype, 7 * size)
    np.testing.assert_array_equal(same, v)
    assert backend(mode).unknowns(v) == 7 and backend(mode).communicator is None
