"""`linear_solve` and `prepare` over a communicator: set up, agree and solve.

Nothing that looks at one part only decides anything here: no entries are traced, no set-up is kept, no other method is
tried behind the first one, and the cause of a failure is not looked for.
"""

from __future__ import annotations

from dataclasses import replace

from ...backends import agreed
from ...sparse import Operator
from ..choose import Explanation
from ..methods.petsc.inverse import PetscInverse
from ..methods.registry import METHODS, find_method, is_auto
from ..pipeline import solve
from ..plan import Plan, Rung
from ..read.arguments import Request
from ..read.system import KnownNull, System
from ..results.result import SolveResult
from .methods import check_over, choose_over
from .preconditioner import made_of_products
from .rows import rows_over
from .system import system_over


def solve_over(request: Request) -> SolveResult:
    """The result in this member: x and residual are its parts, all numbers are those of the whole."""
    return solve(*plan_over(request), request.b)


def plan_over(request: Request, made: Operator | None = None, previous: Operator | None = None) -> tuple[Plan, System]:
    """The plan and the system, as all members have them.

    Args:
        made: a preconditioner of an earlier solve with this A.
        previous: that of another A, which may have the same pattern.
    """
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    if method is not None and method.takes_rows and not isinstance(made, PetscInverse):
        request, made = rows_over(request, method, previous)
    constants = isinstance(made, PetscInverse) and made.has_constants
    system, given = system_over(replace(request, nullspace="constant") if constants else request, method)
    system = replace(system, both=True) if constants else system
    A = system.A if system.given is None else system.given.A
    plan = Plan(A, KnownNull(system.null, system.both), (), source=system.source)
    if system.is_empty:
        return replace(plan, rungs=(Rung(method or METHODS["CG"]),)), system
    if method is None:
        method, chosen = choose_over(system)
        why = Explanation("a function of parts of vectors", (), chosen, method.name, chosen, None)
        plan = replace(plan, why=why)
    M = made_of_products(given, system) if made is None else made
    agreed(system.bk.communicator, "the requirements of the method", lambda: check_over(system, method, M))
    return replace(plan, rungs=(Rung(method, M),)), system
