"""Fourier transforms in JAX."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array
from ..interface.fourier import Fourier


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
