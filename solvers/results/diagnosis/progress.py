"""Convergence rate of a solve that reached its iteration limit, and the iterations that it would take."""

from __future__ import annotations

import math

import numpy as np

from ...run.outcome import Status
from ..advice import Cause
from .case import Case, norms

_HARDLY = 0.5  # of the residual norm at the start: what is above has not been a rate
_MANY = 1e6  # iterations that nobody would wait for


def too_few_iterations(case: Case) -> list[Cause]:
    """Cause: too few iterations, with the reduction of the worst residual and the max_iter that its rate requires."""
    numbers, w = case.numbers, case.numbers.worst
    if case.b is None or case.method.factorises or case.status is not Status.MAX_ITER:
        return []
    start = float(norms(case.b[w : w + 1])[0])
    if case.x0 is not None and case.A_image is not None:
        start = float(norms((case.b - case.A_image(case.x0))[w : w + 1])[0])
    end, bound, steps = float(numbers.norm[w]), float(numbers.bound[w]), int(numbers.steps[w])
    if steps < 2 or not (np.isfinite([start, end]).all() and start > 0 and end > 0):
        return []
    went = f"the {'normal ' * case.least_squares}residual norm went from {start:.1e} to {end:.1e} in {steps} iterations"
    if end > _HARDLY * start:
        return [Cause(f"{went}{' and has hardly fallen' if end < start else ''}", settles=False)]
    if not bound > 0:
        return []
    needed = steps * math.log(bound / start) / math.log(end / start)
    if needed > _MANY:
        return [Cause(f"{went}, too slowly to come to {bound:.1e}", settles=False)]
    digits = 10 ** max(math.floor(math.log10(max(needed, 1))) - 1, 0)
    rounded = math.ceil(needed / digits) * digits
    return [Cause(f"{went}; at that rate {bound:.1e} takes about {rounded}", (f"raise max_iter to {rounded}",), False)]
