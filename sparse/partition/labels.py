"""Labels of parts: given ones checked, and parts on the devices that own most of their unknowns already."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

_MOST = 512  # parts that are assigned


def checked_labels(labels: Any, n: int, parts: int) -> np.ndarray:
    """`(n,)` int32.

    Raises:
        ValueError: labels of another shape or kind, or out of range.
    """
    found = np.asarray(labels)
    if found.shape != (n,) or found.dtype.kind not in "iu":
        raise ValueError(f"labels have the shape {found.shape} and dtype {found.dtype}; expected integers ({n},).")
    if n and not 0 <= found.min() <= found.max() < parts:
        raise ValueError(f"labels go from {found.min()} to {found.max()}; expected 0 to {parts - 1}, for each device.")
    return found.astype(np.int32)


def near_their_blocks(labels: np.ndarray, parts: int) -> np.ndarray:
    """Number the parts so that as many unknowns as possible stay on the device that has them in the user's order."""
    n = len(labels)
    if not 1 < parts <= _MOST:
        return labels
    block = np.arange(n) // max(-(-n // parts), 1)
    shared = np.bincount(labels.astype(np.int64) * parts + block, minlength=parts * parts).reshape(parts, parts)
    return linear_sum_assignment(shared, maximize=True)[1][labels].astype(np.int32)
