"""Null vectors by default (`nullspace="auto"`) at run time, where values are arguments of a program, and of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from ...backends import Array, Backend
from ...sparse import Dense, SparseMatrix
from ...sparse.analysis.rounding import ROWS, half_units, of_region
from ...sparse.operators.cut_stencil import CutStencil
from .projections import WithoutConstantsInside

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
