"""A solve on NumPy arrays for arrays of another library, also inside its compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import get_backend, real_dtype
from ..sparse import Operator
from .iteration.driver import Outcome
from .iteration.run import Settings, run
from .setup.nullspace import projection
from .setup.problem import Problem


def run_on_host(
    problem: Problem, settings: Settings, M: Operator | None, report: Callable[..., None] | None
) -> Outcome:
    """The whole solve as one call of the host, which returns the outcome's arrays."""
    bk, host = problem.bk, get_backend("numpy")
    matrix, make_matrix = problem.A.for_host()
    inverse, make_inverse = M.for_host() if M is not None else ((), lambda _: None)
    start = () if problem.x0 is None else (problem.x0,)
    cut = (len(matrix), len(matrix) + len(inverse))
    made: list[Any] = []

    def on_host(*values: np.ndarray) -> Outcome:
        if not made or matrix or inverse:  # an operator without arrays is the same in every call
            made[:] = [make_matrix(values[: cut[0]]), make_inverse(values[cut[0] : cut[1]])]
        b, rtol, atol, *x0 = (np.array(v) for v in values[cut[1] :])
        project = None if problem.null_basis is None else projection(problem.null_basis, host, b)
        x = x0[0] if x0 else None
        found = run(made[0], made[1], b, x, rtol, atol, settings._replace(bk=host), project, report)
        return found if settings.history else found._replace(history=np.zeros(0, b.real.dtype))

    arrays = (*matrix, *inverse, problem.b, problem.rtol, problem.atol, *start)
    found = Outcome(*bk.host_call(on_host, _shapes(problem, settings.history), *arrays))
    return found if settings.history else found._replace(history=())


def _shapes(problem: Problem, history: bool) -> list[tuple[tuple[int, ...], np.dtype]]:
    bk, (systems, n) = problem.bk, (problem.layout.systems, problem.layout.size)
    lead = (len(problem.limits),) if len(problem.limits) > 1 else ()
    dtype, integer = bk.dtype(problem.b), np.dtype(np.int32)
    real = real_dtype(dtype)
    vector, scalar = (*lead, systems, n), (*lead, systems, 1)
    lines = (*lead, problem.limits[-1] + 1, systems) if history else (0,)
    kinds = {"x": (vector, dtype), "residual": (vector, dtype), "norm": (scalar, real),
             "bound": (scalar, real), "history": (lines, real)}  # fmt: skip
    return [kinds.get(field, (scalar, integer)) for field in Outcome._fields]
