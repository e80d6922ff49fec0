"""The form in which a result is returned: in the library of b, with the time that it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from time import perf_counter
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...backends.registry import libraries_of
from ..read.system import System
from .failure import ConvergenceError, result_of_this_solve
from .numbers import Later, with_python_numbers
from .result import SolveResult, register_result


def in_library(bk: Backend, found: SolveResult, like: Array) -> SolveResult:
    """Convert `found`, of one system, from NumPy, to the device of `like`."""
    register_result(bk)
    fields = dict(found.__dict__, _sensitivity=None)
    numbers = dict(fields["_later"].numbers, residual=fields.pop("residual"))
    result: SolveResult = object.__new__(SolveResult)
    result.__dict__.update(fields, x=bk.from_host(np.asarray(fields["x"]), like), _later=Later(bk, numbers, like))
    return result


def is_numpy_elsewhere(system: System, b: Any) -> bool:
    """Is b NumPy's, and the result another library's, with known values?"""
    return not (system.compiled or system.bk.compiled()) and libraries_of(b) == ["numpy"]


def as_numpy(bk: Backend, result: SolveResult) -> SolveResult:
    """Convert the result to NumPy; unchanged if x is traced, or has derivatives, which would be lost."""
    leaves, _ = bk.leaves(result.x)
    if any(bk.tracks(leaf) or bk.compiled(leaf) for leaf in leaves) or bk.concrete_value(lambda: leaves[0]) is None:
        return result

    def converted(value: Any) -> Any:
        parts, structure = bk.leaves(value)
        return bk.unleaves(structure, [np.array(bk.to_numpy(part)) for part in parts])

    values = {field.name: getattr(result, field.name) for field in fields(result)}
    arrays = ("x", "residual", *(name for name, value in values.items() if bk.is_array(value)))
    return replace(result, **{name: converted(values[name]) for name in dict.fromkeys(arrays)})


def with_times(function: Callable[..., SolveResult], *args: Any) -> SolveResult:
    """`function(*args)`, a solve, with times and Python's numbers, which the result of an error gets as well.

    Raises:
        NotConverged, Diverged: as the function.
    """
    begun = perf_counter()
    try:
        result = function(*args)
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            _complete(failed, begun)
        raise
    values = result.__dict__
    if "_later" in values:
        values["setup_time"] = max(perf_counter() - begun - values["solve_time"], 0.0)
    else:
        _complete(result, begun)
    return result


def _complete(result: SolveResult, begun: float) -> None:
    values = result.__dict__
    if not with_python_numbers(result):
        values["solve_time"] = values["setup_time"] = None  # it was compiled only
    elif values["solve_time"] is not None:
        values["setup_time"] = max(perf_counter() - begun - values["solve_time"], 0.0)
