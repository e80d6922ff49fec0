"""Linear functions that NumPy evaluates by the matrix that was traced from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends import Array, get_backend
from ..formats import Dense, Matrix, SparseMatrix
from ..layout import Layout
from .function import FunctionOperator
from .function_matrix import matrix_and_bias

_FULL = 8  # a matrix of which one entry in so many is stored is multiplied faster with all of them


class FunctionByMatrix(FunctionOperator):
    """A linear function whose products are those of its matrix.

    It has what is known of a function, and no more: choices are those for the function itself.

    Attributes:
        entries: the matrix of each of its systems as it multiplies: dense, where there are so many.
    """

    def __init__(self, matrix: SparseMatrix, layout: Layout, constant: np.ndarray | None) -> None:
        full = matrix.nnz * _FULL >= matrix.shape[0] * matrix.shape[1]
        self.entries: Matrix = Dense(matrix.bk, matrix.dense()) if full else matrix
        super().__init__(matrix.bk, self.entries.apply, layout, matrix.dtype, constant=constant)
        self._matrix, self.is_linear = matrix, True

    def apply(self, x: Array) -> Array:
        return self.entries.apply(x)

    def transposed_product(self) -> Callable[[Array], Array]:
        return self.entries.transpose().apply


def by_matrix(A: FunctionOperator) -> FunctionByMatrix | None:
    """Trace the matrix of A, and multiply by it in NumPy; None where its entries are not known now, or not all finite.

    Raises:
        UnsupportedOperation, NonlinearError: it cannot be recorded.
        ValueError, TypeError: it returns other arrays than it gets.
    """
    host, systems = get_backend("numpy"), A.layout.systems
    matrix, bias = matrix_and_bias(A, np.empty((systems, A.layout.size), A.dtype), exact=True)
    if matrix.constant is None or not isinstance(bias, np.ndarray) or matrix.dtype != A.dtype:
        return None
    if not all(np.isfinite(values).all() for values in (*matrix.constant, bias)):
        return None
    shape = A.layout.shape
    found = SparseMatrix.build(host, matrix.structure, matrix.constant, in_shape=shape, out_shape=shape)
    return FunctionByMatrix(found, A.layout, bias.astype(A.dtype, copy=False) if bias.any() else None)
