"""The gradient with respect to the entries of a NumPy or SciPy matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, get_backend
from ...sparse import DenseOperator, Operator, SparseMatrix, is_function, is_list_of_matrices
from ...sparse.formats import places_of_values


def matrix_gradient(A: Any, y: Array, x: Array, batch: Sequence[int]) -> Any:
    """`- y x^H` summed over the systems that share entries; real where A is.

    Args:
        A: what the user called A.
        y, x: rows `(systems, n)`, of the batch axes `batch`.

    Returns:
        A dense array shaped as a dense A; for a sparse A one of its format, with one value for each that A stores, in
        their order (CSR for formats whose values are no array); a list for a list; CSR of the rows of a member of a
        communicator; None for functions and LinearOperators.
    """
    if is_list_of_matrices(A, get_backend("numpy")):
        ys, xs = (v.reshape(-1, len(A), v.shape[1]) for v in (y, x))
        return [matrix_gradient(one, ys[:, i], xs[:, i], ys.shape[:1]) for i, one in enumerate(A)]
    if isinstance(A, SparseMatrix):
        return _of_format(A, y, x)
    if sp.issparse(A):
        return _sparse(A, y, x)
    if isinstance(A, DenseOperator):
        if A.systems is None:
            return _dense(A.shape, A.dtype, y, x, batch)
        if A.systems == len(y):  # with whatever axes the user's array had
            return _dense((*batch, *A.shape), A.dtype, y, x, batch)
        return _dense((A.systems, *A.shape), A.dtype, y, x, (len(y) // max(A.systems, 1), A.systems))
    if (of_rows := getattr(A, "gradient_by_entries", None)) is not None:
        return of_rows(y, x)
    if is_function(A) or isinstance(A, Operator) or hasattr(A, "matvec"):
        return None
    matrix = np.asarray(A)
    return _dense(matrix.shape, matrix.dtype, y, x, batch)


def _of_format(A: SparseMatrix, y: Array, x: Array) -> SparseMatrix:
    values = A.form.sample(A.bk, A.index_arrays(), -y, x.conj())
    if A.systems is not None:  # which the rows repeat
        values = tuple(v.reshape(-1, A.systems, *v.shape[1:]).sum(axis=0) for v in values)
    return A.with_stored_values([_kind_of(A.dtype, v) for v in values])


def _dense(shape: tuple[int, ...], dtype: np.dtype, y: Array, x: Array, batch: Sequence[int]) -> Array:
    n = shape[-1]
    if math.prod(shape[:-2]) == 1:
        return _kind_of(dtype, -(y.T @ x.conj())).reshape(shape)
    full = _kind_of(dtype, -y[:, :, None] * x.conj()[:, None, :]).reshape(*batch, n, n)
    lead = (1,) * (len(batch) + 2 - len(shape)) + shape[:-2]
    shared = tuple(i for i, (mine, all_) in enumerate(zip(lead, batch, strict=True)) if mine != all_)
    return full.sum(axis=shared, keepdims=True).reshape(shape)


def _sparse(A: Any, y: Array, x: Array) -> Any:
    if A.format in ("lil", "dok"):
        A = A.tocsr()
    rows, columns = places_of_values(A)
    inside = (rows >= 0) & (rows < A.shape[0])  # a diagonal is stored longer than it is
    rows, columns = np.where(inside, rows, 0), np.where(inside, columns, 0)
    values = np.zeros(rows.shape, y.dtype)
    for yi, xi in zip(y, x.conj(), strict=True):  # one system at a time: the entries may be many
        values -= yi[rows] * xi[columns]
    gradient = A.astype(_kind_of(A.dtype, values).dtype)  # a copy
    gradient.data = np.where(inside, _kind_of(A.dtype, values), 0).reshape(A.data.shape)
    return gradient


def _kind_of(dtype: np.dtype, values: Array) -> Array:
    return values if dtype.kind == "c" else values.real
