"""Moving entries, Fourier transforms, recurrences and dense factorisations in JAX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array, Integers
from ..interface.kernels import Fourier, Kernels, Linalg
from .sharding.grid_rows import GridStack
from .tracing import is_compiled


class JaxIndexing(Kernels):
    """Kernels by gather, scatter and the like, without bounds checks."""

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        where = (slice(None),) * (axis % jnp.ndim(x))
        return x.at[(*where, jnp.asarray(index))].get(mode="promise_in_bounds")

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        return jax.ops.segment_sum(values, jnp.asarray(ids), count, indices_are_sorted=sorted)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        return lax.pad(x, jnp.zeros((), x.dtype), [(lo, hi, 0) for lo, hi in widths])

    def window(self, x: Array, start: Sequence[int], shape: Sequence[int]) -> Array:
        box = [(-s, s + n - m, 0) for s, n, m in zip(start, shape, x.shape[x.ndim - len(shape) :], strict=True)]
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - len(shape)) + box)

    def add_box(self, x: Array, lo: Sequence[int], part: Array) -> Array:
        # in place inside of a compiled program, where a sum with padding would be a pass over all of x
        there = lax.slice(x, lo, [first + n for first, n in zip(lo, part.shape, strict=True)])
        return lax.dynamic_update_slice(x, there + part, lo)

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        systems = jnp.arange(buffer.shape[1])
        row = jnp.where(active[:, 0], row[:, 0], buffer.shape[0])  # beyond the end: dropped
        return buffer.at[row, systems].set(values[:, 0].astype(buffer.dtype), mode="drop")

    def put_row(self, stack: Array, row: Array, values: Array) -> Any:
        if isinstance(stack, GridStack):
            return stack.with_row(row, values)
        return stack.at[jnp.arange(stack.shape[0]), row[:, 0]].set(values, mode="drop")

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        return lax.dynamic_update_slice(rows, values, (jnp.zeros((), start.dtype), start[0]))


# --- Fourier transforms and first-order recurrences in JAX: by a loop over the rows on CPUs, else by doubling ---------

_COST_OF_STEP = 5e3


class JaxFourier(Fourier):
    """XLA's transforms."""

    cost = 3.0

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        return (jnp.fft.fftn if jnp.iscomplexobj(x) else jnp.fft.rfftn)(x, axes=tuple(axes))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        if length is None:
            return jnp.fft.ifftn(x, axes=tuple(axes))
        return jnp.fft.irfftn(x, (*(x.shape[axis] for axis in axes[:-1]), length), tuple(axes))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return jnp.real(x), jnp.imag(x)

    def complex(self, real: Array, imaginary: Array) -> Array:
        return lax.complex(real, imaginary)


class JaxRecurrences(Kernels):
    """A scan over rows on a single CPU; elsewhere recursive doubling, as steps are slow or rows sharded."""

    @property
    def cost_of_step(self) -> float:
        return _COST_OF_STEP if jax.default_backend() == "cpu" and jax.device_count() == 1 else math.inf

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        if jax.default_backend() != "cpu":
            return super().recurrence(factors, x, backward)
        rows = jnp.swapaxes(x, 0, 1)
        # made of x, so that it has its varying mesh axes
        _, found = lax.scan(_step, 0 * rows[0], (jnp.asarray(factors, x.dtype), rows), reverse=backward)
        return jnp.swapaxes(found, 0, 1)


def _step(before: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
    """Named, since JAX caches loops by function."""
    factors, own = row
    now = own + factors * before
    return now, now


# --- Dense factorisations in JAX --------------------------------------------------------------------------------------


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
