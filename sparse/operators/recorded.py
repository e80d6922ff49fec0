"""Functions of a library on rows of NumPy, by the matrix that was recorded of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends import Array, get_backend
from ..formats import SparseMatrix
from ..layout import Layout
from .function import FunctionOperator
from .function_matrix import matrix_and_bias


class RecordedFunction(FunctionOperator):
    """A linear function whose products are those of its matrix.

    It has what is known of a function, and no more: choices are those for the function itself.

    Attributes:
        recorded: the matrix of each of its systems.
    """

    def __init__(self, recorded: SparseMatrix, layout: Layout, constant: np.ndarray | None) -> None:
        super().__init__(recorded.bk, recorded.apply, layout, recorded.dtype, constant=constant)
        self.recorded, self._matrix = recorded, recorded
        self.is_linear = True

    def apply(self, x: Array) -> Array:
        return self.recorded.apply(x)

    def transposed_product(self) -> Callable[[Array], Array]:
        return self.recorded.transpose().apply


def recorded(A: FunctionOperator) -> RecordedFunction | None:
    """The same function on rows of NumPy; None where its entries are not known now, or not all finite.

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
    return RecordedFunction(found, A.layout, bias.astype(A.dtype, copy=False) if bias.any() else None)
