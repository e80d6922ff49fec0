"""Which functions and methods of arrays are views, need numbers, or leave NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class _Views(frozenset[Callable[..., Any]]):
    """Functions that NumPy applies to the ghost of an array."""

    methods = frozenset(("reshape", "ravel", "transpose", "swapaxes", "squeeze", "diagonal"))


_NAMES = (
    *("reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims", "atleast_1d"),
    *("atleast_2d", "atleast_3d", "broadcast_to", "flip", "fliplr", "flipud", "rot90", "diagonal", "split"),
    *("array_split", "hsplit", "vsplit", "dsplit", "matrix_transpose", "permute_dims", "unstack"),
)
VIEWS = _Views(
    [getattr(np, name) for name in _NAMES if hasattr(np, name)]  # some are new in NumPy 2
    + [getattr(np.linalg, name) for name in ("diagonal", "matrix_transpose") if hasattr(np.linalg, name)]
    + [np.lib.stride_tricks.sliding_window_view]
)

NONLINEAR_METHODS = frozenset(
    (
        *("min", "max", "argmin", "argmax", "sort", "argsort", "partition", "argpartition", "clip", "round"),
        *("prod", "cumprod", "std", "var", "any", "all", "nonzero", "searchsorted", "ptp", "choose", "byteswap"),
    )
)
OPAQUE_METHODS = frozenset(("item", "tolist", "tobytes", "tofile", "dump", "dumps", "data", "ctypes", "resize", "put"))
