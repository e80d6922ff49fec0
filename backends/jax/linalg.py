"""Dense factorisations in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array
from ..interface.kernels import Linalg
from .tracing import is_compiled


class JaxLinalg(Linalg):
    """`lax.linalg`; batches by `vmap`."""

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        lu, _, permutation = lax.linalg.lu(matrix)
        return lu, permutation

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        lu, permutation = factors
        if lu.ndim == 3:
            return jax.vmap(lambda f, p, c: self._lu_columns((f, p), c, transposed))(lu, permutation, columns)

        def triangle(columns: Array, lower: bool) -> Array:
            return lax.linalg.triangular_solve(
                lu, columns, left_side=True, lower=lower, unit_diagonal=lower, transpose_a=transposed
            )

        if not transposed:
            return triangle(triangle(_rows(columns, permutation), True), False)
        return _rows(triangle(triangle(columns, False), True), jnp.argsort(permutation))

    def inverse(self, matrix: Array) -> Array:
        return jnp.linalg.inv(matrix)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        return lax.linalg.triangular_solve(matrix, columns, left_side=True, lower=lower)

    def cholesky(self, matrix: Array) -> Array | None:
        if is_compiled(matrix):
            return None
        factor = jnp.linalg.cholesky(matrix)
        return factor if bool(jnp.all(jnp.isfinite(factor))) else None

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        if factor.ndim == 3:
            return jax.vmap(self._cholesky_columns)(factor, columns)
        return jax.scipy.linalg.cho_solve((factor, True), columns)

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return values, vectors


def _rows(columns: Array, order: Array) -> Array:
    """In this order, a permutation: without a look for negative numbers."""
    return jnp.take(columns, order, 0, mode="clip", unique_indices=True)
