"""Solves with a matrix whose rows are cut: in the order of its parts, between one redistribution of b and one of x."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..backends import Array, Backend, Cut, choose_backend
from ..sparse import (
    CutRows,
    Operator,
    RowCutMatrix,
    SparseMatrix,
    UnsupportedOperation,
    as_operator,
    cut_matrix,
    is_function,
)
from ..sparse.layout import moved_axis
from .methods.method import Method
from .methods.registry import find_method, is_auto
from .preconditioners import Preconditioner
from .preconditioners.build import check_kind
from .preconditioners.by_parts.kinds import BY_PARTS
from .read.arguments import Request, expected_vectors
from .results.failure import ConvergenceError, result_of_this_solve
from .results.result import SolveResult
from .run.watch import IterationState, Monitor

Solve = Callable[[Request], SolveResult]


def solve_with_cut_rows(request: Request, solve: Solve) -> SolveResult | None:
    """Solve by parts where A is cut, or can be and b is spread; None where the solve is another one.

    Raises:
        As `linear_solve`; `NotConverged` has the result in the user's order.
    """
    if type(request.A) is not RowCutMatrix:
        request = _with_rows_cut(request)
        if type(request.A) is not RowCutMatrix:
            return None
    A = request.A
    try:
        found = solve(_by_parts(request, A))
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            error.result = _in_users_order(A, failed, request.axis)
        raise
    return _in_users_order(A, found, request.axis)


def _by_parts(request: Request, A: RowCutMatrix) -> Request:
    """The same system in the order of the parts."""
    bk, n = A.bk, A.shape[0]
    if request.matrix_offset is not None:
        raise UnsupportedOperation("matrix_offset does not go with a row-cut matrix: give A itself, or leave it out.")
    b = _vectors(bk, request.b, request.axis)
    if not b.shape or int(b.shape[-1]) != n:
        raise ValueError(f"A has the shape {A.shape} and b {tuple(b.shape)}; {expected_vectors(b, n, request.axis)}.")
    sharding = request.sharding or request.seen_sharding
    cut = None if sharding is None else bk.cut_of(b, len(b.shape) - 1, sharding)
    spread = A.spread if cut is None or cut.names != A.spread.names else cut
    A = replace(A, inner=_spread_by(A.inner, spread), spread=spread)
    x0 = None if request.x0 is None else in_parts(A, _vectors(bk, request.x0, request.axis))
    null = request.nullspace
    if null is not None and not isinstance(null, str):
        null = in_parts(A, bk.asarray(null))
    return replace(
        request, A=A.inner, b=in_parts(A, b), x0=x0, axis=None, nullspace=null, seen_sharding=spread, sharding=None,
        preconditioner=_preconditioner(A, request.preconditioner), monitor=_monitor(A, request.monitor),
    )  # fmt: skip


def _monitor(A: RowCutMatrix, monitor: Monitor | None) -> Monitor | None:
    """Whose callback gets x in the user's order."""
    if monitor is None or monitor.callback is None:
        return monitor
    told, places = monitor.callback, A.layout.places

    def callback(state: IterationState) -> Any:
        x = np.asarray(state.x)[..., places]
        return told(state._replace(x=x if monitor.in_numpy else A.bk.in_host_call(x, None)))

    return replace(monitor, callback=callback)


def _spread_by(inner: Operator, spread: Cut) -> Operator:
    if not isinstance(inner, CutRows) or spread == inner.spread:
        return inner
    return replace(inner, spread=spread).knowing(inner)


def _vectors(bk: Backend, array: Any, axis: int | None) -> Array:
    """With the vectors on the last axis."""
    array = bk.asarray(array)
    return array if axis in (None, -1) else moved_axis(bk, array, axis, -1)


def in_parts(A: RowCutMatrix, array: Array) -> Array:
    """`(..., n)` -> `(..., parts * size)`."""
    return _moved(A, array, RowCutMatrix.to_parts)


def in_users_order(A: RowCutMatrix, array: Array) -> Array:
    """`(..., parts * size)` -> `(..., n)`."""
    return _moved(A, array, RowCutMatrix.to_user)


def _moved(A: RowCutMatrix, array: Array, move: Callable[[RowCutMatrix, Array], Array]) -> Array:
    bk, lead = A.bk, tuple(array.shape[:-1])
    rows = bk.reshape(array, (int(np.prod(lead)), int(array.shape[-1]))) if len(lead) != 1 else array
    found = bk.compile_if_faster(move, ())(A, rows)
    return found if len(lead) == 1 else bk.reshape(found, (*lead, int(found.shape[-1])))


def _in_users_order(A: RowCutMatrix, result: SolveResult, axis: int | None) -> SolveResult:
    bk = A.bk

    def moved(array: Array) -> Array:
        found = in_users_order(A, array)
        return found if axis in (None, -1) else moved_axis(bk, found, -1, axis)

    return replace(result, x=moved(result.x), residual=moved(result.residual))


def _preconditioner(A: RowCutMatrix, M: Any) -> Any:
    """M for vectors in the order of the parts."""
    if M is None or isinstance(M, str):
        return M
    if isinstance(M, RowCutMatrix) and M.layout is A.layout:
        return M.inner
    if isinstance(M, Preconditioner) and isinstance(M.inner, RowCutMatrix) and M.inner.layout is A.layout:
        return replace(M, inner=M.inner.inner)
    if is_function(M):
        return lambda r: in_parts(A, M(in_users_order(A, r)))
    raise UnsupportedOperation(
        f"The preconditioner {M!r} is not one for rows that are cut. Give a name ({', '.join(BY_PARTS)}), "
        "krylix.preconditioner(A, name) of the row-cut matrix, or a function r -> M r."
    )


def _with_rows_cut(request: Request) -> Request:
    """With A cut as b is spread, where it is a sparse matrix, no stencil, and all that is asked for can be cut."""
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
    """Are the method and the preconditioner for rows that are cut?"""
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    if isinstance(method, Method) and (method.on_host or method.factorises or method.least_squares):
        return False
    M = request.preconditioner
    return M is None or is_function(M) or (isinstance(M, str) and check_kind(M) in ("auto", *BY_PARTS))
