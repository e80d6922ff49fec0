"""The array API standard on NumPy: NumPy's own functions, and the few that lack an argument of the standard."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..standard.library import DTYPES, ArrayLibrary, one_axis
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
    rising = np.sort(x, axis=axis, kind="stable" if stable else None)
    return np.flip(rising, axis) if descending else rising


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """NumPy's; equal elements keep their order, also where the order falls."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable" if stable else None)
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
    return np.linalg.pinv(x, max(x.shape[-2:]) * np.finfo(x.dtype).eps if rtol is None else rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """NumPy's, whose tolerance is absolute before version 2."""
    if rtol is None:
        return np.linalg.matrix_rank(x)
    sizes = np.linalg.svd(x, compute_uv=False)
    least = np.asarray(rtol)[..., None] * sizes.max(axis=-1, keepdims=True, initial=0)
    return np.count_nonzero(sizes > least, axis=-1)


def fftfreq(n: int, /, *, d: float, dtype: Any, device: Any) -> Any:
    """NumPy's, in a dtype."""
    return np.fft.fftfreq(n, d).astype(dtype)


def rfftfreq(n: int, /, *, d: float, dtype: Any, device: Any) -> Any:
    """NumPy's, in a dtype."""
    return np.fft.rfftfreq(n, d).astype(dtype)


# --- What NumPy has only since version 2 ------------------------------------------------------------------------------

_EARLIER_NAMES = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atan2": "arctan2",
    "atanh": "arctanh", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "concat": "concatenate", "permute_dims": "transpose", "pow": "power",
}  # fmt: skip


def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return x.astype(dtype, copy=copy)


def _cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    axis = one_axis("cumulative_sum", x, axis)
    sums = np.cumsum(x, axis, dtype)
    if not include_initial:
        return sums
    first = np.zeros_like(sums, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return np.concatenate([first, sums], axis)


def _matrix_transpose(x: Any, /) -> Any:
    return np.swapaxes(_matrices(x, "matrix_transpose"), -1, -2)


def _unique_all(x: Any, /) -> Any:
    values, indices, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    return values, indices, inverse.reshape(x.shape), counts


def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    return tuple(np.moveaxis(x, axis, 0))


def _diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return np.diagonal(x, offset, -2, -1)


def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return np.linalg.norm(x, ord, (-2, -1), keepdims)


def _svdvals(x: Any, /) -> Any:
    return np.linalg.svd(x, compute_uv=False)


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1, dtype)


_EARLIER = SimpleNamespace(
    **{name: getattr(np, earlier) for name, earlier in _EARLIER_NAMES.items()}, astype=_astype, unstack=_unstack,
    cumulative_sum=_cumulative_sum, matrix_transpose=_matrix_transpose, unique_all=_unique_all,
)  # fmt: skip
_EARLIER_LINALG = SimpleNamespace(
    matmul=np.matmul, matrix_transpose=_matrix_transpose, outer=np.outer, diagonal=_diagonal, matrix_norm=_matrix_norm,
    svdvals=_svdvals, trace=_trace,
)  # fmt: skip

_HERE = sys.modules[__name__]
xp = Namespace(
    _NumpyLibrary(),
    {"": (_HERE, np, _EARLIER), "linalg": (_HERE, np.linalg, _EARLIER_LINALG), "fft": (_HERE, np.fft)},
)
