"""A batch whose size is not known while a function is traced: its systems are solved one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..backends import choose_backend
from ..sparse import batch_shape, operand_dtype
from .results.result import SolveResult, arrays_of, with_arrays
from .setup.request import Request


def has_unknown_size(b: Any) -> bool:
    """Has an array axes whose length is known only when the traced function runs?"""
    return None in getattr(b, "shape", ())


def solve_one_by_one(request: Request, solve: Callable[[Request], SolveResult]) -> SolveResult | None:
    """The solves of all systems in a loop of the program; None where this is more than a batch of unknown size.

    Each is a batch of one, so functions get arrays with their batch axes. What the request has for each system, but
    for b and x0, is not taken apart: of matrices and tolerances there must be one for all.
    """
    bk, shape = choose_backend(request.b, request.A), tuple(request.b.shape)
    is_matrix = operand_dtype(request.A, bk) is not None
    axes = len(shape) - 1 if is_matrix else request.batch_ndim
    one_matrix = not is_matrix or not batch_shape(request.A, bk)
    numbers = all(isinstance(n, int | float | None) for n in (request.rtol, request.atol, request.max_iter))
    if not axes or None in shape[axes:] or request.history or not (one_matrix and numbers):
        return None
    kept: list[SolveResult] = []

    def solve_one(b: Any, *x0: Any) -> tuple[Any, ...]:
        alone = [bk.reshape(a, (1,) * axes + shape[axes:]) for a in (b, *x0)]
        result = solve(replace(request, b=alone[0], x0=alone[1] if x0 else None))
        kept.append(result)
        return tuple(bk.reshape(a, tuple(a.shape)[axes:]) for a in arrays_of(result))

    given = [request.b] if request.x0 is None else [request.b, request.x0]
    found = bk.one_by_one(solve_one, given, axes)
    return with_arrays(kept[-1], found)
