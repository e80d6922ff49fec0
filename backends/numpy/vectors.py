"""BLAS-1 operations on long rows: cache-blocked, on all cores.

Sums are those of blocks, added up in their order: the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..host_math import add_multiple, cores

# Elements of one BLAS call. OpenBLAS spreads calls of 10 000 elements and more over threads, and on a busy machine then
# waits for them: 8 ms instead of 4 us was measured.
BLOCK = 8192
BOUNDARY = 64  # bytes
_LEAST = 2**10  # bytes from which copying an array takes longer than looking where it begins
_PART = 16 * BLOCK  # that stays in the cache; of less threads would wait for each other
ALONE = _PART  # up to this length of a row, it is quicker to work on one row at a time without parts and threads
_TASK = 2 * _PART  # of one thread; a sum over less takes no longer than starting one


def _row_by_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([np.vdot(*rows) for rows in zip(a, b, strict=True)], a.dtype)


vecdot = getattr(np, "vecdot", _row_by_row)  # from NumPy 2.0 on; the same BLAS for each row


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros aligned to the processor's vector width, for long rows: other libraries sum from such boundaries."""
    size, item = math.prod(shape), dtype.itemsize
    if size * item < _LEAST:
        return np.zeros(shape, dtype)
    room = np.zeros(size * item + BOUNDARY, np.uint8)
    first = -room.ctypes.data % BOUNDARY
    return room[first : first + size * item].view(dtype).reshape(shape)


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`(batch, 1)` of contiguous rows `(batch, n)`: sum of conj(a) b."""
    sums = _Sums(a)
    _in_parts(lambda i, part: sums.add(i, part, a[i, part], b[i, part]), a)
    return sums.total()


def dot_of_one(a: np.ndarray, b: np.ndarray) -> Any:
    """`dot` of two rows `(n,)` as a number, in one thread."""
    end = len(a) // BLOCK * BLOCK
    sums = vecdot(a[:end].reshape(-1, BLOCK), b[:end].reshape(-1, BLOCK)).tolist()
    if end < len(a):
        sums.append(np.vdot(a[end:], b[end:]).item())
    return a.dtype.type(sum(sums))


def square_sum(a: np.ndarray) -> float:
    """Sum of squares of a real array; BLAS calls stay so short that they run in one thread."""
    flat = a.reshape(-1)
    end = flat.size // BLOCK * BLOCK
    blocks = flat[:end].reshape(-1, BLOCK)
    return float(vecdot(blocks, blocks).sum() + np.vdot(flat[end:], flat[end:]))


def axpy(a: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """`y += a x`, with contiguous y."""
    a = a.astype(y.dtype, copy=False)
    _in_parts(lambda i, part: add_multiple(a[i], x[i, part], y[i, part]), y)


def axpy_of_one(a: Any, x: np.ndarray, y: np.ndarray) -> None:
    """`axpy` of two rows `(n,)` and a number, in one thread."""
    add_multiple(np.array([a], y.dtype), x, y)


def times(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`a x` with one number for each row, or for all."""
    image = np.empty(x.shape, x.dtype)
    a = np.broadcast_to(a, (len(x), 1))
    _in_parts(lambda i, part: np.multiply(x[i, part], a[i, 0], out=image[i, part]), x)
    return image


def scaled(a: np.ndarray, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`a x` elementwise with broadcasting of rows, in another precision, rounded once."""
    a, x = np.broadcast_arrays(a, x)
    image = np.empty(x.shape, dtype)

    def work(i: int, part: slice) -> None:
        np.multiply(a[i, part], x[i, part], out=image[i, part], casting="same_kind")

    _in_parts(work, image)
    return image


def xpay(x: np.ndarray, a: np.ndarray, y: np.ndarray) -> None:
    """`y = x + a y`."""
    _in_parts(lambda i, part: scale_and_add(x[i, part], a[i, 0], y[i, part]), y)


def axpy_norm(a: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`y += a x`, with contiguous y, and the squared norm of that, `(batch, 1)`."""
    a, sums = a.astype(y.dtype, copy=False), _Sums(y)

    def work(i: int, part: slice) -> None:
        own = y[i, part]
        add_multiple(a[i], x[i, part], own)
        sums.add(i, part, own, own)

    _in_parts(work, y)
    return sums.total().real


def axpy_xpay(a: np.ndarray, p: np.ndarray, x: np.ndarray, z: np.ndarray, b: np.ndarray) -> None:
    """`x += a p`, with contiguous x, then `p = z + b p`: p is read once."""
    a = a.astype(x.dtype, copy=False)

    def work(i: int, part: slice) -> None:
        own = p[i, part]
        add_multiple(a[i], own, x[i, part])
        scale_and_add(z[i, part], b[i, 0], own)

    _in_parts(work, p)


def _in_parts(work: Callable[[int, slice], object], like: np.ndarray) -> None:
    """Call `work(row, part)` for all parts of rows `(batch, n)`, in parallel."""
    rows, n = like.shape
    tasks = -(-n // _TASK)  # of a row

    def several(first: int, last: int) -> None:
        for i, task in (divmod(k, tasks) for k in range(first, last)):
            end = min((task + 1) * _TASK, n)
            for start in range(task * _TASK, end, _PART):
                work(i, slice(start, min(start + _PART, end)))

    cores.in_blocks(several, rows * tasks, max(_TASK // max(n, 1), 1))


class _Sums:
    """Sums of conj(a) b over each block of each row."""

    def __init__(self, like: np.ndarray) -> None:
        rows, n = like.shape
        self.found = np.empty((rows, -(-n // BLOCK)), like.dtype)

    def add(self, i: int, part: slice, a: np.ndarray, b: np.ndarray) -> None:
        """Of one part, which begins where a block does."""
        whole, first = len(a) // BLOCK, part.start // BLOCK
        end = whole * BLOCK
        self.found[i, first : first + whole] = vecdot(a[:end].reshape(-1, BLOCK), b[:end].reshape(-1, BLOCK))
        if end < len(a):
            self.found[i, first + whole] = np.vdot(a[end:], b[end:])

    def total(self) -> np.ndarray:
        """`(batch, 1)`."""
        return np.array([[sum(row.tolist())] for row in self.found], self.found.dtype)


def scale_and_add(x: np.ndarray, a: Any, y: np.ndarray) -> None:
    """`y = x + a y`, in one thread."""
    y *= a
    y += x


# --- Dense products split into BLAS calls small enough for OpenBLAS to run each in the calling thread -----------------
# It spreads larger ones over threads, and on a busy machine then waits for them for ten times as long as the work.
# Where parts begin depends on shapes alone, so that results are the same, to the last digit, for any number of threads.

_ROWS = 31  # of a stack in one call
_ROW_PART = {
    "d": 256,
    "f": 256,
    "D": 128,
    "F": 128,
}  # of a row: with all rows less than 9216 numbers, or 4096 complex ones
_SPREAD = {"d": 9216, "f": 9216, "D": 4096, "F": 4096}  # numbers of a matrix that is spread, times a vector
_STACK = 1 << 18  # numbers of a stack for one thread of ours
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
    if code not in _ROW_PART or x.dtype != matrices.dtype or matrices[:1].size < _SPREAD[code]:
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
    (k, n), part = stack.shape, _ROW_PART[stack.dtype.char]
    parts = n // part
    found, end = np.empty((parts + 1, k), stack.dtype), parts * part

    def work(first: int, last: int) -> None:
        inside = slice(first * part, last * part)
        vectors = v[inside].reshape(-1, part, 1)
        for row in range(0, k, _ROWS):
            own = stack[row : row + _ROWS, inside].reshape(-1, last - first, part)
            found[first:last, row : row + _ROWS] = np.matmul(own.transpose(1, 0, 2), vectors)[..., 0]

    cores.in_blocks(work, parts, max(_STACK // (k * part), 1))
    for row in range(0, k, _ROWS):
        np.matmul(stack[row : row + _ROWS, end:], v[end:], out=found[parts, row : row + _ROWS])
    sums: np.ndarray = np.add.reduce(found, 0)
    return sums


def _combination(stack: np.ndarray, c: np.ndarray, image: np.ndarray) -> None:
    """Linear combination of few long rows `(k, n)` with coefficients c, blockwise."""
    (k, n), part = stack.shape, _ROW_PART[stack.dtype.char]
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

    cores.in_blocks(work, parts, max(_STACK // (k * part), 1))
    for row in range(0, k, _ROWS):
        add(row, slice(end, n), c[row : row + _ROWS] @ stack[row : row + _ROWS, end:])
