"""Operations along axes that fast solvers on grids are made of: Fourier transforms and first-order recurrences.

`backend.fourier` has the fast transforms, on which the trigonometric ones are built: every library has its own, and
none can be written with other operations. Forward and back substitution of a tridiagonal matrix are recurrences.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

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


class Recurrences:
    """Recursive doubling, for all libraries: log2(n) passes over the array."""

    asarray: Callable[..., Array]
    astype: Callable[..., Array]
    concat: Callable[..., Array]
    dtype: Callable[[Array], np.dtype]

    @property
    def cost_of_step(self) -> float:
        """Measured cost of one step along the axis of `recurrence`, in `Fourier.cost`'s units; infinite for doubling.

        It is added to the cost of the arithmetic.
        """
        return math.inf

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        """`y_i = x_i + factors_i y_(i-1)` along axis 1 of `(batch, n, m)`; backward from `y_(i+1)`.

        Args:
            factors: `(n, m)`; the first, or backward the last of them, are of no effect.
        """
        n = int(x.shape[1])
        found, factors = x, self.astype(factors, self.dtype(x))[None]
        reach = 1
        while reach < n:
            found = self._added(found, factors, found, reach, backward)
            if 2 * reach < n:
                factors = self._added(None, factors, factors, reach, backward)
            reach *= 2
        return found

    def _added(self, to: Array | None, factors: Array, of: Array, reach: int, backward: bool) -> Any:
        """`to_i + factors_i of_(i - reach)`, with zeros beyond the ends and for `to` None."""
        n = int(of.shape[1])
        edge, rest = (slice(n - reach, n), slice(n - reach)) if backward else (slice(reach), slice(reach, n))
        there = slice(reach, n) if backward else slice(n - reach)
        inner = factors[:, rest] * of[:, there]
        outer = 0 * factors[:, edge] if to is None else to[:, edge]
        inner = inner if to is None else to[:, rest] + inner
        return self.concat([inner, outer] if backward else [outer, inner], 1)
