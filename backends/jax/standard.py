"""The array API standard on JAX: the functions of `jax.numpy`, and the few that give another dtype."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..standard.library import DTYPES, ArrayLibrary, axes_of
from ..standard.namespace import Namespace


class _JaxLibrary(ArrayLibrary):
    """What is 64 bits wide is 32 bits wide where JAX's double precision is off."""

    name, module = "JAX", "jax.numpy"
    natives = {np.dtype(name): np.dtype(name) for name in (*DTYPES, "float16")}  # noqa: RUF012
    extra_kinds = {np.dtype(jnp.bfloat16): "f"}  # noqa: RUF012

    @property
    def default_float(self) -> np.dtype:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))

    @property
    def default_integer(self) -> np.dtype:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.int64))

    @property
    def default_unsigned(self) -> np.dtype:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.uint64))

    def is_array(self, x: Any) -> bool:
        return isinstance(x, jax.Array)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        return jnp.asarray(x, dtype)

    def stack(self, arrays: list[Any]) -> Any:
        return jnp.stack(arrays)

    def devices(self) -> list[Any]:
        return list(jax.devices())

    def promote(self, a: Any, b: Any) -> Any:
        return jax.dtypes.canonicalize_dtype(super().promote(a, b))

    def _promote_kind(self, a: Any, b: Any) -> Any:
        return np.dtype(jnp.promote_types(a, b))


_LIBRARY = _JaxLibrary()


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """JAX's, which makes booleans of the real part of complex numbers alone."""
    return jnp.asarray(_truth(obj) if dtype == np.bool_ else obj, dtype=dtype, device=device, copy=copy)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """JAX's, which looks at the real part of complex numbers alone."""
    return jnp.any(_truth(x), axis=axis, keepdims=keepdims)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """JAX's, which looks at the real part of complex numbers alone."""
    return jnp.all(_truth(x), axis=axis, keepdims=keepdims)


def _truth(x: Any) -> Any:
    return x != 0 if np.iscomplexobj(x) else x


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """JAX's, with indices of the default dtype."""
    return jnp.searchsorted(x1, x2, side=side, sorter=sorter).astype(_LIBRARY.default_integer)


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """JAX's, which takes a part of a matrix that is not square."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"xp.linalg.cholesky got an array of shape {x.shape}; expected square matrices.")
    return jnp.linalg.cholesky(x, upper=upper)


def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """JAX's, also for negative axes."""
    return jnp.permute_dims(x, axes_of(axes, x.ndim))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """JAX's, whose axis has no default in older versions."""
    return jnp.take_along_axis(x, indices, axis)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """JAX's default for `rtol` is ten times the standard's."""
    return jnp.linalg.pinv(x, rtol=max(x.shape[-2:]) * jnp.finfo(x.dtype).eps if rtol is None else rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """JAX takes `rtol` for an absolute bound; it is one relative to the largest singular value."""
    values = jnp.linalg.svdvals(x)
    rtol = max(x.shape[-2:]) * jnp.finfo(values.dtype).eps if rtol is None else jnp.asarray(rtol)[..., None]
    return jnp.sum(values > rtol * jnp.max(values, -1, keepdims=True, initial=0), -1)


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """JAX's, as a list."""
    return list(jnp.broadcast_arrays(*arrays))


_HERE = sys.modules[__name__]
xp = Namespace(_LIBRARY, {"": (_HERE, jnp), "linalg": (_HERE, jnp.linalg), "fft": (jnp.fft,)})
