"""The part of a backend about arrays that users make: the dtypes of new numbers, and the array API standard."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from ..precision import get_precision


class NewArrays:
    """The library's default dtypes, and its functions under the standard's names."""

    name: str

    @property
    def default_float(self) -> np.dtype:
        """The dtype that this library gives to real numbers by default."""
        return np.dtype(np.float64)

    @property
    def float_type(self) -> np.dtype:
        """The dtype of new real numbers: of `krylix.precision`, or else the library's own."""
        bits = get_precision()
        return self.default_float if bits is None else np.dtype(f"float{bits}")

    @property
    def complex_type(self) -> np.dtype:
        """The dtype of new complex numbers, whose parts are real ones of `float_type` or wider."""
        return np.promote_types(self.float_type, np.complex64)

    def stored_dtype(self, dtype: np.dtype) -> np.dtype:
        """The dtype that a NumPy array of `dtype` becomes in the library: JAX may be set to single precision."""
        return np.dtype(dtype)

    def enable_double_precision(self) -> None:
        """Enable double precision for the rest of the process, where the library has a switch for it."""

    @cached_property
    def xp(self) -> Any:
        """The array API standard 2024.12 on this library: functions, dtypes, `linalg` and `fft`, alike on all four.

        One promotion rule holds: an integer with real or complex numbers gives the latter's dtype, arrays without axes
        count as arrays, and numbers of Python only raise the kind. `krylix.precision` sets the dtype of new real
        numbers. What a library has beyond the standard is no part of it.
        """
        # By name: solves do not need it, and only the folder of the library imports the library.
        return import_module(f"..{self.name}.standard", __package__).xp
