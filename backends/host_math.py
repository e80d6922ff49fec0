"""Compiled loops on the host: blocks of large arrays on all cores, SciPy's loops without its wrappers, LAPACK.

Where a block begins depends on the array alone, so that results are the same, to the last digit, for any number of
threads. What works on a block is mostly in NumPy's or SciPy's compiled loops, which other threads need not wait for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Condition, Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

_MOST = 8  # threads; more would wait for memory, and for each other


def available() -> int:
    """Cores that this process may use, but no more than the environment's OMP_NUM_THREADS says."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores


class Cores:
    """Threads of this process, started when they are first needed."""

    def __init__(self, threads: int | None = None) -> None:
        self.use(threads)

    def use(self, threads: int | None) -> None:
        """So many from now on; None: as many as there are cores."""
        self._given = threads
        self.forget()

    def forget(self) -> None:
        """As new: a process that was forked has none of the threads of the one before."""
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._count = self._given

    @property
    def count(self) -> int:
        """Threads that may work at a time, the caller's own among them."""
        if self._count is None:
            self._count = min(available(), _MOST)
        return self._count

    @property
    def started(self) -> bool:
        """Are there threads besides the caller's?"""
        return self._pool is not None

    def in_blocks(self, work: Callable[[int, int], object], n: int, block: int) -> None:
        """`work(start, end)` for each block of n numbers, in any order, and at the same time; its errors come out.

        It may be called by several threads, and by `work` itself: whoever calls it works, and takes what help there is.
        """
        helpers = min(self.count, -(-n // block)) - 1
        if helpers < 1:
            for start in range(0, n, block):
                work(start, min(start + block, n))
            return
        job = _Job(work, n, block)
        with suppress(RuntimeError):  # the interpreter is about to end, or the system has no thread left
            pool = self._threads()
            for _ in range(helpers):
                pool.submit(job.help)
        job.finish()

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.count - 1, "krylix")
            return self._pool


class _Job:
    """The blocks of one array, which each thread that is free takes one of."""

    def __init__(self, work: Callable[[int, int], object], n: int, block: int) -> None:
        self.work, self.n, self.block = work, n, block
        self.left = deque(range(0, n, block))
        self.error: BaseException | None = None
        self.at_work, self.changed = 0, Condition()
        self.settings: Any = {**np.geterr(), "call": np.geterrcall()}  # of the caller: each thread has its own

    def help(self) -> None:
        """Take blocks until there are none; a thread that comes late finds none."""
        with self.changed:
            if not self.left:
                return
            self.at_work += 1
        try:
            with np.errstate(**self.settings):
                self._take_blocks()
        finally:
            with self.changed:
                self.at_work -= 1
                self.changed.notify()

    def finish(self) -> None:
        """Take blocks, and wait for the others to end theirs."""
        self._take_blocks()
        with self.changed:
            self.changed.wait_for(lambda: not self.at_work)
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # whose traceback refers to this, and this to arrays

    def _take_blocks(self) -> None:
        try:
            while (start := self._next()) is not None:
                self.work(start, min(start + self.block, self.n))
        except BaseException as error:
            self.error = error
            self.left.clear()

    def _next(self) -> int | None:
        try:
            return self.left.popleft()
        except IndexError:
            return None


cores = Cores()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cores.forget)


# --- SciPy's compiled loops for elementwise products of rows: one pass over memory, the interpreter lock released -----
# NumPy takes two passes for a product that is added, and BLAS, as SciPy calls it, lets no other thread run.

try:
    from scipy.sparse import _sparsetools as _loops
except ImportError:  # they are SciPy's own, and may move
    _loops = None

csr_matvec: Any = getattr(_loops, "csr_matvec", None)
csr_matvecs: Any = getattr(_loops, "csr_matvecs", None)
csr_matmat: Any = getattr(_loops, "csr_matmat", None)
csc_matvec: Any = getattr(_loops, "csc_matvec", None)
dia_matvec: Any = getattr(_loops, "dia_matvec", None)
_COMPLETE = None not in (csr_matvec, csr_matvecs, csc_matvec, dia_matvec)

_KNOWN = frozenset(map(np.dtype, "fdFD"))
_STARTS, _FIRST = np.array([0, 1], np.int32), np.array([0], np.int32)  # of a matrix of one entry


def takes(dtype: np.dtype, *others: np.dtype) -> bool:
    """Are SciPy's loops there for arrays of this dtype?"""
    return _COMPLETE and dtype in _KNOWN and others.count(dtype) == len(others)


def add_multiple(a: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """`y += a x` with `a` of one element: the product with a matrix of one entry."""
    if takes(y.dtype, x.dtype, a.dtype) and len(x) == len(y):
        csr_matvecs(1, 1, len(y), _STARTS, _FIRST, a, x, y)
    else:
        y += a * x


def add_product(d: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """`y += d x`: the product with a matrix of one diagonal."""
    if takes(y.dtype, x.dtype, d.dtype) and len(d) == len(x) == len(y):
        dia_matvec(len(y), len(y), 1, len(y), _FIRST, d, x, y)
    else:
        y += d * x


# --- CSR products by SciPy's compiled loops without its wrappers, in row blocks on all cores --------------------------
# What SciPy does around a loop takes it as long as ten thousand entries do.

_BY_ROWS, _BY_COLUMNS = (sp.csr_array, sp.csr_matrix), (sp.csc_array, sp.csc_matrix)
_ENTRIES = 1 << 17  # of a block of rows; they take five times as long as to start a thread


def rows_times(A: Any, x: np.ndarray) -> Any:
    """`A @ x` of a SciPy matrix with `(m,)` or `(m, k)`, bitwise as SciPy's; CSR on all cores."""
    if type(A) is np.ndarray or not _fits_loops(A, x, 1):
        return A @ x
    if len(A.data) <= _ENTRIES:
        return _by_loop(csr_matvec, A.shape, A, x) if x.ndim == 1 else A @ x
    image, (n, m) = np.empty((A.shape[0], *x.shape[1:]), x.dtype), A.shape
    product, sizes = (csr_matvec, (m,)) if x.ndim == 1 else (csr_matvecs, (m, x.shape[1]))
    x = np.ascontiguousarray(x).reshape(-1)

    def work(start: int, end: int) -> None:
        own = image[start:end]
        own[...] = 0
        product(end - start, *sizes, A.indptr[start : end + 1], A.indices, A.data, x, own.reshape(-1))

    cores.in_blocks(work, n, max(_ENTRIES * n // len(A.data), 1))
    return image


def product_of(A: Any) -> Callable[[np.ndarray], Any]:
    """`v -> A @ v`, bitwise as SciPy's, for many vectors `(m,)`: the loop's arguments are prepared once."""
    loop = csr_matvec if isinstance(A, _BY_ROWS) else csc_matvec if isinstance(A, _BY_COLUMNS) else None
    if loop is None or not _suits_loops(A) or (loop is csr_matvec and len(A.data) > _ENTRIES):
        return partial(rows_times, A)
    (n, m), starts, cols, values, dtype = A.shape, A.indptr, A.indices, A.data, A.data.dtype

    def product(v: np.ndarray) -> Any:
        if v.dtype != dtype or v.shape != (m,):
            return A @ v
        image = np.zeros(n, dtype)
        loop(n, m, starts, cols, values, v, image)
        return image

    return product


def transposed_times(A: Any, v: np.ndarray) -> Any:
    """`A.T @ v` of a SciPy matrix with `(n,)`, bitwise as SciPy's; CSR without a transposed object."""
    if v.ndim != 1 or not _fits_loops(A, v, 0):
        return A.T @ v
    return _by_loop(csc_matvec, A.shape[::-1], A, v)


def _by_loop(loop: Any, shape: tuple[int, int], A: Any, v: np.ndarray) -> np.ndarray:
    image = np.zeros(shape[0], v.dtype)
    loop(*shape, A.indptr, A.indices, A.data, np.ascontiguousarray(v), image)
    return image


def _fits_loops(A: Any, x: Any, axis: int) -> bool:
    """Does the length of `x` match the matrix axis? SciPy's loops do not check."""
    if not isinstance(A, _BY_ROWS) or type(x) is not np.ndarray or not _suits_loops(A):
        return False
    return bool(A.shape[axis] == x.shape[0] and x.dtype == A.data.dtype)


def _suits_loops(A: Any) -> bool:
    return A.ndim == 2 and A.indptr.dtype == A.indices.dtype and takes(A.data.dtype)


# --- LAPACK factorisations on the host, for NumPy and for libraries without their own ---------------------------------

# Of so many rows, each matrix is inverted by itself: NumPy's call divides even small ones among the cores, where other
# work on them makes it wait for tens of milliseconds. LAPACK's LU, with little room to work in, does not.
_ALONE = range(32, 200)


def lu_factor(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U of `(..., n, n)` in one array, and the row interchanges `(..., n)`."""
    (factor,) = lapack.get_lapack_funcs(("getrf",), (matrix,))
    single = matrix.reshape(-1, *matrix.shape[-2:])
    parts = [factor(m)[:2] for m in single]  # a zero pivot is no error here: it shows on the diagonal of U
    lu = np.array([lu for lu, _ in parts]).reshape(matrix.shape)
    return lu, np.array([pivots for _, pivots in parts]).reshape(matrix.shape[:-1])


def batched_inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverses of `(batch, n, n)`; not finite where one is singular."""
    if matrix.shape[-1] not in _ALONE:
        try:
            return np.linalg.inv(matrix)
        except np.linalg.LinAlgError:  # says nothing about the others
            pass
    factor, invert = lapack.get_lapack_funcs(("getrf", "getri"), (matrix,))
    found = np.full(matrix.shape, np.nan, matrix.dtype)
    for one, place in zip(matrix, found, strict=True):
        lu, pivots, singular = factor(one.T)  # the transpose of a row-major matrix is read without a copy
        if not singular:
            place[:] = invert(lu, pivots, overwrite_lu=True)[0].T
    return found


def inverse_of_definite(matrix: np.ndarray) -> np.ndarray | None:
    """That of one large Hermitian matrix `(n, n)`, exactly Hermitian; None where it is small, or not positive definite.

    Half of the operations of `batched_inverse`.
    """
    if len(matrix) < _ALONE.stop:
        return None
    factor, invert = lapack.get_lapack_funcs(("potrf", "potri"), (matrix,))
    # the transpose of a row-major matrix, its conjugate, is read without a copy; that of its inverse is the inverse
    half, indefinite = factor(matrix.T, lower=False)
    half, singular = invert(half, lower=False, overwrite_c=True) if not indefinite else (half, 1)
    if singular:
        return None
    upper: np.ndarray = np.tril(half.T)
    return upper + np.tril(half.T, -1).conj().T


def cholesky_or_none(matrix: np.ndarray) -> np.ndarray | None:
    """Lower Cholesky factor of `(..., n, n)`, None where some matrix is not positive definite."""
    try:
        with np.errstate(all="ignore"):
            factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    return factor if np.isfinite(factor).all() else None
