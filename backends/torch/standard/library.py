"""PyTorch's dtypes, and how its tensors are cast and made."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...standard.library import ArrayLibrary
from ..dtypes import TORCH_DTYPE, numpy_dtype

_NO_ARITHMETIC = "PyTorch stores such integers and does not compute with them: use uint8 or a wider signed integer."


class TorchLibrary(ArrayLibrary):
    """Unsigned integers of 16 bits and more are refused: PyTorch has hardly any operation on them."""

    name, module = "PyTorch", "torch"
    natives = TORCH_DTYPE
    extra_kinds = {torch.bfloat16: "f"}  # noqa: RUF012
    refused = dict.fromkeys(("uint16", "uint32", "uint64"), _NO_ARITHMETIC)

    @property
    def default_float(self) -> np.dtype:
        return numpy_dtype(torch.get_default_dtype())

    @property
    def default_unsigned(self) -> np.dtype:
        return np.dtype(np.int64)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.to(dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            x = from_numpy(np.asarray(x))
        return torch.as_tensor(x, dtype=dtype, device=None if like is None else like.device)

    def stack(self, arrays: list[Any]) -> Any:
        return torch.stack(arrays)

    def devices(self) -> list[Any]:
        found = [torch.device("cpu")]
        if torch.cuda.is_available():
            found += [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        return found

    def _promote_kind(self, a: Any, b: Any) -> Any:
        return torch.promote_types(a, b)


def from_numpy(x: np.ndarray, copy: bool = False) -> torch.Tensor:
    """An array of NumPy as a tensor; a copy where PyTorch cannot share its memory (negative strides, read-only)."""
    dtype = x.dtype.newbyteorder("=")
    if dtype not in TORCH_DTYPE:
        raise TypeError(f"PyTorch has no tensors of NumPy's dtype {dtype} to compute with; cast the array first.")
    shared = not copy and x.flags.writeable and x.dtype.isnative and all(stride >= 0 for stride in x.strides)
    return torch.as_tensor(x if shared else np.array(x, dtype, order="C"))
