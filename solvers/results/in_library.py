"""Conversion of results between NumPy and another library.

A small solve is made by NumPy, and converted lazily: x now, everything else when it is read, as to make a dozen small
arrays takes some libraries longer than the solve. And a NumPy b with a matrix of another library gives a NumPy x.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend, without_compilers
from ...backends.registry import libraries_of
from ..setup.problem import Problem
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


def is_numpy_elsewhere(problem: Problem, b: Any) -> bool:
    """Is b NumPy's, and the result another library's, with known values?"""
    bk = problem.bk
    return not (problem.compiled or bk.compiled()) and libraries_of(b) == ["numpy"]


def as_numpy(bk: Backend, result: SolveResult) -> SolveResult:
    """Convert the result to NumPy; unchanged if x is traced, or has derivatives, which would be lost."""
    leaves, _ = bk.leaves(result.x)
    if any(bk.tracks(leaf) or bk.compiled(leaf) for leaf in leaves) or bk.concrete_value(lambda: leaves[0]) is None:
        return result

    def converted(value: Any) -> Any:
        parts, structure = bk.leaves(value)
        return bk.unleaves(structure, [np.array(bk.to_numpy(part)) for part in parts])

    found = {field.name: getattr(result, field.name) for field in fields(result)}
    arrays = ("x", "residual", *(name for name, value in found.items() if bk.is_array(value)))
    return replace(result, **{name: converted(found[name]) for name in dict.fromkeys(arrays)})
