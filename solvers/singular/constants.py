"""Detection of null vectors: the constants on each connected component of A that A and its transpose map to zero.

Such closed regions, where no boundary fixes a value, occur for pressures, potentials and densities. A zero row is a
region of one unknown.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

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
from ...sparse.analysis.singular import ROWS, closed_regions, half_units, of_region
from ...sparse.operators.checks import known_product, products_agree
from ...sparse.operators.concrete import as_matrix, constant_folded
from ...sparse.operators.cut_grids import CutStencil
from .projections import WithoutConstants, WithoutConstantsInside

# Bounds of the image of constants in rounding units, relative to the image of random signs
_UNTRACED = 64  # a function with a larger image is not traced
_GUESSED = 8  # largest image for a function that cannot be traced
_GUESSED_MEAN = 0.5  # largest mean of that image, below which lies no shift by a long time step
_FAR = 1e-3  # relative image of constants above which a function is regular for all arguments

_usual: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()  # function -> image of random signs


def find_constants(A: Operator, layout: Layout, like: Any) -> WithoutConstants | None:
    """Projection that removes the constants that A and its transpose map to zero, for known values.

    Each matrix of a batch is treated as a single one.

    Cost: for a matrix a product, and if it has rows whose sum is zero a pass over the entries for its connected
    components; for a function 2 products, or 1 in later calls, and tracing.
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
    bk, arrays = A.bk, (labels.astype(np.int32), weights)
    known_now = bk.on_host or bk.compiled()  # arrays stay NumPy's in a compiled function
    return WithoutConstants(bk, *(arrays if known_now else (bk.asarray(a, like=like) for a in arrays)))


def _regions_of_function(A: Operator, layout: Layout, like: Any) -> np.ndarray | None:
    """Labels of the closed regions of a function that maps constants to zero, which is traced for them.

    A symmetric function that cannot be traced is assumed to have one region; for others, null vectors of the transpose
    would have to be known. Zero rows are regions of their own.
    """
    if not isinstance(A, FunctionOperator) or A.shape[0] != A.shape[1]:
        return None
    size, eps, shape = _constant_image(A, layout, like), np.finfo(A.dtype).eps, (layout.systems, layout.size)
    if size is not None and not size[0] <= _UNTRACED * eps:
        return None
    try:
        return closed_regions(as_matrix(A))
    except (UnsupportedOperation, NonlinearError):
        small = size is not None and size[0] <= _GUESSED * eps and size[1] <= _GUESSED_MEAN * eps
        if not (small and products_agree(A, layout.systems, like)):
            return None
    image = known_product(A, np.random.default_rng(9).standard_normal(shape), like)
    empty = np.zeros(layout.size, bool) if image is None else ~image.any(axis=0)
    labels = np.where(empty, np.cumsum(empty), 0)
    return labels - labels.min(initial=layout.size)


def _constant_image(A: FunctionOperator, layout: Layout, like: Any) -> tuple[float, float] | None:
    """Largest entry and mean of A 1, relative to the largest entry of A times random signs; None if not known now."""
    shape = (layout.systems, A.shape[1])
    image = known_product(A, np.ones(shape), like)
    if image is None:
        return None
    largest, mean = _largest(image), float(np.max(np.abs(np.mean(image, 1, np.result_type(image, float)))))
    try:
        usual = _usual.get(A.function, 0.0)
    except TypeError:  # functions that cannot be hashed are evaluated every time
        usual = 0.0
    if not (usual > 0 and largest > _FAR * usual):  # otherwise it is regular for any arguments
        usual = _largest(known_product(A, np.random.default_rng(8).choice([-1.0, 1.0], shape), like))
    if not 0 < usual < np.inf:
        return np.inf, np.inf
    with contextlib.suppress(TypeError):
        _usual[A.function] = usual
    return largest / usual, mean / usual


def _largest(image: np.ndarray | None) -> float:
    return np.nan if image is None else float(np.max(np.abs(image), initial=0))


_NEAR = 1e-3  # row sums relative to the diagonal, above which constants are no null vectors
_HALF_OF_THE_DIGITS = 12  # bits of half of the significand in single precision

_Known = SparseMatrix | Dense | CutStencil


def constants_at_run_time(A: SparseMatrix | Dense | CutStencil, ones: Array | None = None) -> WithoutConstantsInside:
    """Projection that removes constants if A and its transpose turn out to map them to zero.

    Args:
        ones: a row of ones for each system, distributed like vectors of a grid that is spread over devices.

    Detects one region: the whole matrix without zero rows and columns, which are regions of their own. For known values
    `find_constants` detects more.

    Cost: the row sums; where they are small, also the column sums and the sums of the rounding errors of the entries.
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
    examined = bk.hiding_constants(lambda ones: _examined(A, ones))
    inside, weights, active = bk.cond(bk.any(near | empty), examined, lambda _: nothing, ones)
    return WithoutConstantsInside(bk, inside, weights, active)


def _examined(A: _Known, ones: Array) -> tuple[Array, Array, Array]:
    """`inside`, `weights` and `active` of the projection."""
    bk = A.bk
    units, transpose = _each(A, lambda host, v: host.astype(half_units(host, v), A.dtype)), cast(_Known, A.T)
    sums, allowed = _sums(A, ones), bk.abs(units.apply(ones))
    sums_of_columns, allowed_of_columns = _sums(transpose, ones), bk.abs(units.T.apply(ones))
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
    """`(systems, 1)`: are all sums inside zero up to the rounding of single rows?"""
    nonzero = ~((bk.abs(sums) <= ROWS * allowed) & bk.isfinite(allowed))  # NaN is not zero
    return bk.max_abs(bk.where(nonzero, inside, bk.zeros_like(inside))) == 0


def _each(A: _Known, function: Callable[[Backend, Array], Array]) -> _Known:
    if isinstance(A, Dense):
        return Dense(A.bk, function(A.bk, A.matrix))
    if isinstance(A, CutStencil):
        return replace(A, values=tuple(function(A.bk, v) for v in A.values))
    return A._each(lambda v: function(A.host, v))


def _sums(A: _Known, ones: Array) -> Array:
    """Row sums; in single precision the upper and the lower half of the digits are summed separately.

    Entries of similar size then cancel without rounding errors, as in double precision, which programs may lack.
    """
    if A.dtype.char in "dD":
        return A.apply(ones)
    upper = _each(A, _upper_digits)
    lower = _each(A, lambda host, v: v - _upper_digits(host, v))
    return upper.apply(ones) + lower.apply(ones)


def _upper_digits(host: Backend, v: Array) -> Array:
    """Round to half of the digits by adding and subtracting a large number.

    Source: Dekker, Numer. Math. 18 (1971), 224-242; here with a power of two for each entry.
    """
    dtype = host.dtype(v)
    large = 1.5 * 2.0**_HALF_OF_THE_DIGITS * host.unit_in_first_place(host.abs(v))
    both: complex = 1 + 1j if dtype.kind == "c" else 1
    large = host.astype(large, dtype) * both
    return (v + large) - large
