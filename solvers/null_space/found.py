"""Detection of null vectors: the constants on each connected component of A that A and its transpose map to zero.

That is what closed regions have where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a
region of one unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, NamedTuple

import numpy as np

from ...backends import Backend, real_dtype
from ...sparse import (
    CutRows,
    FunctionOperator,
    Layout,
    Matrix,
    NonlinearError,
    Operator,
    UnsupportedOperation,
    as_operator,
)
from ...sparse.analysis.regions import closed_regions
from ...sparse.operators.by_record import known_product, products_agree
from ...sparse.operators.concrete import as_matrix, constant_folded
from .projections import WithoutConstants

_UNSEEN = 64  # as much for a function, of its product with random signs, until its entries are seen
_GUESSED = 8  # where they cannot be seen ...
_GUESSED_MEAN = 0.5  # ... and of its mean: a shift by a long time step is no rounding
_FAR = 1e-3  # of that product: a function that maps the constant to more is regular

_usual: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()  # of functions, how large that product is


def find_constants(A: Operator, layout: Layout, like: Any) -> WithoutConstants | None:
    """Projection that removes the constants that A and its transpose map to zero, for known values.

    Each matrix of a batch is treated as a single one.

    Cost: of a matrix a product, and where it has rows whose sum is zero a pass over the entries for its connected
    parts; of a function 2 products, 1 where it was asked before; where it is traced in a compiled function, that.
    """
    if A.offset or not layout.size or layout.structure is not None:
        return None
    with np.errstate(all="ignore"):
        if isinstance(A, Matrix):
            labels = closed_regions(constant_folded(A) if A.bk.compiled() else A)
        elif isinstance(A, CutRows):
            known: Any = None if A.known() is None else as_operator(A.known())
            labels = None if known is None else closed_regions(known)
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


def _regions_of_function(A: Operator, layout: Layout, like: Any) -> np.ndarray | None:
    """A function that maps constants to zero is traced; one that cannot be is taken for one region if it is symmetric.

    Other null vectors of its transpose would have to be known. Rows of zeros are regions of their own.
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
        return _one_region(A, layout, like) if guessed else None
    return closed_regions(matrix)


def _one_region(A: FunctionOperator, layout: Layout, like: Any) -> np.ndarray:
    """Labels of one region without the rows of zeros, by a product."""
    image = known_product(A, np.random.default_rng(9).standard_normal((layout.systems, layout.size)), like)
    empty = np.zeros(layout.size, bool) if image is None else ~image.any(axis=0)
    labels = np.where(empty, np.cumsum(empty), 0)
    return labels - labels.min(initial=layout.size)


class _ConstantImage(NamedTuple):
    """Cached size of A 1, relative to the largest entry of the product with random signs."""

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
