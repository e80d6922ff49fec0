"""Words for what backends pass around."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # an array of the library
Integers: TypeAlias = Any  # an array of int32 or int64, of NumPy or of the library
Spec: TypeAlias = tuple[tuple[int, ...], np.dtype]  # shape and dtype that a host call returns
