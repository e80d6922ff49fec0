"""Batches whose systems lie on several devices: a loop on each device, without messages.

One loop of all devices would ask in each step whether any system is still running, which is a sum over all of them. A
function A then gets the systems of one device; whether it maps these as it maps all of them is checked in the end, by
one product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...backends import Array, Backend, Cut, real_dtype
from ...sparse import (
    FunctionOperator,
    Matrix,
    Operator,
    arguments_of,
    for_some_systems,
)
from ..read.system import System
from ..singular.projections import WithoutConstantsInside
from .loop import LoopSettings, run
from .null_part import NullPart
from .outcome import Outcome, Status

_SAME = 1e-5  # relative difference of images that count as the same
_MOST = 1 << 24  # numbers of all systems up to which images are compared
_ROUNDING = 1.5  # factor by which a recomputed residual norm may exceed the bound


class Local(NamedTuple):
    """A, M and the projection of null vectors for the systems of one device, but for their arrays."""

    A: Operator
    M: Operator | None
    null: Operator | None


def solved_by_systems(system: System, M: Operator | None, settings: LoopSettings) -> Outcome | None:
    """Outcome of a loop on each device; None where the systems need not or cannot be solved apart."""
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
    M, null = (None if operator is None else operator.as_container() for operator in (local.M, local.null))
    A, local = A.as_container(), Local(local.A.as_container(), M, null)
    if not all(operator is None or operator.is_container for operator in (A, *local)):
        return None
    compiled = system.bk.compile_if_faster(run_by_systems, ("settings", "cut"))
    outcome: Outcome = compiled(A, local, *arrays, settings=settings, cut=cut)
    return outcome


def _local_operators(
    A: Operator, M: Operator | None, null: Operator | None, cut: Cut, systems: int, apart: bool = False
) -> Local | None:
    """The operators for the systems of one device.

    Args:
        apart: are the arguments of A split by systems? Then the operators get those of the first device.
    """
    bk, count = A.bk, systems // cut.size_of(cut.batch)
    local = [None if operator is None else for_some_systems(operator, count) for operator in (A, M, null)]
    if apart:
        parts, make = bk.flatten(arguments_of(A))
        leads = _leads(bk, arguments_of(A), systems)
        first = [part[:count, ...] if lead else part for part, lead in zip(parts, leads, strict=True)]
        local[0] = for_some_systems(A, count, make(first))
    if any(own is None for own in local[1 : 1 + (M is not None)]) or local[0] is None:
        return None
    if null is not None and not _is_split(null, systems) and any(_leads(bk, null, systems)):
        return None  # its arrays may be of all systems or of each
    try:
        if apart and local[0] is not None:  # its first product may refuse fewer systems
            local[0].apply(bk.zeros((count, A.shape[1]), A.dtype))
        pairs = zip((None if apart else A, M), local[:2])
        same = all(_does_the_same(bk, *pair, count, systems) for pair in pairs)
    except Exception:  # a function that closes over arrays of all systems may refuse fewer of them
        return None
    return Local(*local) if same else None  # type: ignore[arg-type]


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

    norms = bk.concrete_value(difference)
    return norms is None or bool((norms[:, 0] <= _SAME * norms[:, 1].max()).all())


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
    rows = [None if array is None else bk.flat(array) for array in (b, x0, rtol, atol, constant)]
    arrays = [array for array in rows if array is not None]
    leads: list[int | None] = [1 if int(array.shape[0]) == systems else None for array in arrays]
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
        values = [None if array is None else next(given) for array in rows]
        made, M, null = (make([next(given) for _ in range(size)]) for size, make in makers)
        own: Any = for_some_systems(A, count, made) if apart else made
        own = own if values[4] is None else own.with_constant(values[4])
        b, x0, rtol, atol, _ = values
        return tuple(run(own, M, b, x0, rtol, atol, null, settings._replace(cut=None)))

    fields = len(Outcome._fields) - 1
    out_leads = ((1,) * fields) + ((2,) if settings.history else ((),))
    outcome = Outcome(*bk.map_parts(on_one_device, cut, arrays, leads, out_leads, apart=True))
    if isinstance(A, Matrix):
        return outcome
    return _checked_with_all(bk, A, NullPart.rest_of(bk, rows[0], local.null, settings.both), outcome)


def _checked_with_all(bk: Backend, A: Operator, b: Array, outcome: Outcome) -> Outcome:
    """The outcome, with a failure of the systems whose residual differs where A gets all systems."""
    residual = b - A.apply(outcome.x)
    norm = bk.norm(residual)
    refuted = (outcome.status == int(Status.CONVERGED)) & bk.negated(norm <= _ROUNDING * outcome.bound)
    status = bk.where(refuted, int(Status.STAGNATED), outcome.status)
    products = outcome.products + A.products
    return outcome._replace(residual=residual, norm=norm, status=status, products=products)
