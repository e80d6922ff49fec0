"""The form in which a result is returned: in the library of b, with the time that it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from time import perf_counter
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend
from ...backends.profile.spans import RUNNING, is_traced, span
from ...backends.registry import libraries_of
from ..read.system import System
from .failure import ConvergenceError, result_of_this_solve
from .numbers import Later, has_values, known_array_of, with_python_numbers
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


def with_times(title: str, function: Callable[..., SolveResult], *args: Any) -> SolveResult:
    """`function(*args)`, a solve, with times and Python's numbers, which the result of an error gets as well.

    Args:
        title: the name of the solve in profiles.

    Raises:
        NotConverged, Diverged: as the function.
    """
    begun = perf_counter()
    try:
        if RUNNING:
            with span("solve", title, facts=outcome_facts) as done:
                result = done(function(*args))
        else:  # without a span, which a solve of 14 us would notice
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


def outcome_facts(result: Any) -> dict[str, Any]:
    """What profiles show of a solve, given its result or error: of several systems the largest numbers.

    Args:
        result: of `linear_solve`, `solve_nonlinear` or `minimize`.
    """
    if isinstance(result, BaseException):
        if not isinstance(result, ConvergenceError):
            return {}
        result = result.result
    facts: dict[str, Any] = {"method": result.method, "preconditioner": getattr(result, "preconditioner", None)}
    if not has_values(result):
        return facts | {"traced": is_traced(choose_backend(result.status))}
    size = "gradient_norm" if hasattr(result, "gradient_norm") else "residual_norm"
    iterations, norm, converged = (known_array_of(result, name) for name in ("iterations", size, "converged"))
    facts |= {"systems": iterations.size} if iterations.size != 1 else {}
    facts |= {"iterations": int(np.max(iterations, initial=0)), size: float(np.max(norm, initial=0))}
    return facts | {"converged": bool(np.all(converged))}
