"""Products by BLAS in small calls: right, and of each system what it is alone; test_processes.py has their threads."""

import numpy as np
import pytest

from krylix.backends.numpy.vectors import times_each, times_rows

rng = np.random.default_rng(0)
SHAPES = [(31, 2000), (5, 20_000), (70, 300), (100, 100), (1, 20_000), (32, 256), (31, 255), (40, 2049)]


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    found = rng.standard_normal(shape)
    return (found + 1j * rng.standard_normal(shape) if dtype in "FD" else found).astype(dtype)


@pytest.mark.parametrize("dtype", "fdFD")
def test_stacks(dtype: str) -> None:
    """Both ways, of the first vectors of a stack too; a system alone gives the same to the last digit."""
    eps = np.finfo(dtype).eps
    for k, n in SHAPES:
        stack = random((2, k + 3, n), dtype)[:, :k]
        for matrices, x in ((stack, random((2, n), dtype)), (stack.swapaxes(1, 2), random((2, k), dtype))):
            found, size = times_each(matrices, x), np.einsum("bij,bj->bi", np.abs(matrices), np.abs(x))
            assert found.dtype == dtype
            assert np.all(np.abs(found - np.einsum("bij,bj->bi", matrices, x)) <= 50 * eps * size)
            np.testing.assert_array_equal(times_each(matrices[1:], x[1:])[0], found[1])


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("shape", [(97, 97, 97), (500, 40, 30), (3, 5, 4), (300, 300, 300), (0, 4, 4)])
def test_matrices(shape: tuple[int, int, int], dtype: str) -> None:
    b, n, m = shape
    x, matrix = random((b, m), dtype), random((n, m), dtype)
    np.testing.assert_allclose(times_rows(matrix, x), x @ matrix.T, rtol=0, atol=200 * np.finfo(dtype).eps * m)
