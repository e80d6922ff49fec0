"""Move an array between libraries, without a copy where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np

from .interface.backend import Array, Backend
from .registry import NoBackendFound, backend_name, default_backend, get_backend


def convert(x: Any, backend: str | Backend | None = None) -> Array:
    """`x` as an array of `backend`.

    Values and dtype stay the same (JAX narrows to 32 bits unless 64 are enabled, as for every array). Memory is shared
    where that is safe, so treat the result as read-only. Derivatives do not pass between libraries.

    Args:
        x: array of NumPy, JAX, PyTorch or TensorFlow, of any shape, or nested lists of numbers.
        backend: a backend or its name; None means the default backend.

    Raises:
        NoBackendFound: unknown or missing library, or `x` is not an array of numbers (convert sparse matrices with
            their own tools).
    """
    target = default_backend() if backend is None else get_backend(backend)
    if target.is_array(x):
        return x
    name = backend_name(x)
    source = get_backend(name) if name else None
    if source is not None and not (source.is_array(x) or isinstance(x, np.ndarray)):
        raise NoBackendFound(f"convert expects a dense array; got {type(x).__name__}.")
    array = source.to_numpy(x) if source is not None else np.asarray(x)
    if array.dtype.kind in "OUSMm" or array.dtype.names:
        raise NoBackendFound(f"convert expects an array of numbers; got {type(x).__name__} of dtype {array.dtype}.")
    # By way of the host. DLPack straight into TensorFlow aborts the process for memory that is not 64-byte aligned,
    # into PyTorch for negative strides; the host path has neither trap and shares memory in most cases.
    return target.asarray(array)
