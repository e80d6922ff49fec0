"""`prepare` over a communicator: the method and the preconditioner are kept, the function is asked again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Backend, agreed, choose_backend, over_members
from ...sparse import FunctionOperator, Operator
from ..pipeline import solve
from ..plan import Plan
from ..read.arguments import Request
from ..results.result import SolveResult
from .solve import plan_over


def prepared_over(request: Request, previous: Operator | None = None) -> tuple[Plan, Request]:
    """The plan and the settings of many solves with the same A; `previous` as of `plan_over`."""
    automatic = isinstance(request.preconditioner, str) and request.preconditioner.strip().lower() == "auto"
    asked = replace(request, preconditioner=None) if automatic else request
    plan, _ = plan_over(asked, previous=previous)
    return replace(plan, source=None), replace(asked, A=None, args=(), method=plan.method, b=request.b)


def solve_prepared_over(A: Operator, M: Operator | None, request: Request) -> SolveResult:
    """Solve for a right-hand side, with the function of A as it is now, and M as it was made."""
    alone = choose_backend(request.b)
    communicator = over_members(alone, request.over).communicator
    agreed(communicator, "the length of b", lambda: _check_length(A, request, alone))
    args: Any = A.args if isinstance(A, FunctionOperator) else ()
    function = A.function if isinstance(A, FunctionOperator) else A.linear  # type: ignore[attr-defined]
    return solve(*plan_over(replace(request, A=function, args=args), M), request.b)


def _check_length(A: Operator, request: Request, alone: Backend) -> None:
    """Raises ValueError where b is no vector, or batch of vectors, of the length that the solver was prepared for."""
    shapes = [tuple(int(n) for n in np.shape(leaf)) for leaf in alone.leaves(request.b)[0]]
    if isinstance(A, FunctionOperator):
        length = sum(math.prod(shape[request.batch_ndim :]) for shape in shapes)
    else:
        length = shapes[0][-1 if request.axis is None else request.axis] if shapes[0] else 1
    if length != A.shape[0]:
        raise ValueError(
            f"b has {length} numbers for each system in this member, in the shape {', '.join(map(str, shapes))}; this "
            f"solver was prepared for {A.shape[0]} of them. Prepare another one for a b of this length."
        )
