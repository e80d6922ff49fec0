"""Times of a solve, in its result."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from .failure import ConvergenceError, result_of_this_solve
from .later import with_python_numbers
from .result import SolveResult


def with_times(function: Callable[..., SolveResult], *args: Any) -> SolveResult:
    """`function(*args)`, a solve, as users get it, with times and Python's numbers; so is the result of an error.

    Raises:
        NotConverged, Diverged: as the function.
    """
    begun = perf_counter()
    try:
        result = function(*args)
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            _tell_of(failed, begun)
        raise
    found = result.__dict__
    if "_later" in found:
        found["setup_time"] = max(perf_counter() - begun - found["solve_time"], 0.0)
    else:
        _tell_of(result, begun)
    return result


def _tell_of(result: SolveResult, begun: float) -> None:
    found = result.__dict__
    if not with_python_numbers(result):
        found["solve_time"] = found["setup_time"] = None  # it was compiled only
    elif found["solve_time"] is not None:
        found["setup_time"] = max(perf_counter() - begun - found["solve_time"], 0.0)
