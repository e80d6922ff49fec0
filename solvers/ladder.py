"""The rungs of a plan run in turn, until every system has converged: eagerly, and in compiled programs.

A program holds the first rung only. What follows is one call of the host behind a condition, which runs the other rungs
in NumPy by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..backends import Array, Backend, agreed, get_backend, real_dtype
from ..sparse import Layout, Matrix, NonlinearError, Operator, UnsupportedOperation
from ..sparse.content import fingerprint
from .cost import have_room
from .log import log
from .methods.cg import CG
from .methods.direct import Direct, DirectOnce, DirectOnHost
from .methods.method import Method
from .plan import Plan, Rung, counted_steps
from .read.requirements import check_requirements
from .read.system import System
from .results.no_solution import without_refuted
from .run.by_systems import solved_by_systems
from .run.loop import LoopSettings, run
from .run.null_part import NullPart
from .run.outcome import Outcome, Status
from .run.stopping import Limits
from .run.watch import Monitor, StepReport
from .singular.projections import WithoutConstantsInside

_CANNOT = (UnsupportedOperation, NonlinearError)  # of a rung that cannot be used; the next one is tried
_MAX_ITER, _CONVERGED = int(Status.MAX_ITER), int(Status.CONVERGED)


def climb(plan: Plan, system: System) -> Outcome:
    """Run the rungs until every system has converged, or there is no rung left. Without derivatives."""
    bk = system.bk
    more = has_more(plan, system)
    bounded = more and not (system.compiled and system.history)  # a compiled history is as long as the limit
    limits = system.limits.of_systems(system.layout.systems)
    if bounded and plan.rungs[0].steps is not None:
        limits = limits.at_most(plan.rungs[0].steps)
    outcome = _run(plan.rungs[0], system, limits)
    if system.compiled or bk.compiled(outcome.status):
        asks = more and bk.can_rescue() and system.on_failure != "nan"
        return _rest_on_host(plan, system, outcome) if asks else outcome
    outcome = _checked(plan.rungs[0].method, system, outcome)
    return _rest(plan, system, outcome) if more else outcome


# --- one rung


def _run(rung: Rung, system: System, limits: Limits) -> Outcome:
    """One method; the outcome has a first axis for checkpoints if there are several limits."""
    if system.monitor is None:
        return _run_reported(rung, system, limits, None)
    report = _report(rung.method, system, system.monitor)
    outcome = _run_reported(rung, system, limits, report)
    if report.errors is not None and not system.bk.compiled(outcome.status):
        system.bk.to_numpy(outcome.status)  # waits for the loop
        agreed(system.bk.communicator, "the callback", report.raise_errors)
    return outcome


def _run_reported(rung: Rung, system: System, limits: Limits, report: StepReport | None) -> Outcome:
    bk, A, M = system.bk, system.A, rung.M
    method = CG() if system.is_empty else rung.method  # CG has nothing to factorise
    settings = _settings(method, system, limits)
    if method.on_host and not bk.on_host:
        function, arrays = _on_host(system, M, lambda host: _solved_by(Rung(method, host[1]), host[0], limits, report))
        outcome = Outcome(*bk.host_call(function, _shapes(system, limits), *arrays))
        return outcome if system.history else outcome._replace(history=())
    arrays = (system.b, system.x0, system.rtol, system.atol)
    apart = None if system.cut is None or report is not None else solved_by_systems(system, M, settings)
    if apart is not None:
        return apart
    if bk.compiles_solves and not system.compiled and report is None:
        own = A.as_container()
        inside, null = (None if operator is None else operator.as_container() for operator in (M, system.null))
        if own.is_container and (inside is None or inside.is_container):
            return bk.compile_if_faster(run, ("settings",))(own, inside, *arrays, null, settings=settings)
    return run(A, M, *arrays, system.null, settings=settings, report=report)


def _settings(method: Method, system: System, limits: Limits) -> LoopSettings:
    cut = None if system.cut is None else (system.layout.shapes[0], system.cut)
    both = both_of(system, method)
    return LoopSettings(system.bk, method, limits, system.history, system.by_default, both, system.derived, cut)


def _report(method: Method, system: System, monitor: Monitor) -> StepReport:
    if monitor.may_stop and not system.bk.can_ask_host():
        raise ValueError(
            "callback and time_limit ask the host after each iteration, which a program for XLA alone, for several "
            "processes or inside shard_map cannot. Leave them out, or solve outside of it."
        )
    communicator = system.bk.communicator
    if monitor.progress is True and communicator is not None and not communicator.is_traced and communicator.rank > 0:
        monitor = replace(monitor, progress=False)  # the first member alone shows it
    shown = partial(_in_form_of_user, system, monitor.in_numpy)
    return StepReport.of(monitor, method.name, shown, system.layout.batch, system.compiled)


def _in_form_of_user(system: System, in_numpy: bool, rows: np.ndarray) -> Any:
    """x in the form of the result, copied from rows of NumPy."""
    bk, layout = system.bk, system.layout
    leaves, start = [], 0
    for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True):
        own = Layout(layout.batch, (shape,), (dtype,), axis=layout.axis)
        leaves.append(np.array(own.unflatten(get_backend("numpy"), rows[:, start : start + own.size])))
        start += own.size
    if not (in_numpy or bk.on_host):
        like = None if bk.compiled(system.like) else system.like
        leaves = [bk.in_host_call(leaf, like) for leaf in leaves]
    return leaves[0] if layout.structure is None else bk.unleaves(layout.structure, leaves)


def both_of(system: System, method: Method) -> bool:
    """Does the transpose have the null vectors of A? Also given ones, where the method needs a symmetric A."""
    same = method.needs_hermitian or (method.needs_symmetric and system.A.dtype.kind != "c")
    return system.both or (system.given is None and same)


def solved_b(system: System, method: Method) -> Array:
    """The right-hand side without its part in known null vectors of the transpose."""
    with system.bk.errstate():
        return NullPart.rest_of(system.bk, system.bk.flat(system.b), system.null, both_of(system, method))


# --- the rungs after the first one


def has_more(plan: Plan, system: System) -> bool:
    """May other rungs follow the first one? In a program that calls the host for them."""
    if len(plan.rungs) == 1 or system.several:
        return False
    return not system.compiled or (system.bk.can_rescue() and system.on_failure != "nan")


def _rest(plan: Plan, system: System, outcome: Outcome) -> Outcome:
    bk, method, M = system.bk, plan.method, plan.M
    last = system.limits.of_systems(system.layout.systems).last
    last = last if isinstance(last, int) else bk.asarray(last, like=outcome.steps)
    for number, rung in enumerate(plan.rungs[1:], 1):
        open_ = _can_be_helped(system, outcome)
        if not bk.any(open_) or (system.monitor is not None and system.monitor.is_over()):
            return outcome
        late = open_ & (outcome.status == _MAX_ITER) & (outcome.steps < last)
        if not rung.goes_on:
            outcome = _by_factors(plan, number, system, outcome, open_, late)
        elif bk.any(late):
            if rung.make is not None:
                M = _made(plan, number, rung.make, system, M)
            if rung.is_counted and number not in plan.found:
                plan.found[number] = counted_steps(system, method, M, int(bk.to_numpy(outcome.steps).max()))
            rest = _continued(Rung(method, M, plan.steps_of(number)), system, outcome, late)
            outcome = rest if rung.make is None else rest._replace(rung=bk.where(late, 2 * number, rest.rung))
    return outcome


def _made(plan: Plan, number: int, make: Callable[[Operator], Operator], system: System, M: Operator | None) -> Any:
    """The preconditioner of a rung, made once for all solves of the plan; M of the rung before if it cannot be made."""
    if number not in plan.found:
        try:
            plan.found[number] = make(system.A)
        except (ValueError, MemoryError, *_CANNOT):
            return M
        log.info("%s has used up its iterations with multigrid; going on with classical AMG", plan.method.name)
    return plan.found[number]


def _continued(rung: Rung, system: System, first: Outcome, which: Array) -> Outcome:
    """Continue the iterations of some systems, up to the steps of the rung."""
    bk, taken = system.bk, int(system.bk.to_numpy(first.steps).max())
    most = Limits((system.limits.of_systems(system.layout.systems).rows[-1],))
    most = most if rung.steps is None else most.at_most(rung.steps)
    left = tuple(max(limit - taken, 0) for limit in most.rows[-1])
    if not any(left):
        return first
    monitor = None if system.monitor is None else system.monitor.after(bk.to_numpy(first.steps))
    rest = replace(system, x0=first.x, limits=Limits((left,)), monitor=monitor)
    later = _checked(rung.method, rest, _run(rung, rest, rest.limits))
    return _where(bk, which, _merged(bk, which, later, first), first)._replace(rung=first.rung)


def _by_factors(plan: Plan, number: int, system: System, first: Outcome, open_: Array, late: Array) -> Outcome:
    """Solve with factors; their x replaces that of systems that failed, and of late ones that they solve."""
    bk, rung = system.bk, plan.rungs[number]
    name, method = plan.method.name, rung.method
    entries = system.A.without_offset
    if isinstance(entries, Matrix) and not have_room(entries):
        log.info("%s takes longer or failed, and factors have no room in memory", name)
        return first
    log.info("%s %s; trying %s", name, "failed" if bk.any(open_ & ~late) else "takes longer", method.name)
    try:
        check_requirements(system, method, None)
        later = _checked(method, system, _run(rung, system, system.limits.of_systems(system.layout.systems)))
    except (MemoryError, *_CANNOT):
        return first
    later = later._replace(rung=bk.where(late, 2 * number + 1, 2 * number + 0 * later.rung))
    ours = open_ & ((later.status == _CONVERGED) | ~late)
    return _where(bk, ours, _merged(bk, late, later, first), first)


def _can_be_helped(system: System, outcome: Outcome) -> Array:
    """bool `(systems, 1)`: which have not converged, for a finite b, and were not ended by a callback or time limit?"""
    bk, status = system.bk, outcome.status
    with bk.errstate():
        failed = (status != _CONVERGED) & bk.isfinite(outcome.bound)  # and so is the norm of b
    if bk.compiled(status) and (system.monitor is None or not system.monitor.may_stop):
        return failed
    return failed & (status != int(Status.STOPPED)) & (status != int(Status.TIME_LIMIT))


def _checked(method: Method, system: System, outcome: Outcome) -> Outcome:
    """Withdraw the allowance of the default tolerance where it accepted an inconsistent system."""
    if not system.by_default or system.given is not None or system.derived or system.bk.compiled(outcome.status):
        return outcome
    b = partial(solved_b, system, method)
    return without_refuted(system.bk, system.A, b, system.rtol, system.atol, outcome)


def _merged(bk: Backend, which: Array, later: Outcome, first: Outcome) -> Outcome:
    """The later outcome, with the counts and the history of both."""
    none = 0 * first.steps
    steps = later.steps + bk.where(which, first.steps, none)
    products = later.products + bk.where(which, first.products, none)
    lines = later.history
    if not isinstance(lines, tuple):
        joined = _joined(*(bk.to_numpy(a) for a in (which, first.steps, first.history, later.steps, lines)))
        lines = bk.asarray(joined, like=lines)
    return later._replace(steps=steps, products=products, history=lines)


def _joined(
    which: np.ndarray, taken: np.ndarray, before: np.ndarray, steps: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """Residual norms `(iterations + 1, systems)`: of both solves in a row where `which`, else of the second."""
    which, taken, steps = which[:, 0], taken[:, 0], steps[:, 0]
    rows = int(max(np.where(which, taken + steps, steps).max(initial=0) + 1, len(before), len(after)))
    joined = np.full((rows, after.shape[1]), np.nan, after.dtype)
    for k in range(after.shape[1]):
        last = int(taken[k]) if which[k] else 0
        joined[:last, k] = before[:last, k]
        joined[last : last + steps[k] + 1, k] = after[: steps[k] + 1, k]
    return joined


def _where(bk: Backend, which: Array, later: Outcome, first: Outcome) -> Outcome:
    """The later outcome where `which`, else the first."""
    if not bk.any(~which):
        return later
    names = (name for name in Outcome._fields if name != "history")
    merged = {name: bk.where(which, getattr(later, name), getattr(first, name)) for name in names}
    if isinstance(later.history, tuple):
        return Outcome(**merged, history=())
    lines, older = later.history, first.history
    most = max(int(lines.shape[0]), int(older.shape[0]))
    lines, older = (_padded(bk, a, most) for a in (lines, older))
    return Outcome(**merged, history=bk.where(which[:, 0], lines, older))


def _padded(bk: Backend, lines: Array, rows: int) -> Array:
    missing = rows - int(lines.shape[0])
    if not missing:
        return lines
    return bk.concat([lines, bk.full((missing, int(lines.shape[1])), np.nan, bk.dtype(lines), lines)], 0)


# --- the host, for arrays of another library, also inside its compiled programs


def with_factors_applied_once(plan: Plan, system: System) -> Plan:
    """With dense factors that a program applies once, followed by the host for systems that this does not solve.

    The plan itself where no host can be called, or each step is reported.
    """
    bk, (method, M, *_) = system.bk, plan.rungs[0]
    if method.__class__ is not Direct or bk.is_eager or not (system.compiled or bk.compiles_solves):
        return plan
    plain = system.monitor is None and not system.history and not system.several and not system.is_empty
    if not plain or bk.communicator is not None:
        return plan
    if not bk.can_rescue() or (system.compiled and system.on_failure == "nan") or min(system.limits.rows[-1]) < 2:
        return plan
    try:
        system.A.for_host()
    except _CANNOT:
        return plan
    return replace(plan, rungs=(Rung(DirectOnce(), M), Rung(DirectOnHost())))


def _solved_by(rung: Rung, system: System, limits: Limits, report: StepReport | None) -> Outcome:
    begun = None if report is None else report.begun_on_host()
    arrays = (system.b, system.x0, system.rtol, system.atol)
    outcome = run(system.A, rung.M, *arrays, system.null, _settings(rung.method, system, limits), begun)
    return _checked(rung.method, system, outcome)


def _rest_on_host(plan: Plan, system: System, first: Outcome) -> Outcome:
    """The rungs after the first one on the host, in a program that calls it only if a system can be helped."""
    bk = system.bk
    no: Any = None
    # The preconditioner stays in the program, so the host cannot continue with it where it has no room for factors.
    last = max(number for number, rung in enumerate(plan.rungs) if rung.make is not None or not rung.goes_on)
    tail = replace(plan.with_M(None), rungs=plan.with_M(None).rungs[: last + 1], A=no, null=None, source=None, found={})
    fields = first if system.history else first[:-1]
    count = len(fields)
    lines: Any = () if system.history else ((),)  # no array of this trace may outlive it in a closure

    def rest(host: tuple[System, Operator | None], *before: np.ndarray) -> Outcome:
        log.info("a solve in a compiled function failed; trying %s", tail.rungs[-1].method.name)
        return _rest(replace(tail, found={}), host[0], Outcome(*before, *lines))

    function, arrays = _on_host(system, None, rest, count)

    def on_host(*values: np.ndarray) -> Sequence[np.ndarray]:
        return function(*values)[:count]

    def name() -> str | None:
        return _name(tail, system, count, len(arrays))

    helped = bk.any(_can_be_helped(system, first))
    outcome = bk.rescued(helped, on_host, fields, *fields, *arrays, name=name)
    return first._replace(**dict(zip(Outcome._fields, outcome)))


def _on_host(
    system: System, M: Operator | None, solve: Callable[..., Outcome], before: int = 0
) -> tuple[Callable[..., Outcome], Sequence[Array]]:
    """`solve((system, M), *arrays)` as a function of NumPy arrays, and its arguments as arrays of the library.

    The first `before` arrays of a call go to `solve`, with the system and M on the host.
    """
    host = get_backend("numpy")
    matrix, make_matrix = system.A.for_host()
    inverse, make_inverse = M.for_host() if M is not None else ((), lambda _: None)
    basis, make_null = system.null.for_host() if system.null is not None else ((), lambda _: None)
    start = () if system.x0 is None else (system.x0,)
    given = (system.b, system.rtol, system.atol, *start)  # First, because the outcome lies on the device of b.
    cut = np.cumsum([len(given), len(matrix), len(inverse), len(basis)])
    kept: list[tuple[Any, Any, Any]] = []
    no: Any = None
    rest = replace(
        system, bk=host, A=no, b=no, x0=no, rtol=no, atol=no, like=no, null=no, source=no, compiled=False, monitor=None,
        cut=None,
    )  # fmt: skip

    def operators(*values: np.ndarray) -> tuple[Any, Any, Any]:
        """The operators of one call. Several threads may run one program at a time, each with its own values."""
        if kept:
            return kept[0]
        matrix, inverse, basis = (values[a:b] for a, b in pairwise(cut - cut[0]))
        null = make_null(basis)
        if isinstance(null, WithoutConstantsInside) and not np.any(null.array("active")):  # the usual case
            null = None
        made = make_matrix(matrix), make_inverse(inverse), null
        if not values:  # they are the same in every call
            kept.append(made)
        return made

    def on_host(*values: np.ndarray) -> Outcome:
        first, values = values[:before], values[before:]
        b, rtol, atol, *x0 = (np.array(v) for v in values[: cut[0]])
        A, M, null = operators(*values[cut[0] :])
        own = replace(rest, A=A, b=b, x0=x0[0] if x0 else None, rtol=rtol, atol=atol, like=b, null=null)
        with host.errstate():
            outcome = solve((own, M), *map(np.array, first))
        return outcome if own.history else outcome._replace(history=np.zeros(0, b.real.dtype))

    return on_host, (*given, *matrix, *inverse, *basis)


def _shapes(system: System, limits: Limits) -> list[tuple[tuple[int, ...], np.dtype]]:
    bk, (systems, n) = system.bk, (system.layout.systems, system.layout.size)
    lead = (len(limits),) if len(limits) > 1 else ()
    dtype, integer = bk.dtype(system.b), np.dtype(np.int32)
    real = real_dtype(dtype)
    vector, scalar = (*lead, systems, n), (*lead, systems, 1)
    lines = (*lead, limits.most + 1, systems) if system.history else (0,)
    kinds = {"x": (vector, dtype), "residual": (vector, dtype), "norm": (scalar, real),
             "bound": (scalar, real), "attainable": (scalar, real), "null_part": (scalar, real),
             "history": (lines, real)}  # fmt: skip
    return [kinds.get(name, (scalar, integer)) for name in Outcome._fields]


def _name(plan: Plan, system: System, *counts: int) -> str | None:
    """Name of the host computation, equal across processes for equal solves; None if unknown.

    The operators are made of random numbers, so that only their structure counts. `counts`: arrays in a call.
    """
    bk, rng, made = system.bk, np.random.default_rng(8), []
    for operator in (system.A, system.null):
        arrays, make = ((), lambda _: None) if operator is None else operator.for_host()
        if any(bk.compiled(array) and bk.dtype(array).kind not in "fc" for array in arrays):
            return None
        values = [
            rng.standard_normal(array.shape).astype(bk.dtype(array)) if bk.compiled(array) else bk.to_numpy(array)
            for array in arrays
        ]
        try:
            made.append(make(values))
        except Exception:  # Random numbers may violate what the structure of the matrix requires.
            return None
    settings = _settings(plan.method, system, system.limits)
    return fingerprint(*counts, settings, tuple(plan.rungs), system.by_default, system.least_squares, *made)
