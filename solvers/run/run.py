"""Run a method on arrays: set-up, iteration, and the outcome at each limit.

Where the small operations of a library take longer than NumPy's, NumPy iterates on the memory of the library. A step of
CG is about 35 operations on one number for each system: 1 to 9 us each in PyTorch, 10 to 35 in TensorFlow, 0.3 in
NumPy. Rows are then in the memory of the library; A, M and projections get its own arrays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, Cut, get_backend
from ...sparse import OnHost, Operator, on_grid
from ...sparse.operators.cut_stencil import InSteps
from ...sparse.operators.cut_values import cut_stencil
from ..log import log, timed_set_up
from ..methods.direct.singular import Singularity, told_by
from ..methods.method import Method
from ..null_space.projections import Projected, WithoutConstants, WithoutConstantsInside, WithoutVectors
from .driver import Iteration
from .monitor import StepReport
from .null_part import NullPart
from .once import solved_once
from .outcome import Outcome
from .stopping import Limits

_KNOWN = int(Singularity.KNOWN)


class LoopSettings(NamedTuple):
    """Static settings of a solve; hashable."""

    bk: Backend
    method: Method
    limits: Limits
    history: bool
    by_default: bool  # was the tolerance left to the library?
    both: bool = False  # are the known null vectors also those of the transpose?
    derived: bool = False  # is it the solve for a derivative, of which only the part in the range of A counts?
    cut: tuple[tuple[int, ...], Cut] | None = None  # shape of one system, and how it is distributed over devices


def run(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    settings: LoopSettings,
    report: StepReport | None = None,
) -> Outcome:
    """Run a method; the outcome has a leading axis for several limits. Its vectors may be kept as grids.

    Args:
        null: projects known null vectors of A out, or None.
    """
    bk, method, limits, history, by_default, both, derived, cut = settings
    single = len(limits) == 1
    with bk.errstate():
        # those that are found at run time are mostly none, and would cost as much there as M
        around = both and null is not None and not isinstance(null, WithoutConstantsInside)
        if method.keeps_grids and single and not A.only_flat:
            A, M, b, x0, null = _on_grid(bk, A, M, b, x0, null, cut)
        else:
            b, x0 = bk.flat(b), None if x0 is None else bk.flat(x0)
        if around and null is not None and M is not None and not method.keeps_setup:
            M = Projected(null, M)
        if method.keeps_setup and M is None:
            inverse = timed_set_up(f"factors of {method.name}", lambda: method.setup(bk, A, M))
        else:
            inverse = method.setup(bk, A, M)
        if null is not None:
            method.tell_null(inverse, null, both)
        apart = NullPart.of(bk, b, null) if both and null is not None else None
        known = apart is not None or derived
        if apart is None and method.factorises:
            apart = NullPart.by_factors(b, inverse)
        rest = b if apart is None else apart.rest
        singular = _singularity(bk, b, null, inverse) if method.factorises or null is not None else None
        if report is not None:
            report = report.begun(bk, bk.norm(b))
        iteration = Iteration(
            bk, method, A, inverse, rest, null, both, report, x0 is not None, by_default, singular=singular
        )
        if x0 is not None and method.factorises:  # whose corrections have no part in null vectors of their own
            iteration = replace(iteration, take_off=getattr(inverse, "without_null", None))
        if method.applies_once:
            found = solved_once(iteration, x0, rtol, atol)
        else:
            found = _iterated(iteration, x0, rtol, atol, limits, history)
        if apart is None:
            return found
        return apart.reported(bk, found) if known else apart.judged(bk, found, rtol, atol)


def _on_grid(
    bk: Backend,
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    null: Operator | None,
    known: tuple[tuple[int, ...], Cut] | None,
) -> Any:
    """Operands of a solve, with rows kept as grids where they may be sharded.

    Other rows are grids of one axis, so that stacks of vectors are not flattened.
    """
    if not bk.spreads_arrays() or not A.shape[0]:
        return A, M, b, x0, null
    grid = A.own_grid or A.shape[:1]
    cut = None if known is None else known[1].on(known[0], grid)
    start, b = None if x0 is None else bk.on_grid(x0, grid, cut), bk.on_grid(b, grid, cut)
    own = on_grid(A, grid) if cut is None else _with_cut_product(A, on_grid(A, grid), cut, b)
    return own, on_grid(M, grid), b, start, on_grid(null, grid)


def _with_cut_product(A: Operator, own: Operator, cut: Cut, b: Array) -> Operator:
    """`own`, which iterations multiply by blocks of a stencil where it is one."""
    if not cut.all_names or not A.bk.compiled(b):
        return own
    found = cut_stencil(A, cut, b)
    if isinstance(found, str):
        log.debug("iterations multiply by the function as it is: it %s", found)
        return own
    return InSteps(own, found)


def _singularity(bk: Backend, b: Array, null: Operator | None, factors: Operator | None) -> Array | None:
    """`(batch, 1)`, numbers of `Singularity`; None where nothing is known.

    Args:
        b: the right-hand sides, in rows.
        null: projects given or found null vectors out.
        factors: of a direct method.
    """
    told = told_by(factors)
    if null is None and told is None:
        return None
    rows = int(b.shape[0])
    none = bk.zeros((rows, 1), np.dtype(np.int32), b)
    found = none if told is None else bk.broadcast_to(told, (rows, 1)) + none
    return found if null is None else bk.where(_takes_off(bk, null, b), none + _KNOWN, found)


def _takes_off(bk: Backend, null: Operator, b: Array) -> Array:
    """For which systems is the projection not the identity?"""
    if isinstance(null, WithoutConstantsInside):
        return null.array("active") > 0
    if isinstance(null, WithoutConstants) and len(null.array("labels").shape) == 2:
        return bk.max_abs(bk.take_in_bounds(null.array("weights"), null.array("labels"), 0)) > 0
    return bk.full_like(bk.max_abs(b), not (isinstance(null, WithoutVectors) and not int(null.basis.shape[0])), bool)


def _iterated(
    this: Iteration, x0: Array | None, rtol: Array, atol: Array, limits: Limits, history: bool
) -> Outcome:  # fmt: skip
    """Run the iteration, in NumPy where its method and library allow that."""
    bk, b = this.bk, this.bk.rows_on_host(this.b) if this.method.applies_only else None
    iterate = Iteration.run if len(limits) == 1 or this.method.can_pause else Iteration.run_each
    if b is None:
        return iterate(this, x0, rtol, atol, limits, history)
    host = get_backend("numpy")

    def numbers(a: Array | None) -> np.ndarray | None:
        return None if a is None else bk.to_numpy(a)

    def operator(A: Operator | None) -> Operator | None:
        return None if A is None else OnHost(A)

    A, M, null, singular = OnHost(this.A), operator(this.M), operator(this.null), numbers(this.singular)
    there = replace(this, bk=host, A=A, M=M, null=null, b=b, singular=singular)
    with host.errstate():
        found = iterate(there, numbers(x0), bk.to_numpy(rtol), bk.to_numpy(atol), limits, history)
    return Outcome(*(() if isinstance(a, tuple) else bk.from_host(np.ascontiguousarray(a)) for a in found))
