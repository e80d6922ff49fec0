"""Fast Fourier transforms: `backend.fourier`, on which the trigonometric transforms are built.

Every library has its own; none can be written with other operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from .arrays import Array


class Fourier(ABC):
    """Transforms of real arrays keep half of the frequencies of the last axis; the others are their conjugates."""

    cost: ClassVar[float]  # of a pass of a transform over its numbers, in rows of a product with a matrix; measured
    along_any_axis: ClassVar[bool] = False  # are transforms along all axes as quick as along the last one?

    @abstractmethod
    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        """The transform along one to three axes, the last of which has `n // 2 + 1` frequencies where x is real."""

    @abstractmethod
    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        """The inverse of `forward` of complex arrays, or of real ones whose last axis had this length."""

    @abstractmethod
    def parts(self, x: Array) -> tuple[Array, Array]:
        """The real and the imaginary part of a complex array."""

    @abstractmethod
    def complex(self, real: Array, imaginary: Array) -> Array:
        """Made of its two parts."""

    def trigonometric(self, kind: str, x: Array, axes: Sequence[int]) -> Array | None:
        """The library's own orthonormal transform into sines or cosines, as "DST-I"; None where it has none."""
        return None
