"""Conversion of results to the library of b: a NumPy b with a matrix of another library gives a NumPy x."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ...backends import Backend
from ...backends.registry import libraries_of
from ..setup.problem import Problem
from .result import SolveResult


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
