"""One attempt of a solve, set up: the method with its preconditioner or factors."""

from __future__ import annotations

from typing import Any

from ..sparse import Operator
from .attempt import Attempt
from .factors_now import entries_for, factors_now, factors_of_known
from .log import timed_set_up
from .methods.method import Method, precision_for
from .preconditioners import to_preconditioner
from .read.arguments import Request
from .read.requirements import check_requirements, refuse_preconditioner, refuse_unsuited
from .read.system import System
from .results.transfers import warn_of_transfers


def set_up_attempt(
    request: Request,
    system: System,
    method: Method,
    M: Any,
    matrix: Operator,
    previous: Operator | None,
    factors: Operator | None = None,
    last: bool = True,
) -> Attempt:
    """Set up the preconditioner or the factors of `matrix`, where that is done before the solve.

    Args:
        previous: the preconditioner of other numbers, whose work is kept where its kind can.
        last: is there no other method? Then refusals say what they say to the user.
    """
    if M is not None:
        refuse_preconditioner(method, M)
        given = M
        M = timed_set_up(
            f"preconditioner of {method.name}",
            lambda: to_preconditioner(
                given, matrix, system.bk, system.layout, system.like, previous, precision_for(method), system.spread
            ),
        )
    if last:
        check_requirements(system, method, M)
    else:
        refuse_unsuited(system, method, M)
    early = method.needs_known or (method.names_provider and not system.compiled)
    if method.keeps_setup and (system.compiled or early):
        M = factors or (factors_now if early else factors_of_known)(system, method)
        if M is None:
            M = entries_for(system, method, matrix)
    if system.cut is not None:
        warn_of_transfers(system, method, M)
    return Attempt.of(request, system, method, M)
