"""Functions of a backend for any dtypes: torch's own where they agree, else those of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..interface.arrays import SMALL, have_one_dtype, pairs_alike, pairs_with_int
from ..interface.backend import Array, Backend
from .dtypes import NUMPY_DTYPE

_FLOATING = frozenset(native for native, dtype in NUMPY_DTYPE.items() if dtype.kind in "fc")
_ALIKE, _WITH_INT = pairs_alike(NUMPY_DTYPE), pairs_with_int(NUMPY_DTYPE)


class TorchPromotion(Backend):
    """What solvers call, too, with tensors of one dtype: that costs them a comparison."""

    def concat(self, arrays: Sequence[Array], axis: int | None = 0) -> Array:
        if axis is None or not have_one_dtype(arrays):
            return self.xp.concat(arrays, axis=axis)
        return torch.cat(list(arrays), axis)

    def stack(self, arrays: Sequence[Array], axis: int = 0) -> Array:
        return torch.stack(list(arrays), axis) if have_one_dtype(arrays) else self.xp.stack(arrays, axis=axis)

    def where(self, condition: Array, a: Any, b: Any) -> Array:
        pair = (getattr(a, "dtype", type(a)), getattr(b, "dtype", type(b)))
        if getattr(condition, "dtype", None) is torch.bool and (
            pair in _ALIKE or (pair in _WITH_INT and (a if pair[0] is int else b) in SMALL)
        ):
            return torch.where(condition, a, b)
        return self.xp.where(condition, a, b)

    def maximum(self, a: Array, b: Any) -> Array:
        if getattr(a, "dtype", a) is getattr(b, "dtype", b):
            return torch.maximum(a, b)
        return self.xp.maximum(a, b)

    def sqrt(self, x: Array) -> Array:
        return torch.sqrt(x) if x.dtype in _FLOATING else self.xp.sqrt(x)

    def any(self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Any:
        return (
            x.any()
            if axis is None and not keepdims and x.dtype is torch.bool
            else self.xp.any(x, axis=axis, keepdims=keepdims)
        )

    def sum(
        self, x: Array, axis: int | Sequence[int] | None = None, keepdims: bool = False, dtype: Any = None
    ) -> Array:
        axis = tuple(axis) if isinstance(axis, list) else axis
        if dtype is None and x.dtype in _FLOATING:
            return x.sum(axis, keepdims, dtype=x.dtype) if axis != () else x  # torch sums over all where none is given
        return self.xp.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)
