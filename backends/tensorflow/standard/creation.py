"""New tensors; dtypes are given, see `backends/standard/creation.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from .library import cast, flat, on_device, sizes

_HOST = 1  # of DLPack's kinds of devices


def asarray(obj: Any, /, *, dtype: Any, device: Any, copy: bool | None) -> Any:
    """A tensor of a tensor, or of a copy of an array of NumPy."""
    with on_device(device):
        if isinstance(obj, (tf.Tensor, tf.Variable)):
            x = tf.convert_to_tensor(obj)
            x = x if dtype is None else cast(x, dtype)
            return tf.identity(x) if copy or device is not None else x
        if copy is False:
            raise ValueError("xp.asarray got copy=False and an array of another library, of which TensorFlow copies.")
        # TensorFlow may keep the memory of an array of NumPy, which its owner may write to
        return tf.convert_to_tensor(np.array(obj, None if dtype is None else dtype.as_numpy_dtype))


def astype(x: Any, dtype: Any, /, *, copy: bool, device: Any) -> Any:
    """`x` in another dtype."""
    return asarray(x, dtype=dtype, device=device, copy=copy)


def _filled(value: int) -> Any:
    def filled(shape: Any, *, dtype: Any, device: Any) -> Any:
        return full(shape, value, dtype=dtype, device=device)

    def filled_like(x: Any, /, *, dtype: Any, device: Any) -> Any:
        return full(sizes(x), value, dtype=dtype, device=device)

    return filled, filled_like


zeros, zeros_like = _filled(0)
ones, ones_like = _filled(1)
empty, empty_like = zeros, zeros_like


def full(shape: Any, fill_value: Any, *, dtype: Any, device: Any) -> Any:
    """A number, or a tensor without axes, everywhere."""
    with on_device(device):
        if isinstance(fill_value, (tf.Tensor, tf.Variable)):
            return tf.fill(shape, tf.cast(fill_value, dtype))
        return tf.fill(shape, tf.constant(np.asarray(fill_value).astype(dtype.as_numpy_dtype)))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any, device: Any) -> Any:
    """A number everywhere, in the shape of `x`."""
    return full(sizes(x), fill_value, dtype=dtype, device=device)


def arange(start: Any, stop: Any, step: Any, *, dtype: Any, device: Any) -> Any:
    """`start + i step` below `stop`."""
    with on_device(device):
        return tf.constant(np.arange(start, stop, step).astype(dtype.as_numpy_dtype))


def linspace(start: Any, stop: Any, num: int, *, dtype: Any, device: Any, endpoint: bool) -> Any:
    """`num` numbers from `start` to `stop`."""
    with on_device(device):
        return tf.constant(np.linspace(start, stop, num, endpoint=endpoint).astype(dtype.as_numpy_dtype))


def eye(n_rows: int, n_cols: int, /, *, k: int, dtype: Any, device: Any) -> Any:
    """Ones on the k-th diagonal."""
    with on_device(device):
        return tf.cast(tf.range(n_rows)[:, None] + k == tf.range(n_cols), dtype)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of a grid, one array for each axis; TensorFlow's multiplies by ones: inf becomes NaN."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"xp.meshgrid got indexing={indexing!r}; expected 'xy' or 'ij'.")
    count = len(arrays)
    axes = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else [*range(count)]
    lines = [
        tf.reshape(x, [-1 if other == axis else 1 for other in range(count)])
        for x, axis in zip(arrays, axes, strict=True)
    ]
    shape = [sizes(flat(arrays[axes.index(axis)]))[0] for axis in range(count)]
    return [tf.broadcast_to(x, shape) for x in lines]


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The part below the k-th diagonal, with it."""
    row, column = _rows_and_columns(x)
    return tf.where(column - row <= k, x, tf.zeros((), x.dtype))


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The part above the k-th diagonal, with it."""
    row, column = _rows_and_columns(x)
    return tf.where(column - row >= k, x, tf.zeros((), x.dtype))


def _rows_and_columns(x: Any) -> tuple[Any, Any]:
    *_, rows, columns = sizes(x)
    return tf.range(rows)[:, None], tf.range(columns)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor of another library's array; by way of the host's memory, as TensorFlow ends the process at some."""
    if isinstance(x, tf.Tensor):
        return asarray(x, dtype=None, device=device, copy=copy)
    if x.__dlpack_device__()[0] != _HOST:
        shared = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        return asarray(shared, dtype=None, device=device, copy=copy)
    return asarray(np.from_dlpack(x), dtype=None, device=device, copy=copy)
