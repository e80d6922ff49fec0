"""Dense factorisations and solves with them: `backend.linalg`, as `linalg` of the array API standard.

Every library has its own LAPACK, or a compiler's form of it; none of these can be written with other operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from ..operations import dense
from .arrays import Array


class Linalg(ABC):
    """Right-hand sides and solutions are rows of `(batch, n)`; those of `operations.dense` are columns."""

    first_pivot: ClassVar[int | None] = None  # first row index of LU's interchanges; None: a permutation
    _backend: Any = None  # of which it is an attribute

    def __get__(self, backend: Any, owner: type) -> Linalg:
        if backend is not None:
            self._backend = backend
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Operations for users, which are names of the backend, too: only what the class has not comes here."""
            if name not in dense.NAMES:
                raise AttributeError(f"bk.linalg has no {name!r}; bk.xp.linalg has the names of the standard.")
            return getattr(self._backend, name)

    @abstractmethod
    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        """Pivoted LU of `(..., n, n)`; the first array holds U in its upper triangle. Accepts singular matrices."""

    def lu_solve(self, factors: tuple[Array, ...], b: Array, transposed: bool = False) -> Array:
        """Solve with factors of `(n, n)` or `(batch, n, n)`, or with the transpose, for each row of `(batch, n)`."""
        return self._by_columns(factors[0], b, lambda columns: self._lu_columns(factors, columns, transposed))

    @abstractmethod
    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        """`lu_solve` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def inverse(self, matrix: Array) -> Array:
        """Inverses of `(batch, n, n)`; unspecified, possibly not finite, for singular matrices."""

    def solve_triangular(self, matrix: Array, b: Array, lower: bool) -> Array:
        """Solve with a triangle of `(n, n)` or `(batch, n, n)` for each row of `(batch, n)`; no zeros on diagonals."""
        return self._by_columns(matrix, b, lambda columns: self._triangular_columns(matrix, columns, lower))

    @abstractmethod
    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        """`solve_triangular` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def cholesky(self, matrix: Array) -> Array | None:
        """Lower Cholesky factor of `(..., n, n)`, or None if some matrix is not positive definite or not known yet."""

    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        """Solve with a lower factor `(n, n)` or `(batch, n, n)` for each row of `(batch, n)`."""
        return self._by_columns(factor, b, lambda columns: self._cholesky_columns(factor, columns))

    @abstractmethod
    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        """`cholesky_solve` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        """Eigenvalues `(k,)`, rising, and eigenvectors `(k, k)` in columns of a finite Hermitian matrix `(k, k)`."""

    def _by_columns(self, factor: Array, b: Array, solve: Callable[[Array], Array]) -> Array:
        """One matrix solves for all rows of b at once, each of several for its own."""
        if len(factor.shape) == 2:
            return self._turned(solve(self._turned(b)))
        return solve(b[..., None])[..., 0]

    def _turned(self, rows: Array) -> Array:
        """The transpose of `(batch, n)`."""
        return rows.T
