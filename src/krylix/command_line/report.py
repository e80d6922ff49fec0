"""Report of a solve for people: residual, iterations, time, and the cause of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..solvers import Status
from .facts import Line, column_norms, maps_constants_to_zero
from .preconditioning import is_file
from .solve import SolveOutcome
from .system import SystemRead

_MAX_COLUMNS = 10  # right-hand sides that get a line each


def describe(system: SystemRead, outcome: SolveOutcome, backend: str, wanted_preconditioner: str | None) -> list[Line]:
    """Method, status, iterations, residuals and error."""
    lines = [
        ("method", outcome.result.method + (", chosen by auto" if outcome.automatic else "")),
        ("preconditioner", _preconditioner(outcome, wanted_preconditioner)),
        ("backend", f"{backend}, {outcome.x.dtype}"),
        ("status", _status(outcome)),
        *([("singular", "the matrix is: x has no part in its null vectors")] if np.any(outcome.singular) else []),
        ("iterations", _range(outcome.iterations, str)),
        ("residual", _residual(outcome)),
        ("check", _check(outcome)),
        *([("fit", _fit(outcome))] if outcome.result.least_squares else []),
    ]
    if len(outcome.status) > 1:
        lines += _columns(outcome)
    found = relative_error(system, outcome.x)
    if found is not None:
        up_to = ", up to a constant" if maps_constants_to_zero(system.A) else ""
        lines.append(("error", f"|x - known x| / |known x| = {found:.1e}{up_to}"))
    return lines + [("warning", note) for note in outcome.notes]


def _preconditioner(outcome: SolveOutcome, wanted: str | None) -> str:
    used = outcome.result.preconditioner
    if used is None and wanted is not None:
        return f"none ({wanted} was given, but the method that was taken in the end takes none)"
    return f"{used}, from {wanted}" if used and wanted is not None and is_file(wanted) else used or "none"


def _status(outcome: SolveOutcome) -> str:
    if not outcome.converged:
        return f"NOT CONVERGED: {outcome.result.message}"
    text = "converged" if len(outcome.status) == 1 else f"converged, all {len(outcome.status)} systems"
    if np.all(outcome.result.consistent):
        return text
    return f"{text}, to least squares: no x reaches a part of b of norm {outcome.null_part.max():.3e}"


def _residual(outcome: SolveOutcome) -> str:
    worst = _worst(outcome.norm, outcome.tolerance)
    sign = "<=" if outcome.norm[worst] <= outcome.tolerance[worst] else "against"
    which = "" if len(outcome.norm) == 1 else f" (column {worst}, the worst)"
    return f"{_symbol(outcome)} = {outcome.norm[worst]:.3e} {sign} tolerance {outcome.tolerance[worst]:.3e}{which}"


def _check(outcome: SolveOutcome) -> str:
    """The second opinion; a contradiction is said aloud."""
    worst = _worst(outcome.check, outcome.tolerance)
    text = f"{_symbol(outcome)} = {outcome.check[worst]:.3e}, computed again by NumPy and SciPy in double precision"
    if outcome.converged and not outcome.confirmed:
        return f"{text}: NOT CONFIRMED, this is above the tolerance"
    return text if np.all(outcome.result.consistent) else f"{text}; without the part of b that no x reaches"


def _fit(outcome: SolveOutcome) -> str:
    """What least squares leave over."""
    text = f"|b - A x| = {_range(outcome.fit, '{:.3e}'.format)}"
    return f"{text}, the least there is" if outcome.converged else text


def _symbol(outcome: SolveOutcome) -> str:
    return "|A^H (b - A x)|" if outcome.result.least_squares else "|b - A x|"


def _worst(norms: np.ndarray, tolerances: np.ndarray) -> int:
    with np.errstate(all="ignore"):
        excess = np.where(tolerances > 0, norms / tolerances, np.where(norms > 0, np.inf, 0))
    return int(np.argmax(np.nan_to_num(excess, nan=np.inf, posinf=np.inf)))


def _plural(number: int) -> str:
    return "" if number == 1 else "s"


def _columns(outcome: SolveOutcome) -> list[Line]:
    shown = [
        (
            f"  column {i}",
            f"{status_word(outcome.status[i])}, {outcome.iterations[i]} iteration{_plural(outcome.iterations[i])}, "
            f"{_symbol(outcome)} = {outcome.check[i]:.3e}, tolerance {outcome.tolerance[i]:.3e}",
        )
        for i in range(min(len(outcome.status), _MAX_COLUMNS))
    ]
    left = len(outcome.status) - len(shown)
    return [*shown, ("", f"... and {left} more columns")] if left else shown


def status_word(status: int) -> str:
    """The name of a `Status`, as it is read."""
    return Status(int(status)).name.lower().replace("_", " ")


def relative_error(system: SystemRead, x: np.ndarray) -> float | None:
    """Of x, where the solution is known; up to a constant where A 1 = 0."""
    if system.known is None:
        return None
    known = np.asarray(system.known, float)
    difference = x - known
    if maps_constants_to_zero(system.A):
        return _ratio(difference - difference.mean(), known - known.mean())
    return _ratio(difference, known)


def _ratio(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        return float((column_norms(a) / column_norms(b))[0])


def _range(values: np.ndarray, form: Callable[[Any], str]) -> str:
    low, high = values.min(), values.max()
    return form(high) if low == high else f"{form(low)} to {form(high)}"
