"""Base classes of matrix-free operators: entries and SciPy's form follow from products."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ...backends import Array
from ..errors import UnsupportedOperation
from ..operator import Operator

_DENSE_LIMIT = 4096  # columns that are worth finding one by one


class Products(Operator):
    """Matrix-free operator: entries are found column by column, and SciPy gets a LinearOperator."""

    def dense(self) -> Array:
        """One product per column."""
        n = self.shape[1]
        if n > _DENSE_LIMIT:
            raise UnsupportedOperation(
                f"This needs the entries of a function of {n} unknowns, which takes {n} evaluations and {n}x{n} "
                f"numbers; krylix does so up to n = {_DENSE_LIMIT}. Give a sparse matrix, or choose a matrix-free "
                "method such as CG or biCG-stab(2)."
            )
        images = self._images(self.bk.asarray(np.eye(n, dtype=self.dtype), like=getattr(self, "like", None)))
        return images[0, ...] if self.systems is None else images

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.dense())
        return diagonal[None, :] if self.systems is None else diagonal

    def per_system(self, i: int) -> Any:
        """A SciPy LinearOperator, which multiplies one system per call, the rest zero."""
        from scipy.sparse.linalg import LinearOperator

        transposed: list[Operator] = []

        def product(of: Operator, v: np.ndarray) -> np.ndarray:
            rows = np.zeros((of.systems or 1, of.shape[1]), of.dtype)
            rows[i if of.systems is not None else 0] = v.reshape(-1)
            return of.apply(rows)[i if of.systems is not None else 0].copy()  # SciPy's methods write to what they get

        def adjoint(v: np.ndarray) -> np.ndarray:
            if not transposed:  # made once, as that may cost evaluations
                transposed.append(self.transpose())
            return np.conj(product(transposed[0], np.conj(v)))

        return LinearOperator(self.shape, matvec=lambda v: product(self, v), rmatvec=adjoint, dtype=self.dtype)


class Turned(Products):
    """Operator in one of four forms: A, its transpose, its conjugate or both.

    Attributes:
        transposed, conjugated: which of them.
    """

    transposed: bool
    conjugated: bool

    @abstractmethod
    def product(self, x: Array) -> Array:
        """`apply` of A, or of its transpose if `transposed`."""

    @abstractmethod
    def turned(self, *, transposed: bool, conjugated: bool) -> Operator:
        """Another form of A."""

    def apply(self, x: Array) -> Array:
        if not self.conjugated:
            return self.product(x)
        return self.bk.conj(self.product(self.bk.conj(x)))

    def transpose(self) -> Operator:
        return self.turned(transposed=not self.transposed, conjugated=self.conjugated)

    def conj(self) -> Operator:
        return self.turned(transposed=self.transposed, conjugated=not self.conjugated)
