"""Solves whose rows or systems lie on several devices.

A system with a matrix whose rows are cut is solved in the order of its parts, between a redistribution of b and one of
x. A batch whose systems lie on several devices is solved by a loop on each device, without messages: one loop of all
devices would ask in each step whether any system is still running, which is a sum over all of them. A function A then
gets the systems of one device; whether it maps these as it maps all of them is checked in the end, by one product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, Cut, choose_backend, real_dtype
from ...sparse import (
    CutRows,
    FunctionOperator,
    Matrix,
    Operator,
    RowCutMatrix,
    SparseMatrix,
    UnsupportedOperation,
    arguments_of,
    as_operator,
    cut_matrix,
    for_some_systems,
    is_function,
)
from ...sparse.layout import moved_axis
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from ..preconditioners import Preconditioner
from ..preconditioners.build import BY_PARTS, check_kind
from ..read.arguments import Request, expected_vectors
from ..read.system import System
from ..results.result import SolveResult, changed
from ..run.loop import LoopSettings, run
from ..run.null_part import NullPart
from ..run.outcome import Outcome, Status
from ..run.watch import IterationState, Monitor
from ..singular.projections import WithoutConstantsInside


def shows_no_progress(bk: Backend) -> bool:
    """Is this a member of a communicator other than the first, which alone shows progress?"""
    return bk.communicator is not None and not bk.communicator.is_traced and bk.communicator.rank > 0


# --- rows that are cut


def in_order_of_parts(request: Request) -> tuple[Request, Callable[[SolveResult], SolveResult]] | None:
    """The system in the order of the parts of A, where A is cut, or can be and b is spread, and the way back."""
    if type(request.A) is not RowCutMatrix:
        if request.seen_sharding is None and request.sharding is None:
            return None
        request = _with_rows_cut(request)
        if type(request.A) is not RowCutMatrix:
            return None
    A = request.A
    return _by_parts(request, A), lambda result: _in_users_order(A, result, request.axis)


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
    """The monitor with a callback that receives x in the user's order."""
    if monitor is None or monitor.callback is None:
        return monitor
    users, places = monitor.callback, A.layout.places

    def callback(state: IterationState) -> Any:
        x = np.asarray(state.x)[..., places]
        return users(state._replace(x=x if monitor.in_numpy else A.bk.in_host_call(x, None)))

    return replace(monitor, callback=callback)


def _spread_by(inner: Operator, spread: Cut) -> Operator:
    if not isinstance(inner, CutRows) or spread == inner.spread:
        return inner
    return replace(inner, spread=spread).knowing(inner)


def _vectors(bk: Backend, array: Any, axis: int | None) -> Array:
    """The array with its vectors on the last axis."""
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
    moved = bk.compile_if_faster(move, ())(A, rows)
    return moved if len(lead) == 1 else bk.reshape(moved, (*lead, int(moved.shape[-1])))


def _in_users_order(A: RowCutMatrix, result: SolveResult, axis: int | None) -> SolveResult:
    def moved(array: Array) -> Array:
        array = in_users_order(A, array)
        return array if axis in (None, -1) else moved_axis(A.bk, array, -1, axis)

    return changed(result, moved(result.x), residual=moved(result.residual))


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


# --- systems of a batch on several devices

_SAME = 1e-5  # relative difference of images that count as the same
_MOST = 1 << 24  # numbers of all systems up to which images are compared
_ROUNDING = 1.5  # by how much a residual norm may exceed the bound where it is computed once more


class Local(NamedTuple):
    """A, M and the projection of null vectors for the systems of one device, but for their arrays."""

    A: Operator
    M: Operator | None
    null: Operator | None


def solved_by_systems(system: System, M: Operator | None, settings: LoopSettings) -> Outcome | None:
    """Outcome of a loop on each device; None where the systems are not to be, or cannot be, solved apart."""
    A, method, cut, rows = system.A, settings.method, system.cut, settings.limits.rows
    if cut is None or not cut.batch or cut.all_names or len(rows) != 1 or len(rows[0]) != 1:
        return None
    if method.couples_systems or not method.keeps_grids or A.offset:
        return None
    arrays, systems = (system.b, system.x0, system.rtol, system.atol), system.layout.systems
    local = _local_operators(A, M, system.null, cut, systems)
    apart = local is None and system.compiled and any(_leads(system.bk, arguments_of(A), systems))
    if apart:  # each system has its own part of the arguments
        local = _local_operators(A, M, system.null, cut, systems, True)
    if local is None:
        return None
    if system.compiled:
        return run_by_systems(A, local, *arrays, settings=settings, cut=cut, apart=apart)
    M, null = (None if one is None else one.as_container() for one in (local.M, local.null))
    A, local = A.as_container(), Local(local.A.as_container(), M, null)
    if not all(one is None or one.is_container for one in (A, *local)):
        return None
    compiled = system.bk.compile_if_faster(run_by_systems, ("settings", "cut"))
    outcome: Outcome = compiled(A, local, *arrays, settings=settings, cut=cut)
    return outcome


def _local_operators(
    A: Operator, M: Operator | None, null: Operator | None, cut: Cut, systems: int, apart: bool = False
) -> Local | None:
    """The operators for the systems of one device.

    Args:
        apart: do they get the part of the arguments of A that is of these systems? Then those of the first device.
    """
    bk, count = A.bk, systems // cut.size_of(cut.batch)
    found = [None if one is None else for_some_systems(one, count) for one in (A, M, null)]
    if apart:
        parts, make = bk.flatten(arguments_of(A))
        leads = _leads(bk, arguments_of(A), systems)
        first = [part[:count, ...] if lead else part for part, lead in zip(parts, leads, strict=True)]
        found[0] = for_some_systems(A, count, make(first))
    if any(one is None for one in found[1 : 1 + (M is not None)]) or found[0] is None:
        return None
    if null is not None and not _is_split(null, systems) and any(_leads(bk, null, systems)):
        return None  # of all systems or of each: its arrays do not tell
    try:
        if apart and found[0] is not None:  # its first product may refuse fewer systems
            found[0].apply(bk.zeros((count, A.shape[1]), A.dtype))
        pairs = zip((None if apart else A, M), found[:2])
        same = all(_does_the_same(bk, *pair, count, systems) for pair in pairs)
    except Exception:  # a function that closes over arrays of all systems may refuse fewer of them
        return None
    return Local(*found) if same else None  # type: ignore[arg-type]


def _does_the_same(bk: Backend, whole: Operator | None, part: Operator | None, count: int, systems: int) -> bool:
    """Does a function of `count` systems agree with the function of all systems? True where its values are traced.

    Cost: 2 products with all systems.
    """
    if whole is None or part is None or part is whole or systems * part.shape[1] > _MOST:
        return True
    constant = whole.constant if isinstance(whole, FunctionOperator) else None
    part.apply(bk.zeros((count, part.shape[1]), part.dtype))

    def difference() -> Array:
        n = part.shape[1]
        rows = bk.reshape(bk.scatter_numbers(systems * n, real_dtype(part.dtype), None), (systems, n))
        rows = bk.astype(rows, part.dtype)
        blocks = bk.concat([part.apply(rows[k : k + count, :]) for k in range(0, systems, count)], 0)
        image = whole.apply(rows)
        image = image if constant is None else image + bk.flat(constant)
        return bk.concat([bk.norm(image - blocks), bk.norm(image)], 1)

    found = bk.concrete_value(difference)
    return found is None or bool((found[:, 0] <= _SAME * found[:, 1].max()).all())


def _is_split(operator: Operator | None, systems: int) -> bool:
    """Do arrays of the operator whose first axis has the length of the batch hold one entry per system?"""
    return operator is not None and (operator.systems == systems or isinstance(operator, WithoutConstantsInside))


def _leads(bk: Backend, tree: Any, systems: int) -> list[bool]:
    """For each array of an operator or a container, is the first axis as long as there are systems?"""
    return [len(part.shape) > 0 and int(part.shape[0]) == systems for part in bk.flatten(tree)[0]]


def run_by_systems(
    A: Operator,
    local: Local,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    settings: LoopSettings,
    cut: Cut,
    apart: bool = False,
) -> Outcome:
    """`run` on each device for its own systems; `apart`: with their part of the arguments of the function A."""
    bk, systems = settings.bk, int(b.shape[0])
    cut, count = Cut(cut.mesh, (), cut.batch), systems // cut.size_of(cut.batch)  # of rows
    constant = A.constant if isinstance(A, FunctionOperator) else None
    rows = [None if one is None else bk.flat(one) for one in (b, x0, rtol, atol, constant)]
    arrays = [one for one in rows if one is not None]
    leads: list[int | None] = [1 if int(one.shape[0]) == systems else None for one in arrays]
    makers: list[tuple[int, Callable[[Sequence[Array]], Any]]] = []
    for tree, split in (
        (arguments_of(A) if apart else local.A, apart or _is_split(local.A, systems)),
        (local.M, _is_split(local.M, systems)),
        (local.null, _is_split(local.null, systems)),
    ):
        parts, make = bk.flatten(tree)
        arrays += parts
        leads += [1 if split and lead else None for lead in _leads(bk, tree, systems)]
        makers.append((len(parts), make))

    def on_one_device(*blocks: Array) -> tuple[Any, ...]:
        given = iter(blocks)
        values = [None if one is None else next(given) for one in rows]
        made, M, null = (make([next(given) for _ in range(size)]) for size, make in makers)
        own: Any = for_some_systems(A, count, made) if apart else made
        own = own if values[4] is None else own.with_constant(values[4])
        b, x0, rtol, atol, _ = values
        return tuple(run(own, M, b, x0, rtol, atol, null, settings._replace(cut=None)))

    fields = len(Outcome._fields) - 1
    out_leads = ((1,) * fields) + ((2,) if settings.history else ((),))
    found = Outcome(*bk.map_parts(on_one_device, cut, arrays, leads, out_leads, apart=True))
    if isinstance(A, Matrix):
        return found
    return _checked_with_all(bk, A, NullPart.rest_of(bk, rows[0], local.null, settings.both), found)


def _checked_with_all(bk: Backend, A: Operator, b: Array, found: Outcome) -> Outcome:
    """The outcome, with a failure of the systems whose residual differs where A gets all systems."""
    residual = b - A.apply(found.x)
    norm = bk.norm(residual)
    refuted = (found.status == int(Status.CONVERGED)) & bk.negated(norm <= _ROUNDING * found.bound)
    status = bk.where(refuted, int(Status.STAGNATED), found.status)
    products = found.products + A.products
    return found._replace(residual=residual, norm=norm, status=status, products=products)
