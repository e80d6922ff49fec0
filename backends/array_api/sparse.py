"""Sparse matrices of a library of the array API standard: there are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..interface.arrays import Array
from ..interface.kernels import CooEntries


class NoSparse:
    """Matrices of SciPy and of krylix take their place.

    Args:
        name: of the backend.
    """

    to_dense = "{}"

    def __init__(self, name: str) -> None:
        self.name = name

    def accepts(self, x: Any) -> bool:
        """Nothing is one."""
        return False

    def dtype(self, x: Any) -> np.dtype:
        """Of nothing."""
        raise self._refusal()

    def check(self, x: Any, what: str) -> None:
        """There is nothing to check."""

    def entries(self, x: Any) -> CooEntries:
        """Of nothing."""
        raise self._refusal()

    def native(self, values: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> Any:
        """
        Raises:
            TypeError: always.
        """
        raise self._refusal()

    def _refusal(self) -> TypeError:
        return TypeError(
            f"The array API standard has no sparse matrices, so krylix knows none of {self.name}; expected another "
            "library. Take the matrix of krylix itself, which multiplies arrays of "
            f"{self.name}, or that of SciPy: native('numpy')."
        )
