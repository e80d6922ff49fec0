"""What the automatic choice loses: auto beside the better of SuperLU's factors and the iteration that it would take."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve
from krylix.solvers import Method
from krylix.solvers.choose import choose
from krylix.solvers.read.arguments import Request
from krylix.solvers.read.system import read_system

from .choice_matrices import matrices
from .measure import Comparison, compare, per_call, seconds
from .robustness import right_hand_side
from .settings import Settings
from .table import Row

RTOL = 1e-8
MOST = 5000  # iterations
_QUICK = ("knot", "plant 4000", "arrow")


def rows(settings: Settings) -> Iterator[Row]:
    ours = theirs = 0.0
    for name, make in matrices().items():
        if settings.repeats == 1 and name not in _QUICK:
            continue
        row = _row(name, make(), settings)
        ours += row.measured.krylix if row.measured else 0
        theirs += row.measured.peer if row.measured else 0
        yield row
    yield Row("all of them", "the better of each", Comparison(ours, theirs, ours / theirs), budget=1.3)


def iteration_of(A: sp.csr_array, b: np.ndarray) -> tuple[Method, str | None]:
    """The method that auto would take if there were no factors, and its preconditioner."""
    choice = choose(read_system(Request(A, b), None))
    while choice.method.name in ("direct", "scipy-direct", "sparse-direct"):
        choice = choice.next()
    return choice.method, choice.preconditioner


def _row(name: str, A: sp.csr_array, settings: Settings) -> Row:
    b = right_hand_side(A)
    found = linear_solve(A, b, rtol=RTOL, on_failure="status")
    with_what = "" if found.preconditioner is None else f" + {found.preconditioner}"
    what = f"{name}, {A.shape[0]} unknowns: {found.method}{with_what}, {int(found.iterations)} iterations"
    if not found.converged:
        return Row(f"{name}: {found.method} has failed", "", missing="not solved")
    method, kind = iteration_of(A, b)
    by_hand = {
        "scipy-direct": partial(linear_solve, A, b, method="scipy-direct", rtol=RTOL),
        method.name: partial(linear_solve, A, b, method=method, preconditioner=kind, rtol=RTOL, max_iter=MOST),
    }
    times = {each: taken for each, solve in by_hand.items() if (taken := _taken(solve)) is not None}
    best = min(times, key=lambda each: times[each])
    pair = per_call(partial(linear_solve, A, b, rtol=RTOL)), per_call(by_hand[best])
    others = ", ".join(f"{each} {1e3 * taken:.0f} ms" for each, taken in times.items())
    return Row(what, f"{best} (once: {others})", compare(*pair, settings.repeats))


def _taken(solve: partial[object]) -> float | None:
    """Seconds; None where it does not converge, or cannot be used."""
    converged = []

    def once() -> None:
        converged.append(bool(solve(on_failure="status").converged))  # type: ignore[attr-defined]

    try:
        taken = seconds(once)
    except (ValueError, TypeError):
        return None
    return taken if all(converged) else None
