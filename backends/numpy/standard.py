"""The array API standard on NumPy: NumPy's own functions, and the few that lack an argument of the standard."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..standard.library import DTYPES, ArrayLibrary
from ..standard.namespace import Namespace


class _NumpyLibrary(ArrayLibrary):
    name, module = "NumPy", "numpy"
    natives = {np.dtype(name): np.dtype(name) for name in (*DTYPES, "float16")}  # noqa: RUF012
    default_float = np.dtype(np.float64)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, (np.ndarray, np.generic))

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.astype(dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        return np.asarray(x, dtype)

    def stack(self, arrays: list[Any]) -> Any:
        return np.stack(arrays)

    def devices(self) -> list[Any]:
        return ["cpu"]


def conj(x: Any, /) -> Any:
    """NumPy's, which makes integers of booleans."""
    return x.copy() if x.dtype.kind == "b" else np.conj(x)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """NumPy's, whose order can only rise."""
    found = np.sort(x, axis=axis, stable=stable)
    return np.flip(found, axis) if descending else found


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """NumPy's; equal elements keep their order, also where the order falls."""
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, stable=stable), axis)


def tril(x: Any, /, *, k: int = 0) -> Any:
    """NumPy's, which makes a matrix of a vector."""
    return np.tril(_matrices(x, "tril"), k=k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """NumPy's, which makes a matrix of a vector."""
    return np.triu(_matrices(x, "triu"), k=k)


def _matrices(x: Any, function: str) -> Any:
    if np.ndim(x) < 2:
        raise ValueError(f"xp.{function} got an array of shape {np.shape(x)}; expected at least two axes.")
    return x


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """NumPy's, whose axis has no default before version 2.3."""
    return np.take_along_axis(x, indices, axis)


def meshgrid(*arrays: Any, indexing: Any = "xy") -> list[Any]:
    """NumPy's, as a list."""
    return list(np.meshgrid(*arrays, indexing=indexing))


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """NumPy's, as a list."""
    return list(np.broadcast_arrays(*arrays))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """NumPy's, with the standard's default `rtol`."""
    return np.linalg.pinv(x, rtol=rtol)


def fftfreq(n: int, /, *, d: float, dtype: Any, device: Any) -> Any:
    """NumPy's, in a dtype."""
    return np.fft.fftfreq(n, d, device=device).astype(dtype)


def rfftfreq(n: int, /, *, d: float, dtype: Any, device: Any) -> Any:
    """NumPy's, in a dtype."""
    return np.fft.rfftfreq(n, d, device=device).astype(dtype)


_HERE = sys.modules[__name__]
xp = Namespace(_NumpyLibrary(), {"": (_HERE, np), "linalg": (_HERE, np.linalg), "fft": (_HERE, np.fft)})
