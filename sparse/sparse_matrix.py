"""Sparse matrices of SciPy, JAX, PyTorch and TensorFlow, each multiplied by its own library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import Array, Backend, get_backend
from .operator import Operator


class SparseOperator(Operator):
    """A sparse matrix in the form that the backend's kernels (`bk.sparse`) multiply.

    `constant` is the same matrix in SciPy where it is known although the library compiles.
    """

    is_container = True

    def __init__(self, bk: Backend, matrix: Any, constant: Any = None) -> None:
        self.bk, self.matrix, self.constant = bk, matrix, constant
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.dtype = bk.sparse.dtype(matrix)
        self._transposed: SparseOperator | None = None
        bk.register(SparseOperator, _flatten, _restore)

    def apply(self, x: Array) -> Array:
        return self.bk.sparse.product(self.matrix, x)

    def astype(self, dtype: np.dtype) -> SparseOperator:
        return SparseOperator(self.bk, self.bk.sparse.recast(self.matrix, dtype), self.constant)

    def on_backend(self, bk: Backend, like: Array | None) -> SparseOperator:
        return SparseOperator(bk, bk.sparse.from_scipy(self.matrix, self.dtype, like), self.matrix)

    def transpose(self) -> SparseOperator:
        if self._transposed is None:
            constant = None if self.constant is None else self.constant.T
            self._transposed = SparseOperator(self.bk, self.bk.sparse.transpose(self.matrix), constant)
        return self._transposed

    def conj(self) -> SparseOperator:
        constant = None if self.constant is None else self.constant.conj()
        return SparseOperator(self.bk, self.bk.sparse.conj(self.matrix), constant)

    def dense(self) -> Array:
        return self.bk.sparse.to_dense(self.matrix)

    def diagonals(self) -> Array:
        return self.bk.sparse.diagonal(self.matrix)[None]

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host, kernels = get_backend("numpy"), self.bk.sparse
        known = self.known()
        if known is not None:
            return (), lambda _: SparseOperator(host, host.sparse.read(known, self.dtype))
        return kernels.arrays(self.matrix), lambda arrays: SparseOperator(host, kernels.to_scipy(self.matrix, arrays))

    def per_system(self, i: int) -> Any:
        return self.matrix

    def known(self) -> Any:
        if self.constant is not None:
            return self.constant
        arrays = self.bk.sparse.arrays(self.matrix)
        if self.bk.compiled(*arrays):
            return None
        return self.bk.sparse.to_scipy(self.matrix, [self.bk.to_numpy(a) for a in arrays])


def _flatten(operator: SparseOperator) -> tuple[tuple[Array, ...], Any]:
    return operator.bk.sparse.arrays(operator.matrix), (operator.bk, operator.shape, operator.dtype)


def _restore(static: Any, arrays: Sequence[Any]) -> SparseOperator:
    """Rebuild without a look at the arrays: transformations put placeholders in their place."""
    bk, shape, dtype = static
    operator = object.__new__(SparseOperator)
    operator.bk, operator.shape, operator.dtype, operator.constant = bk, shape, dtype, None
    operator.matrix = bk.sparse.with_arrays(shape, arrays)
    operator._transposed = None
    return operator
