"""Requests that are solved in another form: a table of adapters, each with its way back.

| request | is solved | way back |
|---|---|---|
| matrix whose rows are cut over devices | in the order of its parts | in the user's order |
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
import scipy.sparse as sp

from ...backends import Array, Backend, choose_backend, get_backend
from ...sparse import (
    CutRows,
    RowCutMatrix,
    SparseMatrix,
    UnsupportedOperation,
    as_operator,
    batch_shape,
    cut_matrix,
    is_function,
    operand_dtype,
)
from ...sparse.layout import moved_axis
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from ..preconditioners import Preconditioner
from ..preconditioners.build import BY_PARTS, check_kind
from ..read.arguments import Request, expected_vectors, last_axis
from ..results.result import SolveResult, arrays_of, changed, converted, with_arrays
from ..run.watch import IterationState, Monitor

Solve = Callable[[Request], SolveResult]
WayBack = Callable[[SolveResult], SolveResult]
T = TypeVar("T")
_FIELDS = ("A", "b", "x0", "args", "preconditioner", "rtol", "atol", "max_iter", "nullspace")  # may hold arrays


def solve_adapted(request: Request, solve: Solve) -> SolveResult:
    """Solve by the first adapter that the request needs, and others in turn; unchanged where it needs none."""
    for into, run in ADAPTERS:
        if (adapted := into(request)) is not None:
            inner, back = adapted
            again = partial(solve_adapted, solve=solve)
            return converted(partial(again, inner) if run is None else partial(run, inner, again), back)
    return solve(request)


# --- rows that are cut over devices


def _in_order_of_parts(request: Request) -> tuple[Request, WayBack] | None:
    """The system in the order of the parts of A, where A is cut, or b is spread and A can be cut, and the way back."""
    if type(request.A) is not RowCutMatrix:
        if request.seen_sharding is None and request.sharding is None:
            return None
        request = _with_rows_cut(request)
        if type(request.A) is not RowCutMatrix:
            return None
    A, axis = request.A, request.axis

    def moved(array: Array) -> Array:
        array = _array_in_users_order(A, array)
        return array if axis in (None, -1) else moved_axis(A.bk, array, -1, axis)

    return _by_parts(request, A), lambda result: changed(result, moved(result.x), residual=moved(result.residual))


def _by_parts(request: Request, A: RowCutMatrix) -> Request:
    bk, n = A.bk, A.shape[0]
    if request.matrix_offset is not None:
        raise UnsupportedOperation("matrix_offset does not go with a row-cut matrix: give A itself, or leave it out.")
    b = _vectors(bk, request.b, request.axis)
    if not b.shape or int(b.shape[-1]) != n:
        raise ValueError(f"A has the shape {A.shape} and b {tuple(b.shape)}; {expected_vectors(b, n, request.axis)}.")
    sharding = request.sharding or request.seen_sharding
    cut = None if sharding is None else bk.cut_of(b, len(b.shape) - 1, sharding)
    spread = A.spread if cut is None or cut.names != A.spread.names else cut
    inner = A.inner
    if isinstance(inner, CutRows) and spread != inner.spread:
        inner = replace(inner, spread=spread).knowing(inner)
    A = replace(A, inner=inner, spread=spread)
    x0 = None if request.x0 is None else _in_parts(A, _vectors(bk, request.x0, request.axis))
    null = request.nullspace
    if null is not None and not isinstance(null, str):
        null = _in_parts(A, bk.asarray(null))
    return replace(
        request, A=A.inner, b=_in_parts(A, b), x0=x0, axis=None, nullspace=null, seen_sharding=spread, sharding=None,
        preconditioner=_preconditioner(A, request.preconditioner), monitor=_monitor(A, request.monitor),
    )  # fmt: skip


def _monitor(A: RowCutMatrix, monitor: Monitor | None) -> Monitor | None:
    """The monitor with a callback that receives x in the user's order."""
    if monitor is None or monitor.callback is None:
        return monitor
    users, places = monitor.callback, A.layout.places

    def callback(state: IterationState) -> Any:
        x = np.asarray(state.x)[..., places]
        return users(state._replace(x=x if monitor.in_numpy else A.bk.in_host_call(x, None)))

    return replace(monitor, callback=callback)


def _vectors(bk: Backend, array: Any, axis: int | None) -> Array:
    """The array with its vectors on the last axis."""
    array = bk.asarray(array)
    return array if axis in (None, -1) else moved_axis(bk, array, axis, -1)


def _in_parts(A: RowCutMatrix, array: Array) -> Array:
    """`(..., n)` -> `(..., parts * size)`."""
    return _moved(A, array, RowCutMatrix.to_parts)


def _array_in_users_order(A: RowCutMatrix, array: Array) -> Array:
    """`(..., parts * size)` -> `(..., n)`."""
    return _moved(A, array, RowCutMatrix.to_user)


def _moved(A: RowCutMatrix, array: Array, move: Callable[[RowCutMatrix, Array], Array]) -> Array:
    bk, lead = A.bk, tuple(array.shape[:-1])
    rows = bk.reshape(array, (int(np.prod(lead)), int(array.shape[-1]))) if len(lead) != 1 else array
    moved = bk.compile_if_faster(move, ())(A, rows)
    return moved if len(lead) == 1 else bk.reshape(moved, (*lead, int(moved.shape[-1])))


def _preconditioner(A: RowCutMatrix, M: Any) -> Any:
    """M for vectors in the order of the parts."""
    if M is None or isinstance(M, str):
        return M
    if isinstance(M, RowCutMatrix) and M.layout is A.layout:
        return M.inner
    if isinstance(M, Preconditioner) and isinstance(M.inner, RowCutMatrix) and M.inner.layout is A.layout:
        return replace(M, inner=M.inner.inner)
    if is_function(M):
        return lambda r: _in_parts(A, M(_array_in_users_order(A, r)))
    raise UnsupportedOperation(
        f"The preconditioner {M!r} is not one for rows that are cut. Give a name ({', '.join(BY_PARTS)}), "
        "krylix.preconditioner(A, name) of the row-cut matrix, or a function r -> M r."
    )


def _with_rows_cut(request: Request) -> Request:
    """The request with A cut as b is spread, where A is a sparse matrix, no stencil, and method and M allow it."""
    A = request.A
    bk = choose_backend(request.b, A)
    sparse = sp.issparse(A) or isinstance(A, SparseMatrix) or bk.sparse.accepts(A)
    if not sparse or request.axis not in (None, -1) or request.matrix_offset is not None or not _can_be_cut(request):
        return request
    shape = tuple(request.b.shape)
    cut = bk.cut_of(request.b, len(shape) - 1, request.sharding or request.seen_sharding)
    if cut is None or not cut.names or cut.parts[0] < 2 or tuple(A.shape) != (shape[-1],) * 2:
        return request
    matrix = as_operator(A)
    if not isinstance(matrix, SparseMatrix) or matrix.systems is not None or not matrix.structure.gathers:
        return request
    return replace(request, A=cut_matrix(bk, matrix, cut))


def _can_be_cut(request: Request) -> bool:
    """Do the method and the preconditioner support matrices whose rows are cut over devices?"""
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    if isinstance(method, Method) and (method.on_host or method.factorises or method.least_squares):
        return False
    M = request.preconditioner
    return M is None or is_function(M) or (isinstance(M, str) and check_kind(M) in ("auto", *BY_PARTS))


# --- batches of unknown size


def _with_vectors_last(request: Request) -> tuple[Request, WayBack] | None:
    """For a batch whose size alone is unknown: one matrix and one tolerance, because only b and x0 may differ."""
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
    (_in_order_of_parts, None),
    (_with_vectors_last, _one_by_one),
)  # fmt: skip
"""Each gives the request in another form and the way back, or None, and a special solve of it, or None."""


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
    result: T = bk.with_auto_axes(inside, arrays, like if spread else None)
    return result
