"""Evaluations of an opaque function, counted, without its value at zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import UnsupportedOperation
from ..opaque import is_linear_operator

MOST_EVALUATIONS = 10_000
_COLUMNS = 32  # that are multiplied at once


class Probe:
    """`x -> f(x) - f(0)` on flat vectors.

    Attributes:
        n, m: number of unknowns, and of the elements of `f(x)`.
        dtype: of the vectors that f gets.
        bias: f(0).
        count: evaluations so far.
    """

    def __init__(
        self, function: Callable[[np.ndarray], np.ndarray], n: int, dtype: np.dtype, matmat: Any = None
    ) -> None:
        self._function, self._matmat = function, matmat
        self.n, self.dtype, self.count = n, dtype, 0
        self.bias = self.evaluate(np.zeros(n, dtype))
        self.m = self.bias.size
        self._affine = bool(self.bias.any())

    @property
    def eps(self) -> float:
        """The coarsest rounding unit of input and output."""
        return float(max(np.finfo(self.dtype).eps, np.finfo(self.bias.dtype).eps))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """f(x) as a flat array of its own.

        Raises:
            UnsupportedOperation: it is not finite, or there were too many evaluations.
        """
        self._spend(1)
        return self._checked(self._function(x))

    def images(self, columns: np.ndarray) -> np.ndarray:
        """The linear part of f for each row of an array `(count, n)`."""
        if self._matmat is None:
            found = np.stack([self.evaluate(np.array(x)) for x in columns])
        else:
            self._spend(len(columns))
            parts = [columns[k : k + _COLUMNS] for k in range(0, len(columns), _COLUMNS)]
            found = self._checked(np.concatenate([np.asarray(self._matmat(part.T.copy())).T for part in parts]))
        return found - self.bias if self._affine else found

    def image(self, x: np.ndarray) -> np.ndarray:
        """The linear part of f for one vector."""
        image = self.evaluate(x)
        return image - self.bias if self._affine else image

    def _spend(self, count: int) -> None:
        self.count += count
        if self.count > MOST_EVALUATIONS:
            raise UnsupportedOperation(
                f"After {MOST_EVALUATIONS} evaluations of the function its matrix was not found: it couples too many "
                "unknowns. Solve with the function itself, or write it with NumPy's functions, which are followed."
            )

    def _checked(self, image: np.ndarray) -> np.ndarray:
        if not np.isfinite(image).all():
            raise UnsupportedOperation(
                "The function returned infinity or NaN for a finite vector, so its matrix cannot be found by "
                "evaluations. Give a function that is finite everywhere."
            )
        return image


def matmat_of(f: Any) -> Any:
    """The product of a `LinearOperator` with many columns, where it has one of its own; else None."""
    if not is_linear_operator(f):
        return None
    own = getattr(type(f), "_matmat", None)  # SciPy's default joins results that may all be the same memory
    return f.matmat if hasattr(f, "A") or not str(getattr(own, "__module__", "scipy")).startswith("scipy") else None
