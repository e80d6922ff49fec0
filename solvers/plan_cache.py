"""Cache of plain solves: the plan of a matrix that comes again, the hierarchy of a pattern.

A matrix is the same if all its bits are: a copy is compared, so a matrix that was written to is another one, and one
that was made anew with the same numbers is not. A matrix with entries at the same positions as an earlier one gets the
preconditioner of that one with new numbers, as in the next time step, if its kind can be renewed (`UPDATES`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..backends import Backend, NoBackendFound, choose_backend, get_precision
from ..backends.profile.spans import span
from ..sparse.content import Content, content_of, copy_of
from .judge import solve
from .log import DEBUG, log
from .memory import SETUP_CACHE, Memory, clear_all, is_ours, was_seen
from .methods.registry import find_method, is_auto
from .plan import Plan
from .preconditioners import PRECONDITIONERS, UPDATES, Preconditioner
from .read.arguments import Request
from .read.system import System, read_system
from .results.result import ConvergenceError, SolveResult
from .shortcut import solve_by_factors

MOST_BYTES = 1 << 25  # of the numbers of a matrix whose plan is kept
MOST_COMPARED = 1 << 28  # bytes of a matrix whose pattern may be known
MOST_FACTORS = 1 << 27  # bytes of the factors of a plan; on 3D grids they are hundreds of times larger than the matrix
MOST_OF_PATTERN = 1 << 28  # bytes of a preconditioner that is kept for its pattern
LEAST = 5000  # unknowns: smaller matrices get no hierarchy where one is chosen, and cost little anyway
_SLACK = 10  # iterations that a renewed preconditioner may take beyond twice those of a fresh one
_OF_EACH_SOLVE = ("A", "b", "x0", "args", "history", "monitor", "notes")  # arguments on which no plan depends
_PLAIN = frozenset((type(None), str, int, float, complex, bool))  # tested at once; `_is_plain_setting` tests others
_COMPARED = tuple(f.name for f in fields(Request) if f.name not in (*_OF_EACH_SOLVE, "method"))

PlannedResult = tuple[SolveResult, Plan, System]
PlanAndSolve = Callable[[Request, bool, Preconditioner | None], PlannedResult]


class _Renewable(NamedTuple):
    """A preconditioner whose numbers can be renewed, and the iterations of the solve for which it was made."""

    M: Preconditioner
    iterations: int


PLANS: Memory[Plan] = Memory(4)
HIERARCHIES: Memory[_Renewable] = Memory(2)
_SEEN: Memory[bool] = Memory(4)  # matrices of the last calls
_PATTERNS: Memory[bool] = Memory(8)  # patterns of the last calls, and whether their preconditioners are worth keeping


@dataclass(frozen=True, eq=False)
class Call:
    """A solve whose plan may be kept.

    Attributes:
        settings: everything on which its plan depends, except the matrix.
        content: of the matrix.
        is_kept: is the matrix small enough for its plan to be kept?
        has_pattern: is it sparse, and large enough for its hierarchy to be kept?
    """

    A: Any
    bk: Backend
    settings: Hashable
    content: Content
    is_kept: bool
    has_pattern: bool

    @property
    def positions(self) -> Content:
        return Content(self.content.form, self.content.arrays[1:])

    def with_own_matrix(self, request: Request) -> Request:
        """The request with a copy of the matrix, which may be written to while its plan is kept."""
        return replace(request, A=copy_of(self.A, self.bk))


def solve_or_recall(request: Request, plan_and_solve: PlanAndSolve) -> SolveResult:
    """Solve, by the plan of an earlier solve with this matrix if there is one.

    Args:
        plan_and_solve: plans and solves; gets whether many solves come, and a preconditioner to renew or None.
    """
    call = _call_of(request)
    if call is None:
        return plan_and_solve(request, False, None)[0]
    known_plan = PLANS.get((call.settings, call.content)) if call.is_kept else None
    if known_plan is not None and (result := _solve_with_plan(known_plan, request)) is not None:
        if log.isEnabledFor(DEBUG):
            log.debug("with the plan of an earlier solve: %s", result.message)
        return result
    comes_again = call.is_kept and was_seen(_SEEN, (call.settings, call.content.checksum()))
    request = call.with_own_matrix(request) if comes_again else request
    if call.has_pattern:
        result, plan, system = _solve_on_pattern(call, request, comes_again, plan_and_solve)
    else:
        result, plan, system = plan_and_solve(request, comes_again, None)
    if comes_again and system.given is None and _is_done_by(plan, system, result):
        _keep(call, plan, request)
    return result


def _solve_with_plan(plan: Plan, request: Request) -> SolveResult | None:
    """The result; None where the right-hand side needs another plan."""
    if (result := solve_by_factors(plan, request, request.b)) is not None:
        return result
    with span("set-up", "read"):
        system = read_system(replace(request, A=plan.A), plan.method, plan.null)
    if system.A.dtype != plan.A.dtype:
        return None
    return solve(plan, replace(system, source=plan.source), request.b)


def _keep(call: Call, plan: Plan, request: Request) -> None:
    if getattr(plan.M, "nbytes", 0) > MOST_FACTORS:
        return
    content = content_of(request.A, call.bk)
    if content is None or content != call.content:  # it was written to during the solve
        return
    PLANS.keep((call.settings, content), plan)


def _is_done_by(plan: Plan, system: System, result: SolveResult) -> bool:
    """Have all systems converged in the first rung?"""
    return result.method == plan.method.name and bool(result._record.on_host("converged").all())


def _solve_on_pattern(call: Call, request: Request, many: bool, plan_and_solve: PlanAndSolve) -> PlannedResult:
    """Plan and solve, with the renewed preconditioner of an earlier matrix of this pattern as long as it serves."""
    if request.monitor is not None or request.on_failure == "warn":  # these would report a failure of the first try
        return plan_and_solve(request, many, None)
    key = call.settings, call.positions
    seen = call.settings, call.positions.checksum()
    renewable = HIERARCHIES.get(key)
    if renewable is None and not was_seen(_PATTERNS, seen):
        return plan_and_solve(request, many, None)
    request = request if many else call.with_own_matrix(request)  # because M shares its positions
    if renewable is not None:
        solved = _by_renewed(request, many, plan_and_solve, key, renewable)
        if solved is not None:
            return solved
    result, plan, system = plan_and_solve(request, many, None)
    if _is_done_by(plan, system, result):
        M = plan.M
        if not isinstance(M, Preconditioner) or M.kind not in UPDATES or _bytes_of(M) > MOST_OF_PATTERN:
            _PATTERNS.keep(seen, False)
        else:
            positions = Content(call.content.form, tuple(array.copy() for array in call.positions.arrays))
            HIERARCHIES.keep((call.settings, positions), _Renewable(M, _most_iterations(system, result)))
    return result, plan, system


def _by_renewed(
    request: Request, many: bool, plan_and_solve: PlanAndSolve, key: tuple[Hashable, Content], renewable: _Renewable
) -> PlannedResult | None:
    """The result with the renewed preconditioner, which is dropped if it fails (None) or takes too many iterations."""
    try:
        result, plan, system = plan_and_solve(request, many, renewable.M)
    except ConvergenceError:
        result = None
    if result is None or not bool(result._record.on_host("converged").all()):
        log.info("the renewed preconditioner of an earlier matrix with this pattern does not serve; making a fresh one")
        HIERARCHIES.drop(key)
        return None
    if _most_iterations(system, result) > 2 * renewable.iterations + _SLACK or result.method != plan.method.name:
        HIERARCHIES.drop(key)
    elif plan.M is not renewable.M and isinstance(plan.M, Preconditioner):
        positions = Content(key[1].form, tuple(array.copy() for array in key[1].arrays))
        HIERARCHIES.keep((key[0], positions), renewable._replace(M=plan.M))
    return result, plan, system


def _most_iterations(system: System, result: SolveResult) -> int:
    return int(np.max(result._record.on_host("iterations"), initial=0))


def _bytes_of(M: Preconditioner) -> int:
    """Memory of its numbers with 32-bit indices."""
    return (M.memory or 0) * (M.dtype.itemsize + 4)


def _call_of(request: Request) -> Call | None:
    """The call; None where nothing is kept: a matrix too large or not in memory, or a setting that is an object."""
    if not SETUP_CACHE.get() or request.args:
        return None
    A, b = request.A, request.b
    shape: Any = getattr(A, "shape", ())
    if len(shape) != 2 or 0 in getattr(b, "shape", (0,)) or not isinstance(request.nullspace, str | None):
        return None
    try:
        bk = choose_backend(b, A, request.x0)
        if not (_is_plain(bk, b) and (request.x0 is None or _is_plain(bk, request.x0))):
            return None
        content = content_of(A, bk)
        size = 0 if content is None else content.nbytes
        if content is None or not 0 < size <= MOST_COMPARED:
            return None
        settings: Hashable = (bk.name, tuple(b.shape), str(b.dtype), repr(type(b)), *_settings(request, bk))
        hash(settings)
    except (NoBackendFound, TypeError, ValueError):  # the solve itself raises the error
        return None
    return Call(A, bk, settings, content, size <= MOST_BYTES, shape[0] >= LEAST and len(content.arrays) > 1)


def _is_plain(bk: Backend, b: Any) -> bool:
    """Is it one array in memory of the host, outside transformations? Derivatives may be recorded."""
    if type(b) is np.ndarray:
        return not bk.compiled() and not bk.in_program()
    return bk.is_array(b) and not bk.compiled(b) and bk.host_view(bk.constant(b)) is not None


def _settings(request: Request, bk: Backend) -> tuple[Hashable, ...]:
    method, kind = request.method, request.preconditioner
    resolved = "auto" if is_auto(method) else find_method(method, request.A)
    if not isinstance(resolved, str) and (resolved.holds_external or not is_ours(type(resolved))):
        raise TypeError(f"{resolved!r} may do something else each time.")
    if not (kind is None or kind == "auto" or (isinstance(kind, str) and is_ours(PRECONDITIONERS.get(kind)))):
        raise TypeError(f"{kind!r} may be something else each time.")
    others = [getattr(request, name) for name in _COMPARED]
    if not (_PLAIN.issuperset(map(type, others)) or all(map(_is_plain_setting, others))):
        raise TypeError("An array, or something else, cannot be compared by `==`.")
    return resolved, get_precision(), bk.stored_dtype(np.dtype(np.float64)), *zip(map(type, others), others)


def _is_plain_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain_setting, value))
    return value is None or isinstance(value, str | int | float | complex | np.generic)


@contextmanager
def setup_cache(enabled: bool) -> Iterator[None]:
    """Keep plans of repeated matrices inside the `with` block, or make each anew (per thread and task).

    Args:
        enabled: whether plans are kept.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.setup_cache(False):  # nothing of this matrix is kept
        ...     x = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2)).x
        >>> x
        array([1. , 0.5])
    """
    with SETUP_CACHE.local(bool(enabled)):
        yield


def set_global_setup_cache(enabled: bool) -> None:
    """Keep plans of repeated matrices in the whole process, or none; `setup_cache(enabled)` overrides it locally.

    Args:
        enabled: whether plans are kept; False also drops those that are kept now.

    Examples:
        >>> import krylix
        >>> krylix.set_global_setup_cache(False)
        >>> krylix.set_global_setup_cache(True)  # the default
    """
    SETUP_CACHE.set_global(bool(enabled))
    if not enabled:
        clear_setup_cache()


def clear_setup_cache() -> None:
    """Free everything that was kept for later solves: plans, analyses of patterns, factors and hierarchies.

    Functions are forgotten too: the next solve with each counts as its first.

    Examples:
        >>> import krylix
        >>> krylix.clear_setup_cache()
    """
    clear_all()
