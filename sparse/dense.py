"""Dense matrices: one for all systems, or one per system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import Array, Backend, get_backend
from .operator import Operator


class DenseOperator(Operator):
    """A matrix `(n, m)`, or one per system `(systems, n, m)`.

    `constant` is the same matrix as a NumPy array where it is known although the library compiles.
    """

    is_container = True

    def __init__(self, bk: Backend, matrix: Array, constant: np.ndarray | None = None) -> None:
        self.bk, self.matrix, self.constant = bk, matrix, constant
        self.shape = (int(matrix.shape[-2]), int(matrix.shape[-1]))
        self.dtype = bk.dtype(matrix)
        self.systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
        bk.register(DenseOperator, lambda a: ((a.matrix,), a.bk), lambda bk, arrays: _restore(bk, *arrays))

    def apply(self, x: Array) -> Array:
        return self.bk.product(self.matrix, x)

    def astype(self, dtype: np.dtype) -> DenseOperator:
        constant = None if self.constant is None else self.constant.astype(dtype)
        return DenseOperator(self.bk, self.bk.cast(self.matrix, dtype), constant)

    def on_backend(self, bk: Backend, like: Array | None) -> DenseOperator:
        return DenseOperator(bk, bk.as_array(self.matrix, like=like), self.matrix)

    def transpose(self) -> DenseOperator:
        constant = None if self.constant is None else np.swapaxes(self.constant, -1, -2)
        return DenseOperator(self.bk, self.bk.transpose(self.matrix), constant)

    def conj(self) -> DenseOperator:
        return DenseOperator(
            self.bk, self.bk.conj(self.matrix), None if self.constant is None else self.constant.conj()
        )

    def dense(self) -> Array:
        return self.matrix

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.matrix)
        return diagonal[None] if self.systems is None else diagonal

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host = get_backend("numpy")
        known = self.known()
        if known is not None:
            return (), lambda _: DenseOperator(host, known)
        return (self.matrix,), lambda arrays: DenseOperator(host, arrays[0])

    def per_system(self, i: int) -> Any:
        return self.matrix if self.systems is None else self.matrix[i]

    def known(self) -> np.ndarray | None:
        if self.constant is not None:
            return self.constant
        return None if self.bk.compiled(self.matrix) else self.bk.to_numpy(self.matrix)


def _restore(bk: Backend, matrix: Any) -> DenseOperator:
    """Rebuild without a look at `matrix`: transformations put placeholders in its place."""
    operator = object.__new__(DenseOperator)
    operator.bk, operator.matrix, operator.constant = bk, matrix, None
    shape = tuple(getattr(matrix, "shape", (0, 0)))
    operator.shape = shape[-2:] if len(shape) >= 2 else (0, 0)
    operator.dtype = bk.dtype(matrix) if len(shape) >= 2 and hasattr(matrix, "dtype") else np.dtype(np.float64)
    operator.systems = shape[0] if len(shape) == 3 else None
    return operator
