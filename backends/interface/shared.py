"""Small things that several backends use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
Spec: TypeAlias = tuple[tuple[int, ...], np.dtype]  # shape and dtype that a host call returns

NO_DERIVATIVES = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. Give one "
    "limit for the solve that is to be differentiated."
)
EXPONENT_BITS: dict[int, tuple[np.dtype, int]] = {  # bytes of a real number: integer of that size, mask
    4: (np.dtype(np.int32), 0x7F800000),
    8: (np.dtype(np.int64), 0x7FF0000000000000),
}


def scatter(xp: Any, index: Array) -> Array:
    """Numbers in [-0.5, 0.5) without a pattern; `xp` is NumPy or a library with its names."""
    waves = xp.sin(12.9898 * index) * 43758.5453
    return waves - xp.floor(waves) - 0.5


def native_order(x: Any) -> Any:
    """A NumPy array with its bytes in the order of this machine, as files may have another; all else unchanged."""
    return x.astype(x.dtype.newbyteorder("=")) if isinstance(x, np.ndarray) and not x.dtype.isnative else x


def row_starts(rows: np.ndarray, n: int) -> np.ndarray:
    """`(n + 1,)`: where each row begins among entries in the order of rows; int32 where it holds the numbers."""
    starts = np.searchsorted(rows, np.arange(n + 1, dtype=rows.dtype))
    return starts.astype(np.int32) if len(rows) < 2**31 else starts


def as_declared(results: Sequence[Any], returns: Sequence[Spec]) -> tuple[np.ndarray, ...]:
    """What a function on the host returned, in the declared dtypes.

    Raises:
        ValueError: it has other shapes than declared.
    """
    arrays = tuple(np.asarray(r, dtype) for r, (_, dtype) in zip(results, returns, strict=True))
    for array, (shape, _) in zip(arrays, returns):
        if array.shape != tuple(shape):
            raise ValueError(
                f"A function on the host returned an array of shape {array.shape}; {tuple(shape)} was declared."
            )
    return arrays
