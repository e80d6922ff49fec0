"""Detection of null vectors: the constants on each connected component of A that A and its transpose map to zero.

That is what closed regions have where no boundary fixes a value: pressures, potentials, densities. A row of zeros is a
region of one unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import (
    CutRows,
    Dense,
    FunctionOperator,
    Layout,
    Matrix,
    NonlinearError,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
    as_operator,
)
from ...sparse.analysis.regions import closed_regions
from ...sparse.analysis.rounding import ROWS, half_units, of_region
from ...sparse.operators.by_record import known_product, products_agree
from ...sparse.operators.concrete import as_matrix, constant_folded
from ...sparse.operators.cut_stencil import CutStencil
from .projections import WithoutConstants, WithoutConstantsInside

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


_NEAR = 1e-3  # of the diagonal: no null vectors where row sums are larger
_HALF_OF_THE_DIGITS = 12  # of numbers in single precision


def constants_at_run_time(A: SparseMatrix | Dense | CutStencil, ones: Array | None = None) -> WithoutConstantsInside:
    """Projection that removes constants if A and its transpose turn out to map them to zero.

    Args:
        ones: a row of them for each system, as vectors of a grid that is spread over devices are kept.

    For one region: the whole matrix without zero rows and columns, which are regions of their own.
    `find_constants` detects more, for known values.

    Cost: the sums of the rows; where they are small, also of the columns, and of the rounding of the entries.
    """
    bk = A.bk
    if isinstance(A, CutStencil):
        diagonal = bk.abs(A.own_diagonal().apply(ones))
    else:
        rows, n = A.systems or 1, A.shape[0]
        like = A.anchor() if isinstance(A, SparseMatrix) else A.matrix
        ones = bk.broadcast_to(bk.asarray(np.ones((1, n), A.dtype), like=like), (rows, n))
        diagonal = bk.abs(bk.broadcast_to(A.diagonals(), (rows, n)))
    sums = bk.abs(A.apply(ones))
    none = bk.zeros_like(bk.max_abs(sums))
    nothing = bk.full_like(sums, 1), none, none
    near = bk.max_abs(sums) <= _NEAR * bk.max_abs(diagonal)
    empty = bk.max_abs(bk.where(sums + diagonal == 0, bk.full_like(sums, 1), bk.zeros_like(sums))) > 0
    told = bk.hiding_constants(lambda ones: _told(A, ones))
    inside, weights, active = bk.cond(bk.any(near | empty), told, lambda _: nothing, ones)
    return WithoutConstantsInside(bk, inside, weights, active)


def _told(A: SparseMatrix | Dense | CutStencil, ones: Array) -> tuple[Array, Array, Array]:
    """Arrays of the projection."""
    bk = A.bk
    units = _each(A, lambda host, v: host.astype(half_units(host, v), A.dtype))
    sums, allowed = _sums(A, ones), bk.abs(units.apply(ones))
    sums_of_columns, allowed_of_columns = (
        _sums(cast(SparseMatrix | Dense | CutStencil, A.T), ones),
        bk.abs(units.T.apply(ones)),
    )
    empty = (allowed + allowed_of_columns == 0) & (sums == 0) & (sums_of_columns == 0)
    inside = bk.where(empty, bk.zeros_like(allowed), bk.full_like(allowed, 1))
    null = _is_null(bk, sums, allowed, inside) & _is_null(bk, sums_of_columns, allowed_of_columns, inside)
    total, most = bk.abs(bk.sum(sums, 1, keepdims=True)), bk.sum(allowed, 1, keepdims=True)
    count = bk.sum(inside, 1, keepdims=True)
    closed = null & (total <= of_region(A.dtype) * most) & (count > 0)
    weights = bk.where(closed, 1 / bk.maximum(count, bk.full_like(count, 1)), bk.zeros_like(count))
    active = closed | (bk.max_abs(1 - inside) > 0)
    return inside, weights, bk.where(active, bk.full_like(count, 1), bk.zeros_like(count))


def _is_null(bk: Backend, sums: Array, allowed: Array, inside: Array) -> Array:
    """`(systems, 1)`: are all sums inside zero, as far as single rows tell?"""
    open_rows = ~((bk.abs(sums) <= ROWS * allowed) & bk.isfinite(allowed))  # NaN is open
    return bk.max_abs(bk.where(open_rows, inside, bk.zeros_like(inside))) == 0


def _each(
    A: SparseMatrix | Dense | CutStencil, function: Callable[[Backend, Array], Array]
) -> SparseMatrix | Dense | CutStencil:
    """The same structure with a function of the values."""
    if isinstance(A, Dense):
        return Dense(A.bk, function(A.bk, A.matrix))
    if isinstance(A, CutStencil):
        return replace(A, values=tuple(function(A.bk, v) for v in A.values))
    return A._each(lambda v: function(A.host, v))


def _sums(A: SparseMatrix | Dense | CutStencil, ones: Array) -> Array:
    """Row sums; in single precision of the upper and the lower half of the digits separately.

    Entries of like size then cancel without rounding, as they do in double precision, which compiled programs may lack.
    """
    if A.dtype.char in "dD":
        return A.apply(ones)
    upper = _each(A, _upper_digits)
    lower = _each(A, lambda host, v: v - _upper_digits(host, v))
    return upper.apply(ones) + lower.apply(ones)


def _upper_digits(host: Backend, v: Array) -> Array:
    """Round to half of the digits, by adding and subtracting a large number.

    Source: Dekker, Numer. Math. 18 (1971), 224-242; with a power of two for each number.
    """
    dtype = host.dtype(v)
    large = 1.5 * 2.0**_HALF_OF_THE_DIGITS * host.unit_in_first_place(host.abs(v))
    both: complex = 1 + 1j if dtype.kind == "c" else 1
    large = host.astype(large, dtype) * both
    return (v + large) - large
