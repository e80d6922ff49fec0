"""Lazy conversion of NumPy results to another library: x now, everything else when it is read.

To make a dozen small arrays takes some libraries longer than the solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array, Backend, without_compilers
from .result import SolveResult, register_result


def in_library(bk: Backend, found: SolveResult, like: Array) -> SolveResult:
    """Convert `found` from NumPy, to the device of `like`."""
    register_result(bk)
    said = dict(found.__dict__, _sensitivity=None)
    numbers = {name: np.asarray(said.pop(name)) for name in _ARRAYS}
    result = object.__new__(SolveResult)
    result.__dict__.update(said, x=bk.from_host(numbers["x"], like), _later=Later(bk, numbers, like))
    return result


_ARRAYS = (
    "x", "residual", "residual_norm", "tolerance", "attainable", "null_part", "iterations", "function_evaluations",
    "converged", "diverged", "status", "singular",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Later:
    """Arrays of a result that are converted on access."""

    bk: Backend
    numbers: dict[str, np.ndarray]
    like: Array

    def made_for(self, result: SolveResult, name: str) -> Array:
        """Convert one, and keep it, unless it was made inside a trace."""
        (array,) = without_compilers(self.bk.results_from_host)([self.numbers[name]], self.like)
        if not self.bk.compiled(array):
            result.__dict__[name] = array
        return array
