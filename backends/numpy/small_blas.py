"""Dense products split into BLAS calls small enough for OpenBLAS to run each in the calling thread.

It spreads larger ones over threads, and on a busy machine then waits for them: ten times as long as the work, and more.
Where parts begin depends on shapes alone, so that results are the same, to the last digit, for any number of threads.
"""

from __future__ import annotations

import numpy as np

from ..cores import shared as cores

_ROWS = 31  # of a stack in one call
_PART = {"d": 256, "f": 256, "D": 128, "F": 128}  # of a row: with all rows less than 9216 numbers, or 4096 complex ones
_LEAST = {"d": 9216, "f": 9216, "D": 4096, "F": 4096}  # numbers of a matrix that is spread, times a vector
_TASK = 1 << 18  # numbers of a stack for one thread of ours
_PRODUCT = 1 << 18  # multiplications from which a product of matrices is spread ...
_WORTH_IT = 1 << 24  # ... and from which that is worth it


def times_rows(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Each row of x `(b, m)` times the matrix `(n, m)`: `x @ matrix.T`."""
    work = x.shape[0] * matrix.size
    block = _PRODUCT // max(matrix.size, 1)
    if not (_PRODUCT < work <= _WORTH_IT and block > 1):
        return x @ matrix.T
    image = np.empty((len(x), len(matrix)), np.result_type(x, matrix))
    for start in range(0, len(x), block):
        np.matmul(x[start : start + block], matrix.T, out=image[start : start + block])
    return image


def times_each(matrices: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`(b, n, m)` times a vector `(b, m)` each: `(b, n)`."""
    x = np.ascontiguousarray(x)  # as strided numbers add up otherwise
    code = matrices.dtype.char
    if code not in _PART or x.dtype != matrices.dtype or matrices[:1].size < _LEAST[code]:
        return np.matmul(matrices, x[..., None])[..., 0]
    image = np.empty(matrices.shape[:2], x.dtype)
    for own, matrix, vector in zip(image, matrices, x, strict=True):
        if matrix.shape[1] > matrix.shape[0] and matrix.strides[1] == matrix.itemsize:
            own[:] = _components(matrix, vector)
        elif matrix.shape[0] > matrix.shape[1] and matrix.strides[0] == matrix.itemsize:
            _combination(matrix.T, vector, own)
        else:
            np.matmul(matrix, vector, out=own)
    return image


def _components(stack: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Few long rows `(k, n)` times v: blockwise dot products, added in a fixed order."""
    (k, n), part = stack.shape, _PART[stack.dtype.char]
    parts = n // part
    found, end = np.empty((parts + 1, k), stack.dtype), parts * part

    def work(first: int, last: int) -> None:
        inside = slice(first * part, last * part)
        vectors = v[inside].reshape(-1, part, 1)
        for row in range(0, k, _ROWS):
            own = stack[row : row + _ROWS, inside].reshape(-1, last - first, part)
            found[first:last, row : row + _ROWS] = np.matmul(own.transpose(1, 0, 2), vectors)[..., 0]

    cores.in_blocks(work, parts, max(_TASK // (k * part), 1))
    for row in range(0, k, _ROWS):
        np.matmul(stack[row : row + _ROWS, end:], v[end:], out=found[parts, row : row + _ROWS])
    sums: np.ndarray = np.add.reduce(found, 0)
    return sums


def _combination(stack: np.ndarray, c: np.ndarray, image: np.ndarray) -> None:
    """Linear combination of few long rows `(k, n)` with coefficients c, blockwise."""
    (k, n), part = stack.shape, _PART[stack.dtype.char]
    parts = n // part
    end = parts * part

    def work(first: int, last: int) -> None:
        inside = slice(first * part, last * part)
        for row in range(0, k, _ROWS):
            own = stack[row : row + _ROWS, inside].reshape(-1, last - first, part)
            add(row, inside, np.matmul(own.transpose(1, 2, 0), c[row : row + _ROWS]).reshape(-1))

    def add(row: int, inside: slice, found: np.ndarray) -> None:
        if row:
            image[inside] += found
        else:
            image[inside] = found

    cores.in_blocks(work, parts, max(_TASK // (k * part), 1))
    for row in range(0, k, _ROWS):
        add(row, slice(end, n), c[row : row + _ROWS] @ stack[row : row + _ROWS, end:])
