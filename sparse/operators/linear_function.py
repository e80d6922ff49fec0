"""Base class of linear functions: products of containers of arrays, and entries by tracing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array
from ..errors import NonlinearError, UnsupportedOperation
from ..formats import SparseMatrix
from ..layout import Layout
from ..operator import Operator
from .bridge import products_for_host
from .function_matrix import CoupledSystems
from .products import Products


class LinearFunction(Products):
    """Linear function with products, and with the entries of a matrix where it can be traced."""

    compiled: bool
    like: Array | None
    layout: Layout
    image: Layout  # of what it returns

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.image.shape

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        one = self.layout.structure is None and self.image.structure is None
        return self.layout.shapes[0] if one and self.layout.shapes == self.image.shapes else None

    @property
    def together(self) -> int | None:
        return self.layout.systems

    def __call__(self, x: Any) -> Any:
        if self.layout.structure is None:
            return super().__call__(x)
        rows = self.layout.flatten(self.bk, x, self.dtype, "x")  # a container of arrays
        return self.image.unflatten(self.bk, self.apply(rows))

    def _rows(self, rows: Array) -> Array:
        """The function gets arrays of the dtype that it was promised, so others are split and cast."""
        bk, dtype = self.bk, np.result_type(self.dtype, self.bk.dtype(rows))
        if dtype.kind == "c" and self.dtype.kind != "c":
            real, imaginary = (bk.astype(self._rows(bk.real(part)), dtype) for part in (rows, -1j * rows))
            return real + 1j * imaginary
        return bk.astype(self._many(bk.astype(rows, self.dtype)), dtype)

    @abstractmethod
    def matrix(self) -> SparseMatrix:
        """Its sparse matrix, that of each system, found by tracing the function.

        Raises:
            UnsupportedOperation: the function cannot be traced, or its systems have different matrices.
            NonlinearError: it is not linear.
        """

    def _matrix_or_none(self) -> SparseMatrix | None:
        try:
            return self.matrix()
        except CoupledSystems:  # products with columns in all systems would give numbers that are no entries
            raise
        except (UnsupportedOperation, NonlinearError):
            # Its entries can still be found by products, one for each column. An operation that is not linear may be
            # part of a linear function, such as an iterative solve; `linear_part` and the true residual test that.
            return None

    def dense(self) -> Array:
        matrix = self._matrix_or_none()
        if matrix is None:
            return super().dense()
        entries = matrix.dense()
        return entries if self.systems is None else self.bk.broadcast_to(entries, (self.systems, *self.shape))

    def diagonals(self) -> Array:
        bk, matrix = self.bk, self._matrix_or_none()
        if matrix is not None:
            diagonal = matrix.diagonals()
            return diagonal if self.systems is None else bk.broadcast_to(diagonal, (self.systems, diagonal.shape[1]))
        return super().diagonals()

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        try:
            return self.matrix().for_host()
        except CoupledSystems:
            if self.compiled:  # the host would get the entries of each system, and there are none
                raise
        except (UnsupportedOperation, NonlinearError):  # see `_matrix_or_none`
            pass
        return products_for_host(self, self.compiled, self.like)
