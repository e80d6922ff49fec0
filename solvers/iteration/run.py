"""Run a method on arrays: set-up, iteration, and the outcome at each limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator, on_grid
from ..null_space.projections import Projected, WithoutConstantsInside
from .driver import Iteration
from .host_rows import iterated
from .limits import Limits
from .method import Method
from .null_part import NullPart
from .outcome import Outcome
from .singularity import singularity


class LoopSettings(NamedTuple):
    """Static settings of a solve; hashable."""

    bk: Backend
    method: Method
    limits: Limits
    history: bool
    by_default: bool  # was the tolerance left to the library?
    both: bool = False  # are the known null vectors also those of the transpose?
    derived: bool = False  # is it the solve for a derivative, of which only the part in the range of A counts?


def run(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    settings: LoopSettings,
    report: Callable[..., None] | None = None,
) -> Outcome:
    """Run a method; the outcome has a leading axis for several limits. Its vectors may be kept as grids.

    Args:
        null: projects known null vectors of A out, or None.
    """
    bk, method, limits, history, by_default, both, derived = settings
    single = len(limits) == 1
    with bk.errstate():
        # those that are found at run time are mostly none, and would cost as much there as M
        around = both and null is not None and not isinstance(null, WithoutConstantsInside)
        if method.keeps_grids and single:
            A, M, b, x0, null = _on_grid(bk, A, M, b, x0, null)
        elif x0 is not None:
            x0 = bk.flat(x0)
        if around and null is not None and M is not None and not method.factorises:
            M = Projected(null, M)
        inverse = method.setup(bk, A, M)
        apart = NullPart.of(bk, b, null) if both and null is not None else None
        if apart is None and method.factorises:
            apart = NullPart.by_factors(b, inverse)
        rest = b if apart is None else apart.rest
        singular = singularity(bk, b, null, inverse) if method.factorises or null is not None else None
        iteration = Iteration(bk, method, A, inverse, rest, null, both, report, by_default, singular=singular)
        if x0 is not None and method.factorises:  # whose corrections have no part in null vectors of their own
            iteration = replace(iteration, take_off=getattr(inverse, "without_null", None))
        found = iterated(iteration, x0, rtol, atol, limits, history)
        return found if apart is None else apart.told(bk, found, rtol, atol, derived)


def _on_grid(bk: Backend, A: Operator, M: Operator | None, b: Array, x0: Array | None, null: Operator | None) -> Any:
    """Operands of a solve, with rows kept as grids where they may be sharded.

    Other rows are grids of one axis, so that stacks of vectors are not flattened.
    """
    if not bk.spreads_arrays() or not A.shape[0]:
        return A, M, b, x0, null
    grid = A.own_grid or A.shape[:1]
    start = None if x0 is None else bk.on_grid(x0, grid)
    return on_grid(A, grid), on_grid(M, grid), bk.on_grid(b, grid), start, on_grid(null, grid)
