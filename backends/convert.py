"""Conversion of dense and sparse arrays between libraries, without a copy where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .interface.backend import Array, Backend
from .registry import NoBackendFound, backend_name, default_backend, get_backend, refuse_foreign


def convert(x: Any, backend: str | Backend | None = None) -> Array:
    """`x` as an array of `backend`, dense or sparse as it is.

    Values and dtype stay the same (JAX narrows to 32 bits unless 64 are enabled, as for every array). Memory is shared
    where that is safe, so treat the result as read-only. Derivatives do not pass between libraries.

    Args:
        x: array of NumPy, JAX, PyTorch, TensorFlow or another library with a backend, of any shape, or nested lists of
            numbers. Or a sparse matrix of SciPy, JAX, PyTorch, TensorFlow or krylix, which becomes `csr_array`, `BCOO`,
            a CSR tensor or `SparseTensor`, without duplicates.
        backend: a backend or its name; None means the default backend.

    Raises:
        NoBackendFound: unknown or missing library, or `x` is not an array of numbers.
        TypeError: the library has no such dtype, or derivatives of x are being recorded: give a constant. Or x is of
            a library that krylix does not compute with, such as xarray.
        ValueError: a batch of sparse matrices, or one whose indices are out of range.

    Examples:
        >>> import krylix
        >>> krylix.convert([1.0, 2.0], "numpy")
        array([1., 2.])
        >>> type(krylix.convert(krylix.sparse.eye(3), "numpy")).__name__
        'csr_array'
    """
    target = default_backend() if backend is None else get_backend(backend)
    if target.is_array(x) or target.sparse.accepts(x):
        return x
    if hasattr(x, "native"):  # a matrix of krylix
        if x.bk is not target:
            _refuse_recorded(x.bk, *(x.values if isinstance(x.values, tuple) else (x.values,)))
        return x.native(target)
    name = backend_name(x)
    source = get_backend(name) if name else None
    if source is None:
        refuse_foreign(x)
    if source is not None and source.sparse.accepts(x):
        return _sparse(x, source, target)
    if source is not None and not (source.is_array(x) or isinstance(x, np.ndarray)):
        raise NoBackendFound(f"convert expects an array or a sparse matrix; got {type(x).__name__}.")
    array = _on_host(source, x) if source is not None else np.asarray(x)
    if array.dtype.kind in "OUSMm" or array.dtype.names:
        raise NoBackendFound(f"convert expects an array of numbers; got {type(x).__name__} of dtype {array.dtype}.")
    # By way of the host. DLPack straight into TensorFlow aborts the process for memory that is not 64-byte aligned,
    # into PyTorch for negative strides; the host path has neither trap and shares memory in most cases.
    return target.asarray(array)


def _on_host(source: Backend, x: Array) -> np.ndarray:
    _refuse_recorded(source, x)
    return source.to_numpy(x)


def _refuse_recorded(source: Backend, *arrays: Array) -> None:
    for x in arrays:
        if source.tracks(x):
            raise TypeError(
                f"Derivatives of this {type(x).__name__} are being recorded, and they do not pass between libraries. "
                "Give a constant: x.detach(), tf.stop_gradient(x) outside of `tf.function`, or convert it under "
                "torch.no_grad()."
            )


def _sparse(x: Any, source: Backend, target: Backend) -> Any:
    if len(x.shape) != 2:
        raise ValueError(f"convert expects one sparse matrix; got a batch of the shape {tuple(x.shape)}.")
    if not source.on_host:
        source.sparse.check(x, "The matrix")
    found = source.sparse.entries(x)
    values, rows, cols = (_on_host(source, part) for part in (found.values, found.rows, found.cols))
    if values.dtype == np.float16:
        raise TypeError("convert takes sparse matrices of SciPy's dtypes; got float16. Cast it to float32 first.")
    csr = sp.coo_array((values, (rows, cols)), tuple(found.shape)).tocsr()  # adds duplicates up, in order
    rows = np.repeat(np.arange(csr.shape[0], dtype=csr.indices.dtype), np.diff(csr.indptr))
    return csr if target.on_host else target.sparse.native(target.asarray(csr.data), rows, csr.indices, csr.shape)
