"""Dense factorisations made of products of matrices, alike in every library of the standard.

One matrix, and one right-hand side, after the other: a batch then has the digits of its single systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..interface.arrays import Array
from ..interface.kernels import Linalg
from .sums import in_order
from .triangles import cholesky, lu, solve_lower, solve_upper


class ArrayApiLinalg(Linalg):
    """LU and Cholesky by halves; eigenvalues by the library's own `linalg`."""

    def __init__(self, namespace: Any, is_complex: Callable[[Array], bool]) -> None:
        self.namespace, self._is_complex = namespace, is_complex

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        xp = self.namespace
        index = xp.arange(int(matrix.shape[-1]), dtype=xp.int64, device=matrix.device)
        with np.errstate(all="ignore"):  # of libraries that compute with NumPy
            found = [lu(xp, one, index) for one in _each(xp, matrix)]
        return self._whole(matrix, [f for f, _ in found]), self._whole(matrix, [order for _, order in found])

    def lu_solve(self, factors: tuple[Array, ...], b: Array, transposed: bool = False) -> Array:
        return super().lu_solve(factors, in_order(self.namespace, b), transposed)

    def solve_triangular(self, matrix: Array, b: Array, lower: bool) -> Array:
        return super().solve_triangular(matrix, in_order(self.namespace, b), lower)

    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        return super().cholesky_solve(factor, in_order(self.namespace, b))

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        xp = self.namespace

        def solve(one: Array, order: Array, b: Array) -> Array:
            if not transposed:
                return solve_upper(xp, one, solve_lower(xp, one, xp.take(b, order, axis=0), unit=True))
            turned = xp.matrix_transpose(one)
            found = solve_upper(xp, turned, solve_lower(xp, turned, b), unit=True)
            return xp.take(found, xp.argsort(order), axis=0)

        return self._columns(solve, factors, columns)

    def inverse(self, matrix: Array) -> Array:
        xp, n = self.namespace, int(matrix.shape[-1])
        identity = xp.eye(n, dtype=matrix.dtype, device=matrix.device)
        return self._lu_columns(self.lu_factor(matrix), xp.broadcast_to(identity, tuple(matrix.shape)), False)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        xp, solve = self.namespace, solve_lower if lower else solve_upper
        return self._columns(lambda one, b: solve(xp, one, b), (matrix,), columns)

    def cholesky(self, matrix: Array) -> Array | None:
        xp, is_complex = self.namespace, self._is_complex(matrix)
        with np.errstate(all="ignore"):
            found = self._whole(matrix, [cholesky(xp, one, is_complex) for one in _each(xp, matrix)])
        return found if bool(xp.all(xp.isfinite(found))) else None

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        xp = self.namespace

        def solve(one: Array, b: Array) -> Array:
            adjoint = xp.matrix_transpose(xp.conj(one) if self._is_complex(one) else one)
            return solve_upper(xp, adjoint, solve_lower(xp, one, b))

        return self._columns(solve, (factor,), columns)

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = self.namespace.linalg.eigh(matrix)
        return values, vectors

    def _turned(self, rows: Array) -> Array:
        return self.namespace.matrix_transpose(rows)

    def _columns(self, solve: Callable[..., Array], factors: tuple[Array, ...], columns: Array) -> Array:
        """`solve(*factors, column)`, column by column, of one matrix or of several."""
        xp = self.namespace
        with np.errstate(all="ignore"):
            if len(factors[0].shape) == 2:
                found = [solve(*factors, columns[:, i : i + 1]) for i in range(int(columns.shape[1]))]
                return xp.concat(found, axis=1) if found else columns
            systems = range(int(columns.shape[0]))
            several = [self._columns(solve, tuple(f[i, ...] for f in factors), columns[i, ...]) for i in systems]
        return xp.stack(several) if several else columns

    def _whole(self, matrix: Array, found: list[Array]) -> Array:
        """What was found of each matrix, with the axes of a batch in front."""
        if len(matrix.shape) == 2:
            return found[0]
        rest = tuple(found[0].shape) if found else tuple(matrix.shape)[-1:]
        return self.namespace.reshape(self.namespace.stack(found), (*tuple(matrix.shape)[:-2], *rest))


def _each(xp: Any, matrix: Array) -> Iterator[Array]:
    shape = tuple(int(n) for n in matrix.shape)
    stack = xp.reshape(matrix, (-1, *shape[-2:]))
    return (stack[i, ...] for i in range(int(stack.shape[0])))
