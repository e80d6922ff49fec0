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
from ..preconditioners.known import as_matrix
from .projections import WithoutConstants

_ROUNDING = 4  # times the rounding unit of the entries of a row: what their sum may be where it should be zero
_UNSEEN = 64  # as much for a function, of its product with random signs, as its entries are not seen
_FAR = 1e-3  # of that product: a function that maps the constant to more is not asked again
_SMALL = 1e-6  # of the diagonal: what sums that are zero but for rounding are far below

_regular: weakref.WeakSet[Any] = weakref.WeakSet()


def find_constants(A: Operator, layout: Layout, like: Any) -> WithoutConstants | None:
    """What takes the null vectors off that A and its transpose are seen to have, where values are known now.

    Cost: of a matrix two products, and where it has rows whose sum is zero a pass over the entries for its connected
    parts; of a function 2 products, once.
    """
    if A.offset or not layout.size or layout.structure is not None:
        return None
    with np.errstate(all="ignore"):
        if isinstance(A, Matrix):
            labels = _regions(A.known()) if _may_have_regions(A) else None
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
    """A cheap look, as most matrices are regular: is the sum of some rows much smaller than that of others?

    Matrices stored by diagonals of a grid, whose entries are not at hand row by row, must map all constants to zero, or
    have rows of zeros.
    """
    if A.systems is not None or A.shape[0] != A.shape[1]:
        return False
    images = A.known_images(np.ones(A.shape[1]))
    if images is None:
        return False
    sums = np.abs(images[0])
    if not np.min(sums) <= _FAR * np.max(sums):
        return False
    if not isinstance(A, SparseMatrix) or A.structure.indices:
        return True
    diagonal = A.bk.known_now(lambda: A.bk.abs(A.diagonals()))
    return diagonal is not None and bool(np.max(sums) <= _SMALL * np.max(diagonal) or np.any(diagonal == 0))


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


def _null_rows(A: Any) -> np.ndarray:
    """`(n,)`: is the sum of a row zero up to rounding? A row with what is no number is not."""
    ones = np.ones(A.shape[1], A.dtype)
    limit = _ROUNDING * np.finfo(A.dtype).eps * (abs(A) @ np.abs(ones))
    return np.asarray(np.abs(A @ ones) <= limit) & np.isfinite(limit)


def _regions_of_function(A: Operator, layout: Layout, like: Any) -> np.ndarray | None:
    """A function that maps constants to zero is traced; one that cannot be is taken for one region if it is symmetric.

    Other null vectors of its transpose would have to be known.
    """
    if not isinstance(A, FunctionOperator) or A.shape[0] != A.shape[1] or not _maps_constants_to_zero(A, layout, like):
        return None
    try:
        matrix = as_matrix(A)
    except (UnsupportedOperation, NonlinearError):
        return np.zeros(layout.size, np.int32) if products_agree(A, layout.systems, like) else None
    known = matrix.known()
    return None if known is None else _regions(known)


def _maps_constants_to_zero(A: FunctionOperator, layout: Layout, like: Any) -> bool:
    if _is_regular(A.function):
        return False
    bk, shape = A.bk, (layout.systems, A.shape[1])

    def largest(x: np.ndarray) -> float:
        image = bk.known_now(lambda: A.apply(bk.asarray(np.ascontiguousarray(x, A.dtype), like=like)))
        return np.nan if image is None else float(np.max(np.abs(image), initial=0))

    size = largest(np.ones(shape))
    if not np.isfinite(size):
        return False
    usual = largest(np.random.default_rng(8).choice([-1.0, 1.0], shape))
    if size > _FAR * usual:
        _remember(A.function)
    return bool(0 < usual < np.inf and size <= _UNSEEN * np.finfo(A.dtype).eps * usual)


def _is_regular(function: Any) -> bool:
    try:
        return function in _regular
    except TypeError:  # it cannot be hashed, and is asked every time
        return False


def _remember(function: Any) -> None:
    with contextlib.suppress(TypeError):
        _regular.add(function)
