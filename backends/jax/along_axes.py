"""Fourier transforms and first-order recurrences in JAX: by a loop over the rows on CPUs, else by doubling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array
from ..interface.kernels import Fourier, Kernels

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
