"""Table of PyTorch's and NumPy's dtypes."""

from __future__ import annotations

import numpy as np
import torch

TORCH_DTYPE = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.complex64): torch.complex64,
    np.dtype(np.complex128): torch.complex128,
}
NUMPY_DTYPE = {theirs: ours for ours, theirs in TORCH_DTYPE.items()}


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """NumPy's dtype for one of torch's.

    Raises:
        TypeError: NumPy has none (bfloat16, float8).
    """
    if dtype not in NUMPY_DTYPE:
        raise TypeError(
            f"krylix computes in single or double precision; got {dtype}. Cast to torch.float32 or torch.float64, and "
            "leave torch.autocast off inside of A (around a solve it is)."
        )
    return NUMPY_DTYPE[dtype]
