"""The multigrid preconditioner of a matrix on a cut grid."""

from __future__ import annotations

import math

import numpy as np

from .....backends import Array, Backend, Cut
from .....sparse.operators.couplings import Couplings
from ...base import Preconditioner
from ...cycle.cost import numbers_stored
from ...cycle.recast import precision_as_setting
from ..smoothing import Smoothing
from .cycle import CutMultigrid
from .levels import CutSetup, cut_levels
from .plan import CutPlan, plan_of

_DIRECT = 256  # points of the coarsest grid: more would be as much work for a device as its part of the finest


def cut_multigrid(
    couplings: Couplings,
    bk: Backend,
    cut: Cut,
    dtype: np.dtype,
    smoothing: Smoothing,
    hermitian: bool | None = None,
    direct: int | None = None,
    settings: tuple[tuple[str, object], ...] = (),
) -> Preconditioner:
    """As `multigrid`, with arrays that are spread over the mesh as vectors are.

    Args:
        couplings: of the whole matrix, in NumPy where they are known, or in the library.
        bk: the library of vectors.
        cut: how vectors are spread.
        direct: points of the coarsest grid, at most; by default 256.

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
    plan = plan_of(couplings.grid, cut, couplings.periodic)
    setup = CutSetup(
        bk, cut, plan, couplings.grid, couplings.periodic, couplings.shifts, np.dtype(dtype), smoothing,
        direct or _DIRECT, bool(hermitian), couplings.systems is not None,
    )  # fmt: skip
    values = _spread(couplings, setup)
    levels = cut_levels if bk.compiled(values) else bk.compile_if_faster(cut_levels, ("setup",))
    inner = CutMultigrid.of(levels(values, setup=setup), setup)
    points = math.prod(plan.grids[-1])
    own = ("direct", min(setup.direct, points)), *settings, *precision_as_setting(smoothing.precision)
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
