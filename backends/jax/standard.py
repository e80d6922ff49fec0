"""The array API standard on JAX: the functions of `jax.numpy`, and the few that give another dtype."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..standard.library import Library
from ..standard.names import DTYPES
from ..standard.namespace import Namespace


class _JaxLibrary(Library):
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


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """JAX's, with indices of the default dtype."""
    return jnp.searchsorted(x1, x2, side=side, sorter=sorter).astype(xp.__array_namespace_info__().default_dtypes()["indexing"])


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """JAX's, as a list."""
    return list(jnp.broadcast_arrays(*arrays))


xp = Namespace(_JaxLibrary(), {"": (sys.modules[__name__], jnp), "linalg": (jnp.linalg,), "fft": (jnp.fft,)})
