"""Requests that are solved in another form: a table of adapters, each with its way back.

| request | is solved | way back |
|---|---|---|
| matrix whose rows are cut over devices | in the order of its parts (`devices.py`) | in the user's order |
| batch of unknown size, in a traced function | system by system, in a loop | vectors on the user's axis |

The way back is that of the result in an error, too. Other forms are read before (`peers.py`), belong to the system
(`least_squares.py`), or replace the whole solve: a first call on NumPy (`first_call.py`), the members of a communicator
(`members.py`). `run_where_spread` runs all of them where JAX infers shardings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...backends import Backend, choose_backend, get_backend
from ...sparse import batch_shape, operand_dtype
from ...sparse.layout import moved_axis
from ..read.arguments import Request, last_axis
from ..results.result import SolveResult, arrays_of, changed, converted, with_arrays
from .devices import in_order_of_parts

Solve = Callable[[Request], SolveResult]
WayBack = Callable[[SolveResult], SolveResult]
T = TypeVar("T")
_FIELDS = ("A", "b", "x0", "args", "preconditioner", "rtol", "atol", "max_iter", "nullspace")  # may hold arrays


def solve_adapted(request: Request, solve: Solve) -> SolveResult:
    """Solve by the first adapter that the request needs, and others in turn; as it is where it needs none."""
    for into, run in ADAPTERS:
        if (adapted := into(request)) is not None:
            inner, back = adapted
            again = partial(solve_adapted, solve=solve)
            return converted(partial(again, inner) if run is None else partial(run, inner, again), back)
    return solve(request)


# --- batches of unknown size


def _with_vectors_last(request: Request) -> tuple[Request, WayBack] | None:
    """For a batch whose size alone is unknown: one matrix and one tolerance, as only b and x0 may differ."""
    if None not in getattr(request.b, "shape", ()):
        return None
    bk, axis = choose_backend(request.b, request.A), request.axis
    is_matrix = operand_dtype(request.A, bk) is not None
    moves = is_matrix and axis not in (None, -1)
    if moves:
        b, x0 = (None if a is None else last_axis(bk, request, a) for a in (request.b, request.x0))
        request = replace(request, b=b, x0=x0, axis=-1)

    def back(result: SolveResult) -> SolveResult:
        if not moves or axis is None:
            return result
        x, residual = (moved_axis(bk, vectors, -1, axis) for vectors in (result.x, result.residual))
        return changed(result, x, residual=residual)

    axes, shape = _batch_axes(bk, request), tuple(request.b.shape)
    one_matrix = not is_matrix or not batch_shape(request.A, bk)
    numbers = all(isinstance(n, int | float | None) for n in (request.rtol, request.atol, request.max_iter))
    fits = axes and None not in shape[axes:] and not request.history and one_matrix and numbers
    return (request, back) if fits else None


def _one_by_one(request: Request, solve: Solve) -> SolveResult:
    """Solve all systems in a loop of the program, each as a batch of one: functions get their batch axes."""
    bk, shape = choose_backend(request.b, request.A), tuple(request.b.shape)
    axes, results = _batch_axes(bk, request), list[SolveResult]()

    def solve_one(b: Any, *x0: Any) -> tuple[Any, ...]:
        alone = [bk.reshape(a, (1,) * axes + shape[axes:]) for a in (b, *x0)]
        results.append(solve(replace(request, b=alone[0], x0=alone[1] if x0 else None)))
        return tuple(bk.reshape(a, tuple(a.shape)[axes:]) for a in arrays_of(results[-1]))

    given = [request.b] if request.x0 is None else [request.b, request.x0]
    arrays = bk.one_by_one(solve_one, given, axes)
    return with_arrays(results[-1], arrays)


def _batch_axes(bk: Backend, request: Request) -> int:
    return request.batch_ndim if operand_dtype(request.A, bk) is None else len(request.b.shape) - 1


ADAPTERS: tuple[
    tuple[Callable[[Request], tuple[Request, WayBack] | None], Callable[[Request, Solve], SolveResult] | None], ...
] = (
    (in_order_of_parts, None),
    (_with_vectors_last, _one_by_one),
)  # fmt: skip
"""Each gives the request in another form and the way back, or None, and runs it in its own way, or as others."""


# --- shardings in types


def run_where_spread(function: Callable[[Request], T], request: Request, spread: bool = True) -> T:
    """`function(request)`; where `spread`, the arrays of its result are spread as b is.

    For JAX only: `jax.make_mesh` makes meshes with Explicit axes, where types have the shardings of arrays. That of b
    is kept in the request, because the solve runs where types have none.
    """
    if "jax" not in sys.modules or isinstance(request.b, np.ndarray):  # NumPy does not mix with such arrays
        return function(request)
    bk = get_backend("jax")
    leaves, structure = bk.leaves(request.b)
    like = leaves[0] if leaves else None
    if isinstance(like, np.ndarray):
        return function(request)
    if structure is None and (seen := bk.sharding_of(like)) is not None:
        request = replace(request, seen_sharding=seen)

    def inside(arrays: dict[str, Any]) -> T:
        return function(replace(request, **arrays))

    arrays = {name: getattr(request, name) for name in _FIELDS}
    found: T = bk.with_auto_axes(inside, arrays, like if spread else None)
    return found
