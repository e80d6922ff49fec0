"""Gather, scatter, pad, permute and flip in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ..interface.arrays import Array, Integers
from ..interface.kernels import Kernels

_SPARSE_PRODUCTS = "bBhHiIlLqQfdFD"  # dtypes that SciPy's compiled products know
_SMALL = 16384  # values; bincount then takes less time than making a matrix of SciPy


class NumpyIndexing(Kernels):
    """By NumPy's own functions, and SciPy's compiled products for sums."""

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        return np.take(x, index, axis)

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        if values.ndim == 1 and values.dtype.char in "fd" and len(values) < _SMALL:
            return np.bincount(ids, values, count).astype(values.dtype, copy=False)
        if values.dtype.char not in _SPARSE_PRODUCTS or not values.size:
            result = np.zeros((count, *values.shape[1:]), values.dtype)
            np.add.at(result, ids, values)
            return result
        nnz = len(values)
        if values.dtype.char == "f" and nnz < _SMALL:  # as bincount does
            return self.segment_sum(values.astype(np.float64), ids, count, sorted).astype(np.float32)
        if values.ndim == 1:
            one_column = sp.coo_array((values, (ids, np.zeros(nnz, np.int32))), (count, 1))
            return np.reshape(one_column @ np.ones(1, values.dtype), (count,))  # SciPy: a number if count is 1
        # one entry per column, which is what CSC stores
        sums = sp.csc_array((np.ones(nnz, values.dtype), ids, np.arange(nnz + 1)), (count, nnz))
        return (sums @ values.reshape(nnz, -1)).reshape(count, *values.shape[1:])

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        padded = np.zeros([lo + n + hi for n, (lo, hi) in zip(x.shape, widths, strict=True)], x.dtype)
        padded[tuple(slice(lo, lo + n) for n, (lo, _) in zip(x.shape, widths))] = x
        return padded

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return np.transpose(x, axes)

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        return np.flip(x, tuple(axis) if isinstance(axis, Sequence) else axis)
