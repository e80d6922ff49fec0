"""Null vectors that are found: the constants on each connected part of A, where A and its transpose map them to zero.

That is what closed regions have where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a
region of one unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Backend, real_dtype
from ...sparse import FunctionOperator, Layout, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.facts import components
from ...sparse.symmetry import products_agree
from ..preconditioners.known import as_matrix, in_every_run
from .projections import WithoutConstants

_ROUNDING = 4  # times the rounding unit of the entries of a row: what their sum may be where it should be zero
_ROUNDING_OF_SINGLE = 2  # likewise: more would take regular matrices, as of long time steps, for singular
_UNSEEN = 64  # as much for a function, of its product with random signs, until its entries are seen
_GUESSED = 8  # where they cannot be seen
_FAR = 1e-3  # of that product: a function that maps the constant to more is regular
_SMALL = 1e-6  # of the diagonal: what sums that are zero but for rounding are far below

_usual: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()  # of functions, how large that product is


def find_constants(A: Operator, layout: Layout, like: Any) -> WithoutConstants | None:
    """What takes the null vectors off that A and its transpose are seen to have, where values are known now.

    Not those of one matrix of several, a batch.

    Cost: of a matrix two products, and where it has rows whose sum is zero a pass over the entries for its connected
    parts; of a function 2 products, 1 where it was asked before; where it is traced in a compiled function, that.
    """
    if A.offset or not layout.size or layout.structure is not None:
        return None
    with np.errstate(all="ignore"):
        if isinstance(A, Matrix):
            matrix = in_every_run(A)
            labels = _regions(matrix.known()) if _may_have_regions(matrix) else None
        else:
            labels = _regions_of_function(A, layout, like)
    if labels is None:
        return None
    weights = 1 / np.maximum(np.bincount(labels[labels >= 0]), 1).astype(real_dtype(A.dtype))
    if np.any(labels < 0):
        labels, weights = np.where(labels < 0, len(weights), labels), np.append(weights, weights.dtype.type(0))
    return _placed(A.bk, labels.astype(np.int32), weights, like)


def _placed(bk: Backend, labels: np.ndarray, weights: np.ndarray, like: Any) -> WithoutConstants:
    """In a compiled function they stay NumPy's."""
    if bk.on_host or bk.compiled():
        return WithoutConstants(bk, labels, weights)
    return WithoutConstants(bk, bk.asarray(labels, like=like), bk.asarray(weights, like=like))


def _may_have_regions(A: Matrix) -> bool:
    """A cheap look, as most matrices are regular: are some sums of rows much smaller than others, or all of them small?

    Matrices stored by diagonals of a grid, whose entries are not at hand row by row, must map all constants to zero, or
    have rows of zeros.
    """
    if A.systems is not None or A.shape[0] != A.shape[1]:
        return False
    images = A.known_images(np.ones(A.shape[1]))
    if images is None:
        return False
    sums = np.abs(images[0])
    some = bool(np.min(sums) <= _FAR * np.max(sums))
    if some and (not isinstance(A, SparseMatrix) or A.structure.indices):
        return True
    diagonal = np.abs(A.known_diagonal())
    return bool(np.max(sums) <= _SMALL * np.max(diagonal) or (some and np.any(diagonal == 0)))


def _regions(A: Any) -> np.ndarray | None:
    """`(n,)`: the number of the closed region of each unknown, -1 for those that are in none; None if there is none."""
    if not sp.issparse(A):
        whole = bool(np.all(_null_rows(A)) and np.all(_null_rows(A.T)))
        return np.zeros(len(A), np.int32) if whole else None
    null = _null_rows(A)
    if not null.any():
        return None
    count, labels = components(A)
    closed = np.bincount(labels, ~null, count) == 0
    if closed.any():
        closed &= np.bincount(labels, ~_null_rows(A.T), count) == 0
    if not closed.any():
        return None
    return np.asarray(np.where(closed, np.cumsum(closed) - 1, -1)[labels])


def rounding_of_sums(dtype: np.dtype) -> float:
    """What the sum of entries that cancel may be, relative to the sum of their absolute values."""
    single = np.dtype(dtype).char in "fF"
    return (_ROUNDING_OF_SINGLE if single else _ROUNDING) * float(np.finfo(dtype).eps)


def _null_rows(A: Any) -> np.ndarray:
    """`(n,)`: is the sum of a row zero up to rounding? A row with what is no number is not."""
    rounding = rounding_of_sums(A.dtype)
    A = A.astype(np.result_type(A.dtype, np.float64), copy=False)  # whose sums add no rounding of their own
    ones = np.ones(A.shape[1])
    limit = rounding * (abs(A) @ ones)
    return np.asarray(np.abs(A @ ones) <= limit) & np.isfinite(limit)


def _regions_of_function(A: Operator, layout: Layout, like: Any) -> np.ndarray | None:
    """A function that maps constants to zero is traced; one that cannot be is taken for one region if it is symmetric.

    Other null vectors of its transpose would have to be known.
    """
    if not isinstance(A, FunctionOperator) or A.shape[0] != A.shape[1]:
        return None
    size = _size_of_constant_image(A, layout, like)
    eps = np.finfo(A.dtype).eps
    if size is not None and not size <= _UNSEEN * eps:
        return None
    try:
        matrix = as_matrix(A)
    except (UnsupportedOperation, NonlinearError):
        guessed = size is not None and size <= _GUESSED * eps and products_agree(A, layout.systems, like)
        return np.zeros(layout.size, np.int32) if guessed else None
    return _regions(matrix.known()) if _may_have_regions(matrix) else None


def _size_of_constant_image(A: FunctionOperator, layout: Layout, like: Any) -> float | None:
    """The largest number in the product with ones, of that in the product with random signs; None: not known now."""
    bk, shape = A.bk, (layout.systems, A.shape[1])

    def largest(x: np.ndarray) -> float | None:
        image = bk.known_now(lambda: A.apply(bk.asarray(np.ascontiguousarray(x, A.dtype), like=like)))
        return None if image is None else float(np.max(np.abs(image), initial=0))

    size, before = largest(np.ones(shape)), _remembered(A.function)
    if size is None:
        return None
    regular = before > 0 and size > _FAR * before  # whatever it was called with: rounding is not so large
    usual = before if regular else largest(np.random.default_rng(8).choice([-1.0, 1.0], shape))
    if usual is None or not 0 < usual < np.inf:
        return np.inf
    with contextlib.suppress(TypeError):  # of functions that cannot be hashed, which are asked every time
        _usual[A.function] = usual
    return size / usual


def _remembered(function: Any) -> float:
    try:
        return _usual.get(function, 0.0)
    except TypeError:
        return 0.0
