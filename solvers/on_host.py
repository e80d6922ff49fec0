"""Solve in NumPy for arrays of another library, also inside its compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..backends import Array, get_backend, real_dtype
from ..sparse import Matrix, NonlinearError, Operator, UnsupportedOperation
from ..sparse.fingerprint import fingerprint
from .cost import have_room
from .iteration_budget import Fallback
from .log import log
from .null_space.projections import WithoutConstantsInside
from .read.system import System
from .results.no_solution import without_refuted
from .run.monitor import Monitor, StepReport
from .run.null_part import NullPart
from .run.outcome import Outcome, Rung, Status
from .run.run import LoopSettings, run


def run_on_host(system: System, settings: LoopSettings, M: Operator | None, report: StepReport | None) -> Outcome:
    """Run the whole solve as one host call."""
    function, arrays = _solve_on_host(system, settings, M, report)
    found = Outcome(*system.bk.host_call(function, _shapes(system, settings.history), *arrays))
    return found if settings.history else found._replace(history=())


def rescued_on_host(
    system: System, settings: LoopSettings, found: Outcome, monitor: Monitor | None, fallback: Fallback
) -> Outcome:
    """Solve failed systems on the host with the method of the fallback; other results are kept."""
    bk, limits = system.bk, settings.limits
    settings = settings._replace(method=fallback.method)
    function, arrays = _solve_on_host(system, settings, None, None, bounded=True)
    fields = found if settings.history else found[:-1]
    count, failed = len(fields), may_be_helped(system, found, monitor)

    def on_host(failed: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        before = values[:count]
        log.info("a solve in a compiled function failed; trying %s", settings.method.name)
        try:
            after = function(*values[count:])
        except MemoryError:  # the first failure stands
            return list(before)
        status, steps, products = (before[Outcome._fields.index(name)] for name in ("status", "steps", "products"))
        late = fallback.ends(status, steps, limits)
        after = after._replace(
            steps=after.steps + late * steps,
            products=after.products + late * products,
            rung=np.where(late, np.int32(Rung.AFTER_ITERATIONS), np.int32(Rung.AFTER_FAILURE)),
        )
        systems = [failed[:, 0] if name == "history" else failed for name in Outcome._fields]
        return [np.where(*one) for one in zip(systems, after, before)]

    def name() -> str | None:
        return _name(system, settings, count, len(arrays), fallback.after)

    rescued = bk.rescued(bk.any(failed), on_host, fields, failed, *fields, *arrays, name=name)
    return found._replace(**dict(zip(Outcome._fields, rescued)))


def continued_on_host(
    system: System,
    settings: LoopSettings,
    found: Outcome,
    monitor: Monitor | None,
    precondition: Callable[[Operator], Operator],
) -> Outcome:
    """Go on from x on the host with another preconditioner, of systems whose iterations were used up.

    Args:
        precondition: makes it of A.
    """
    system = replace(system, x0=found.x)
    bk = system.bk
    function, arrays = _solve_on_host(system, settings, None, None, precondition=precondition)
    fields = found[:-1]
    late = may_be_helped(system, found, monitor) & (found.status == int(Status.MAX_ITER))

    def on_host(late: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
        before = values[: len(fields)]
        log.info("multigrid takes many iterations in a compiled function; going on with classical AMG")
        try:
            after = function(*values[len(fields) :])
        except (ValueError, MemoryError, UnsupportedOperation, NonlinearError):  # the failure stands
            return list(before)
        both = {name: a + b for name, a, b in zip(Outcome._fields, before, after) if name in ("steps", "products")}
        after = after._replace(**both, rung=np.full_like(after.rung, Rung.AMG))
        return [np.where(late, *one) for one in zip(after[: len(fields)], before)]

    def name() -> str | None:
        own = _name(system, settings, len(fields), len(arrays))
        return None if own is None else fingerprint("continued", own)

    rescued = bk.rescued(bk.any(late), on_host, fields, late, *fields, *arrays, name=name)
    return found._replace(**dict(zip(Outcome._fields, rescued)))


def _name(system: System, settings: LoopSettings, *counts: int | None) -> str | None:
    """Name of the host computation, equal across processes for equal solves; None if unknown.

    What arrays will decide is seen in the operators that are made of other numbers.
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
        except Exception:  # of numbers that are none of a matrix that there may be
            return None
    return fingerprint(*counts, settings, system.by_default, system.least_squares, *made)


def may_be_helped(system: System, found: Outcome, monitor: Monitor | None) -> Array:
    """bool `(batch, 1)`: which systems have not converged, and have a right-hand side that others could solve?

    None that a callback or the limit of time has ended.
    """
    bk, status = system.bk, found.status
    with bk.errstate():
        failed = (status != int(Status.CONVERGED)) & bk.isfinite(found.bound)  # as is the norm of b
    if monitor is None or not monitor.may_stop:
        return failed
    return failed & (status != int(Status.STOPPED)) & (status != int(Status.TIME_LIMIT))


def _solve_on_host(
    system: System,
    settings: LoopSettings,
    M: Operator | None,
    report: StepReport | None,
    bounded: bool = False,
    precondition: Callable[[Operator], Operator] | None = None,
) -> tuple[Callable[..., Outcome], Sequence[Array]]:
    """The solve as a function of NumPy arrays, and the arrays of the library to call it with.

    `precondition` makes M of A there. A call raises MemoryError where it is `bounded` and factors of the matrix, as it
    turns out to be, have no room.
    """
    host = get_backend("numpy")
    matrix, make_matrix = system.A.for_host()
    inverse, make_inverse = M.for_host() if M is not None else ((), lambda _: None)
    basis, make_null = system.null.for_host() if system.null is not None else ((), lambda _: None)
    start = () if system.x0 is None else (system.x0,)
    given = (system.b, system.rtol, system.atol, *start)  # first, as what is found lies on the device of b
    cut = np.cumsum([len(given), len(matrix), len(inverse), len(basis)])
    kept: list[tuple[Any, Any, Any]] = []

    def operators(*values: np.ndarray) -> tuple[Any, Any, Any]:
        """Those of this call: several threads may run one program at a time, each with values of its own."""
        if kept:
            return kept[0]
        matrix, inverse, basis = (values[a:b] for a, b in pairwise(cut - cut[0]))
        A = make_matrix(matrix)
        null = make_null(basis)
        if isinstance(null, WithoutConstantsInside) and not np.any(null.array("active")):  # as in most calls
            null = None
        made = A, make_inverse(inverse) if precondition is None else precondition(A), null
        if not values:  # they are the same in every call
            kept.append(made)
        return made

    def on_host(*values: np.ndarray) -> Outcome:
        b, rtol, atol, *x0 = (np.array(v) for v in values[: cut[0]])
        A, M, null = operators(*values[cut[0] :])
        if bounded and isinstance(entries := A.without_offset, Matrix) and not have_room(entries):
            raise MemoryError("The factors are too large.")
        begun = None if report is None else report.begun_on_host()
        found = run(A, M, b, x0[0] if x0 else None, rtol, atol, null, settings._replace(bk=host), begun)
        if settings.by_default and not system.least_squares:
            rest = partial(NullPart.rest_of, host, b, null, settings.both)
            found = without_refuted(host, A, rest, rtol, atol, found)
        return found if settings.history else found._replace(history=np.zeros(0, b.real.dtype))

    return on_host, (*given, *matrix, *inverse, *basis)


def _shapes(system: System, history: bool) -> list[tuple[tuple[int, ...], np.dtype]]:
    bk, (systems, n) = system.bk, (system.layout.systems, system.layout.size)
    lead = (len(system.limits),) if len(system.limits) > 1 else ()
    dtype, integer = bk.dtype(system.b), np.dtype(np.int32)
    real = real_dtype(dtype)
    vector, scalar = (*lead, systems, n), (*lead, systems, 1)
    lines = (*lead, system.limits.most + 1, systems) if history else (0,)
    kinds = {"x": (vector, dtype), "residual": (vector, dtype), "norm": (scalar, real),
             "bound": (scalar, real), "attainable": (scalar, real), "null_part": (scalar, real),
             "history": (lines, real)}  # fmt: skip
    return [kinds.get(field, (scalar, integer)) for field in Outcome._fields]
