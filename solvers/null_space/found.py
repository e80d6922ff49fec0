"""Null vectors that are found: the constants on each connected part of A, where A and its transpose map them to zero.

That is what closed regions have where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a
region of one unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Backend, real_dtype
from ...sparse import FunctionOperator, Layout, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.facts import component_labels
from ...sparse.operators.by_record import known_product, products_agree
from ...sparse.rounding import RoundedProduct, closed_components, rounded_product
from ..preconditioners.known import as_matrix, constant_folded
from .projections import WithoutConstants

_UNSEEN = 64  # as much for a function, of its product with random signs, until its entries are seen
_GUESSED = 8  # where they cannot be seen ...
_GUESSED_MEAN = 0.5  # ... and of its mean: a shift by a long time step is no rounding
_FAR = 1e-3  # of that product: a function that maps the constant to more is regular
_SMALL = 1e-6  # of the diagonal: what sums that are zero but for rounding are far below

_usual: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()  # of functions, how large that product is


def find_constants(A: Operator, layout: Layout, like: Any) -> WithoutConstants | None:
    """What takes the null vectors off that A and its transpose are seen to have, where values are known now.

    Those of each matrix of a batch are found as if it were alone.

    Cost: of a matrix two products, and where it has rows whose sum is zero a pass over the entries for its connected
    parts; of a function 2 products, 1 where it was asked before; where it is traced in a compiled function, that.
    """
    if A.offset or not layout.size or layout.structure is not None:
        return None
    with np.errstate(all="ignore"):
        if isinstance(A, Matrix):
            labels = _regions_of_matrix(constant_folded(A))
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


def _regions_of_matrix(A: Matrix) -> np.ndarray | None:
    """As `_regions`; of a batch `(systems, n)`, with other numbers in each system."""
    if A.shape[0] != A.shape[1] or A.systems == 0:
        return None
    images = A.known_images(np.ones(A.shape[1]))
    if images is None:
        return None
    sums = np.abs(images[0])
    if A.systems is None:
        return _regions(A.known()) if _may_have_regions(A, sums, A.known_diagonal) else None
    systems = [i for i in range(A.systems) if _may_have_regions(A, sums[i], partial(_diagonal, A, i))]
    if not systems:
        return None
    known: Any = A.known()
    labels, count = np.full((A.systems, A.shape[0]), -1, np.int32), 0
    for i in systems:
        found = _regions(known[i])
        if found is not None:
            labels[i] = np.where(found < 0, -1, found + count)
            count += int(np.max(found)) + 1
    return labels if count else None


def _diagonal(A: Matrix, i: int) -> np.ndarray:
    one: Matrix = A[i]
    return one.known_diagonal()


def _may_have_regions(A: Matrix, sums: np.ndarray, diagonal: Callable[[], np.ndarray]) -> bool:
    """A cheap look, as most matrices are regular: are some sums of rows much smaller than others, or all of them small?

    Matrices stored by diagonals of a grid, whose entries are not at hand row by row, must map all constants to zero, or
    have rows of zeros.
    """
    some = bool(np.min(sums) <= _FAR * np.max(sums))
    if some and (not isinstance(A, SparseMatrix) or A.structure.indices):
        return True
    size = np.abs(diagonal())
    return bool(np.max(sums) <= _SMALL * np.max(size) or (some and np.any(size == 0)))


def _regions(A: Any) -> np.ndarray | None:
    """`(n,)`: the number of the closed region of each unknown, -1 for those that are in none; None if there is none."""
    rows = rounded_product(A) if sp.issparse(A) else _dense_row_sums(A)
    if not rows.negligible.any():
        return None
    A = A if sp.issparse(A) else sp.csr_array(A)
    count, labels = component_labels(A)
    closed = closed_components(rows, labels, count, A.dtype)
    if closed.any():
        closed &= closed_components(rounded_product(A.T), labels, count, A.dtype)
    if not closed.any():
        return None
    return np.asarray(np.where(closed, np.cumsum(closed) - 1, -1)[labels])


def _dense_row_sums(A: np.ndarray) -> RoundedProduct:
    """Those of rows that are not far from zero; of others only that they are far."""
    sums = A @ np.ones(A.shape[1])
    scale = np.max(np.abs(A)) if A.dtype.kind == "c" else max(np.max(A), -np.min(A))
    near = np.abs(sums) <= _FAR * scale
    found = rounded_product(A[near])
    allowed = np.zeros(len(A))
    sums[near], allowed[near] = found
    return RoundedProduct(np.where(near, sums, np.inf), allowed)


def _regions_of_function(A: Operator, layout: Layout, like: Any) -> np.ndarray | None:
    """A function that maps constants to zero is traced; one that cannot be is taken for one region if it is symmetric.

    Other null vectors of its transpose would have to be known.
    """
    if not isinstance(A, FunctionOperator) or A.shape[0] != A.shape[1]:
        return None
    size = _size_of_constant_image(A, layout, like)
    eps = np.finfo(A.dtype).eps
    if size is not None and not size.largest <= _UNSEEN * eps:
        return None
    try:
        matrix = as_matrix(A)
    except (UnsupportedOperation, NonlinearError):
        small = size is not None and size.largest <= _GUESSED * eps and size.mean <= _GUESSED_MEAN * eps
        guessed = small and products_agree(A, layout.systems, like)
        return np.zeros(layout.size, np.int32) if guessed else None
    return _regions_of_matrix(matrix)


class _ConstantImage(NamedTuple):
    """The size of the product with ones, relative to the largest number in the product with random signs."""

    largest: float
    mean: float


def _size_of_constant_image(A: FunctionOperator, layout: Layout, like: Any) -> _ConstantImage | None:
    """None: not known now."""
    shape = (layout.systems, A.shape[1])

    def image(x: np.ndarray) -> np.ndarray | None:
        return known_product(A, x, like)

    found, before = image(np.ones(shape)), _remembered(A.function)
    if found is None:
        return None
    size = _ConstantImage(_largest(found), float(np.max(np.abs(np.mean(found, 1, np.result_type(found, float))))))
    regular = before > 0 and size.largest > _FAR * before  # whatever it was called with: rounding is not so large
    usual = before if regular else _largest(image(np.random.default_rng(8).choice([-1.0, 1.0], shape)))
    if not 0 < usual < np.inf:
        return _ConstantImage(np.inf, np.inf)
    with contextlib.suppress(TypeError):  # of functions that cannot be hashed, which are asked every time
        _usual[A.function] = usual
    return _ConstantImage(size.largest / usual, size.mean / usual)


def _largest(image: np.ndarray | None) -> float:
    return np.nan if image is None else float(np.max(np.abs(image), initial=0))


def _remembered(function: Any) -> float:
    try:
        return _usual.get(function, 0.0)
    except TypeError:
        return 0.0
