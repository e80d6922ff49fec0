"""Dense matrices in an array library: products, factorisations, solves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

Array: TypeAlias = Any


class DenseAlgebra(ABC):
    """The part of a backend that deals with dense matrices; vectors are rows of `(batch, n)`."""

    @abstractmethod
    def product(self, matrix: Array, x: Array) -> Array:
        """`(n, m)` or `(batch, n, m)` times each row of `(batch, m)` -> `(batch, n)`."""

    @abstractmethod
    def matrix_transpose(self, matrix: Array) -> Array:
        """Swap the last two axes."""

    @abstractmethod
    def diagonal(self, matrix: Array) -> Array:
        """`(..., n, n)` -> `(..., n)`."""

    @abstractmethod
    def put_row(self, stack: Array, row: Array, values: Array) -> Array:
        """`stack[i, row[i]] = values[i]` for each i whose row exists; may overwrite `stack`.

        `(batch, rows, n)`, integers `(batch, 1)` and `(batch, n)`.
        """

    @abstractmethod
    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        """Pivoted LU of `(..., n, n)`; the first array holds U in its upper triangle. Singular matrices pass."""

    @abstractmethod
    def lu_solve(self, factors: tuple[Array, ...], b: Array, transposed: bool = False) -> Array:
        """Solve with factors of `(n, n)` or `(batch, n, n)`, or with the transpose, for each row of `(batch, n)`."""

    @abstractmethod
    def solve_triangular(self, matrix: Array, b: Array, lower: bool) -> Array:
        """Solve with one triangle of `(batch, n, n)` for each row of `(batch, n)`; no zeros on the diagonal."""

    @abstractmethod
    def cholesky(self, matrix: Array) -> Array | None:
        """Lower Cholesky factor of `(..., n, n)`, or None if some matrix is not positive definite or not known yet."""

    @abstractmethod
    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        """Solve with a lower factor `(n, n)` or `(batch, n, n)` for each row of `(batch, n)`."""
