"""The automatic choice on matrices of many kinds, beside the best of some methods tried by hand on each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve

from .measure import Comparison, compare, per_call, seconds
from .robustness import matrices, right_hand_side
from .settings import Settings
from .table import Row

RTOL = 1e-8
_QUICK = ("knot", "recirc_flow", "unit_square")
BY_HAND: tuple[tuple[str, str | None], ...] = (
    ("scipy-direct", None),
    ("CG", "jacobi"),
    ("CG", "amg"),
    ("MINRES", None),
    ("biCG-stab(2)", "ilu"),
)


def rows(settings: Settings) -> Iterator[Row]:
    ours = theirs = 0.0
    for name, make in matrices().items():
        if settings.repeats == 1 and name not in _QUICK:
            continue
        A = make()
        b = right_hand_side(A)
        row = _row(name, A, b, settings)
        ours += row.measured.krylix if row.measured else 0
        theirs += row.measured.peer if row.measured else 0
        yield row
    yield Row("all of them", "the best of each", Comparison(ours, theirs, ours / theirs), budget=1.2)


def _row(name: str, A: sp.csr_array, b: np.ndarray, settings: Settings) -> Row:
    found = linear_solve(A, b, rtol=RTOL, on_failure="status")
    with_what = "" if found.preconditioner is None else f" + {found.preconditioner}"
    what = f"{name}, {A.shape[0]} unknowns: {found.method}{with_what}, {int(found.iterations)} iterations"
    if not found.converged:
        return Row(f"{name}: {found.method} has failed", "", missing="not solved")
    times = {}
    for method, kind in BY_HAND:
        seconds_taken = _by_hand(A, b, method, kind)
        if seconds_taken is not None:
            times[method, kind] = seconds_taken
    best = min(times, key=lambda key: times[key])
    pair = (
        per_call(lambda: linear_solve(A, b, rtol=RTOL)),
        per_call(lambda: linear_solve(A, b, method=best[0], preconditioner=best[1], rtol=RTOL)),
    )
    peer = best[0] if best[1] is None else f"{best[0]} + {best[1]}"
    return Row(what, peer, compare(*pair, settings.repeats))


def _by_hand(A: sp.csr_array, b: np.ndarray, method: str, kind: str | None) -> float | None:
    """Seconds, or None where it cannot be used or does not converge in 2000 iterations."""
    converged = []

    def solve() -> None:
        found = linear_solve(A, b, method=method, preconditioner=kind, rtol=RTOL, max_iter=2000, on_failure="status")
        converged.append(bool(found.converged))

    try:
        taken = seconds(solve)
    except (ValueError, TypeError):
        return None
    return taken if all(converged) else None
