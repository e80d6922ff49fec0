"""The part of a backend about arrays that users make: the dtypes of new numbers, and the array API standard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..settings import get_precision
from .arrays import Array
from .own_modules import needed_module


class NewArrays(ABC):
    """The library's default dtypes, and its functions under the standard's names."""

    name: str
    asarray: Callable[..., Array]
    to_device: Callable[..., Array]

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
        return None

    def zeros(
        self, shape: int | Sequence[int], dtype: Any = None, like: Array | None = None, device: Any = None
    ) -> Array:
        """A new array of zeros, on `like`'s device or another; of `float_type` where no dtype is given."""
        if isinstance(dtype, np.dtype) and device is None:
            return self._zeros(shape, dtype, like)
        return self.full(shape, 0, self.float_type if dtype is None else dtype, like, device)

    @abstractmethod
    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array: ...

    def full(
        self, shape: int | Sequence[int], value: Any, dtype: Any = None, like: Array | None = None, device: Any = None
    ) -> Array:
        """A new array filled with one number, on `like`'s device or another; of the number's dtype, as in `xp.full`."""
        if isinstance(dtype, np.dtype) and device is None:
            return self._full(shape, value, dtype, like)
        made = self.xp.full(shape, value, dtype=dtype)
        if device is not None:
            return self.to_device(made, device)
        return made if like is None else self.asarray(made, like=like)

    @abstractmethod
    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array: ...

    @cached_property
    def xp(self) -> Any:
        """The array API standard 2024.12 on this library: functions, dtypes, `linalg` and `fft`, alike on all four.

        One promotion rule holds: an integer with real or complex numbers gives the latter's dtype, arrays without axes
        count as arrays, and numbers of Python only raise the kind. `krylix.precision` sets the dtype of new real
        numbers. What a library has beyond the standard is no part of it.
        """
        return needed_module(self, "standard", "the namespace `xp`").xp
