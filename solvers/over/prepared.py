"""`prepare` over a communicator: the method and the preconditioner are kept, the function is asked again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Backend, agreed, choose_backend, over_members
from ...sparse import FunctionOperator, Operator
from ..choose import Explanation
from ..prepared.parts import PreparedParts
from ..read.arguments import Request
from ..read.system import KnownNull
from ..results.result import SolveResult
from ..solve import solve
from .solve import attempt_over


def prepared_over(request: Request, previous: Operator | None = None) -> PreparedParts:
    """What is done once for many solves with the same A; `previous` as of `attempt_over`."""
    automatic = isinstance(request.preconditioner, str) and request.preconditioner.strip().lower() == "auto"
    asked = replace(request, preconditioner=None) if automatic else request
    attempt = attempt_over(asked, previous=previous)
    why = None if attempt.method is request.method else _explanation(attempt.method.name, attempt.why)
    kept = replace(asked, A=None, args=(), method=attempt.method, b=request.b)
    system = attempt.system
    A = system.A if system.given is None else system.given.A
    null = KnownNull(system.null, system.both)
    return PreparedParts(A, attempt.method, attempt.M, None, kept, why, null)


def _explanation(name: str, why: str) -> Explanation | None:
    chosen = why.partition("chose it: ")[2]
    return Explanation("a function of parts of vectors", (), chosen, name, chosen, None) if chosen else None


def solve_prepared_over(A: Operator, M: Operator | None, request: Request) -> SolveResult:
    """Solve for a right-hand side, with the function of A as it is now, and M as it was made."""
    alone = choose_backend(request.b)
    communicator = over_members(alone, request.over).communicator
    agreed(communicator, "the length of b", lambda: _check_length(A, request, alone))
    args: Any = A.args if isinstance(A, FunctionOperator) else ()
    function = A.function if isinstance(A, FunctionOperator) else A.linear  # type: ignore[attr-defined]
    return solve(attempt_over(replace(request, A=function, args=args), M), request.b)


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
