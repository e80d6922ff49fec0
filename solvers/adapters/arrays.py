"""Arrays that need conversion before a solve: batches of unknown size, and shardings in types.

In a traced function, the systems of a batch of unknown size are solved one after the other. With arrays whose types
have shardings, the solve runs where the library infers shardings itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...backends import Backend, choose_backend, get_backend
from ...sparse import batch_shape, operand_dtype
from ...sparse.layout import moved_axis
from ..read.arguments import Request, last_axis
from ..results.result import SolveResult, arrays_of, changed, with_arrays

T = TypeVar("T")
_FIELDS = ("A", "b", "x0", "args", "preconditioner", "rtol", "atol", "max_iter", "nullspace")  # may hold arrays


def has_unknown_size(b: Any) -> bool:
    """Has an array axes whose length is known only when the traced function runs?"""
    return None in getattr(b, "shape", ())


def solve_one_by_one(request: Request, solve: Callable[[Request], SolveResult]) -> SolveResult | None:
    """Solve all systems in a loop of the program; None unless only the size of the batch is unknown.

    Each is a batch of one, so functions get arrays with their batch axes. Only b and x0 may differ between systems:
    there must be one matrix and one tolerance for all.
    """
    bk = choose_backend(request.b, request.A)
    is_matrix = operand_dtype(request.A, bk) is not None
    if is_matrix and request.axis not in (None, -1):
        return _along_axis(bk, request, solve)
    shape = tuple(request.b.shape)
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


def _along_axis(bk: Backend, request: Request, solve: Callable[[Request], SolveResult]) -> SolveResult | None:
    """Solve with vectors on another axis."""
    axis, x0 = request.axis, request.x0
    rows = replace(
        request, b=last_axis(bk, request, request.b), x0=None if x0 is None else last_axis(bk, request, x0), axis=-1
    )
    found = solve_one_by_one(rows, solve)
    if found is None or axis is None:
        return None
    return changed(found, moved_axis(bk, found.x, -1, axis), residual=moved_axis(bk, found.residual, -1, axis))


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
