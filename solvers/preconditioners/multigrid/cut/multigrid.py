"""The multigrid preconditioner of a matrix on a cut grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....backends import Array, Backend, Cut
from .....sparse import Matrix, Operator, Stencil, UnsupportedOperation
from .....sparse.operators.couplings import Couplings
from ...base import Preconditioner, Spread
from ...checks import check_integer
from ...operators import precision_as_setting
from ...pipeline import built, entries_of, grid_of
from ...target import Target
from ..coarsening import strengths_of
from ..cycle import VISITS, numbers_stored
from ..from_matrix import couplings_of
from ..multigrid import checked_couplings, checked_smoothing
from ..smoothing import Smoothing
from .by_products import couplings_by_products
from .cycle import CutMultigrid
from .levels import CutSetup, cut_levels
from .plan import CutPlan, plan_of

_DIRECT = 256  # points of the coarsest grid: more would be as much work for a device as its part of the finest


def multigrid_on_cut_grid(
    A: Operator,
    *,
    spread: Spread,
    grid: Sequence[int] | None = None,
    cycle: str = "V",
    smoother: str | None = None,
    degree: int = 2,
    direct: int | None = None,
    directional: bool = True,
    precision: str | None = None,
) -> Preconditioner | None:
    """`multigrid` for vectors that are spread over a device mesh, with its settings.

    Returns:
        None where the blocks of the vectors are no boxes of the grid.

    Raises:
        ValueError, UnsupportedOperation: as of `multigrid`; the parts do not divide a periodic axis.
    """
    choose = checked_smoothing(cycle, smoother, degree, precision)
    points = None if direct is None else check_integer("direct", direct, 1)
    entries = entries_of(A)
    shape = grid_of(entries, grid, find=True)
    cut = spread.cut.on(spread.shape, shape)
    if cut is None or not cut.all_names:
        return None

    def kind(own: Matrix, target: Target) -> Preconditioner:
        known = own.bk.on_host
        couplings = couplings_of(own, shape) if known or isinstance(own, Stencil) else by_products(own)
        hermitian = checked_couplings(couplings) if known else None
        single = known and directional and own.systems is None
        strengths = strengths_of(couplings) if single else None
        return cut_multigrid(couplings, target.bk, cut, own.dtype, choose(hermitian), hermitian, points, strengths)

    def by_products(own: Matrix) -> Couplings:
        if own.systems is not None:
            raise UnsupportedOperation(
                f"multigrid was asked for {own.systems} matrices whose values are not known before the program runs, "
                "on a grid that is cut. Give Stencils, or preconditioner='jacobi'."
            )
        return couplings_by_products(A.without_offset, shape, cut)

    return built(A, entries, kind)


def cut_multigrid(
    couplings: Couplings,
    bk: Backend,
    cut: Cut,
    dtype: np.dtype,
    smoothing: Smoothing,
    hermitian: bool | None = None,
    direct: int | None = None,
    strengths: Sequence[float] | None = None,
) -> Preconditioner:
    """As `multigrid`, with arrays that are spread over the mesh as vectors are.

    Args:
        couplings: of the whole matrix, in NumPy where they are known, or in the library.
        bk: the library of vectors.
        cut: how vectors are spread.
        direct: points of the coarsest grid, at most; by default 256.
        strengths: see `plan_of`.

    Raises:
        ValueError: the parts do not divide a periodic axis; or matrices of a batch that is spread, too.

    Stores 31 local vectors in two dimensions and 39 in three, and the gathered grid, of at most 8^d points for each
    device. Costs, besides what `CutMultigrid` sends, the work of `multigrid` on the points of a device.
    """
    if couplings.systems is not None and cut.batch:
        raise ValueError(
            f"multigrid was asked for {couplings.systems} matrices that are spread over the mesh axes {cut.batch}, on "
            f"grids that are spread over {cut.all_names}; expected one of the two. Spread the systems over all axes."
        )
    plan = plan_of(couplings.grid, cut, couplings.periodic, strengths)
    setup = CutSetup(
        bk, cut, plan, couplings.grid, couplings.periodic, couplings.shifts, np.dtype(dtype), smoothing,
        direct or _DIRECT, bool(hermitian), couplings.systems is not None,
    )  # fmt: skip
    values = bk.constant(_spread(couplings, setup))
    levels = cut_levels if bk.in_program() else bk.compile_if_faster(cut_levels, ("setup",))
    inner = CutMultigrid.of(levels(values, setup=setup), setup)
    points = math.prod(plan.grids[-1])
    cycle = next(name for name, visits in VISITS.items() if visits == smoothing.visits)
    own: tuple[tuple[str, Any], ...] = ("direct", min(setup.direct, points)), ("degree", smoothing.degree)
    own = *own, ("cycle", cycle), *precision_as_setting(smoothing.precision)
    costs = numbers_stored(inner), inner.work, None
    return Preconditioner(inner, "multigrid", hermitian, *costs, own, _note(plan, cut, smoothing.precision))


def _spread(couplings: Couplings, setup: CutSetup) -> Array:
    """`(shifts, systems or 1, *padded grid)` over the mesh."""
    known, bk = couplings.bk, setup.bk
    rows = couplings.systems or 1
    each = [known.broadcast_to(couplings.values[s], (rows, *couplings.grid)) for s in couplings.shifts]
    added = [(0, n - m) for n, m in zip(setup.plan.grid, couplings.grid)]
    values = known.astype(known.stack(each), setup.dtype)
    values = known.pad(values, [(0, 0), (0, 0), *added]) if any(map(any, added)) else values
    return bk.spread_over(values, setup.cut, -2)


def _note(plan: CutPlan, cut: Cut, precision: str | None) -> str:
    """Where it is cut, and what is gathered."""
    parts = " x ".join(map(str, cut.parts))
    own = math.prod(cut.local(plan.grids[-1]))
    levels = f"{len(plan.factors)} level{'s' * (len(plan.factors) != 1)} cut into {parts} parts"
    why = "" if own <= plan.most else f", {own} points for each device as no more blocks have an even length"
    inside = "; single precision inside" if precision else ""
    return f"{levels}, the grid {plan.grids[-1]} gathered{why}; weakly coupled points are not looked for{inside}"
