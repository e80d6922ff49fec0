"""Structured multigrid on grids that are cut over a device mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend, Cut, CutAxis
from ....sparse import Composed, Matrix, Operator, Stencil, UnsupportedOperation
from ....sparse.operators.couplings import Couplings, Shift, Stacked, opposite
from ....sparse.operators.cut_grids import CutStencil, cut_stencil
from ....sparse.operators.halo import Axes, length_and_ring, names_of, own_part
from ..checks import check_integer
from ..operators import Preconditioner, Spread, precision_as_setting
from ..pipeline import Target, build_from_entries, entries_of, grid_of
from .coarsest import residue_of
from .couplings import MatrixOnGrid, couplings_of
from .cycle import numbers_stored, work_of
from .grid_levels import (
    LEAST,
    LEAST_RING,
    Coarsest,
    GridLevel,
    couplings_of_coarse,
    halved_axes,
    made_level,
    strengths_of,
)
from .interpolation import Interpolation, coarse_grid
from .multigrid import Smoothing, checked_couplings, checked_smoothing, cycle_of, signs_of, stored_levels

_DIRECT = 256  # points of the coarsest grid: more would cost a device as much as its part of the finest grid
_SIDE = 8  # points along each axis of the part of the gathered grid on a device, at most
_MOST_PADDING = 2  # times as many points


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
    """`multigrid` for vectors spread over a device mesh; None if their blocks are no boxes of the grid.

    The coarsest grid has at most 256 points by default.

    Stores 31 local vectors in two dimensions and 39 in three, and the gathered grid, of at most 8^d points for each
    device. Costs, besides what `CutMultigrid` sends, the work of `multigrid` on the points of a device.
    """
    choose = checked_smoothing(cycle, smoother, degree, precision)
    points = None if direct is None else check_integer("direct", direct, 1)
    entries = entries_of(A)
    shape = grid_of(entries, grid, find=True)
    cut = spread.cut.on(spread.shape, shape)
    if cut is None or not cut.all_names:
        return None

    def kind(matrix: Matrix, target: Target) -> Preconditioner:
        known, systems, bk = matrix.bk.on_host, matrix.systems, target.bk
        if known or isinstance(matrix, Stencil):
            couplings = couplings_of(matrix, shape)
        elif systems is None:
            couplings = couplings_by_products(A.without_offset, shape, cut)
        else:
            raise UnsupportedOperation(
                f"multigrid was asked for {systems} matrices whose values are not known before the program runs, "
                "on a grid that is cut. Give Stencils, or preconditioner='jacobi'."
            )
        hermitian = checked_couplings(couplings) if known else None
        strengths = strengths_of(couplings) if known and directional and systems is None else None
        if systems is not None and cut.batch:
            raise ValueError(
                f"multigrid was asked for {systems} matrices that are spread over the mesh axes {cut.batch}, on grids "
                f"that are spread over {cut.all_names}; expected one of the two. Spread the systems over all axes."
            )
        plan = plan_of(shape, cut, couplings.periodic, strengths)
        setup = CutSetup(
            bk, cut, plan, shape, couplings.periodic, couplings.shifts, np.dtype(matrix.dtype), choose(hermitian),
            points or _DIRECT, bool(hermitian), systems is not None,
        )  # fmt: skip
        values = bk.constant(_spread(couplings, setup))
        levels = cut_levels if bk.in_program() else bk.compile_if_faster(cut_levels, ("setup",))
        scale, sign, arrays, coarse = levels(values, setup=setup)
        inner = CutMultigrid(scale, sign, arrays, coarse, setup)
        largest = ("direct", min(setup.direct, math.prod(plan.grids[-1])))
        settings = largest, ("degree", setup.smoothing.degree), ("cycle", cycle), *precision_as_setting(precision)
        costs = numbers_stored(inner), inner.work, None
        return Preconditioner(inner, "multigrid", hermitian, *costs, settings, _note(plan, cut, precision))

    return build_from_entries(A, entries, kind)


def _spread(couplings: Couplings, setup: CutSetup) -> Array:
    """`(shifts, systems or 1, *padded grid)` over the mesh; couplings are NumPy's if they are known."""
    bk, shape = couplings.bk, (couplings.systems or 1, *couplings.grid)
    values = bk.astype(bk.stack([bk.broadcast_to(couplings.values[s], shape) for s in couplings.shifts]), setup.dtype)
    values = bk.pad(values, [(0, 0), (0, 0), *setup.padding]) if setup.padding else values
    return setup.bk.spread_over(values, setup.cut, -2)


def _note(plan: CutPlan, cut: Cut, precision: str | None) -> str:
    parts = " x ".join(map(str, cut.parts))
    points = math.prod(cut.local(plan.grids[-1]))
    levels = f"{len(plan.factors)} level{'s' * (len(plan.factors) != 1)} cut into {parts} parts"
    why = "" if points <= plan.most else f", {points} points for each device as no more blocks have an even length"
    inside = "; single precision inside" if precision else ""
    return f"{levels}, the grid {plan.grids[-1]} gathered{why}; weakly coupled points are not looked for{inside}"


def couplings_by_products(A: Operator, grid: tuple[int, ...], cut: Cut) -> Couplings:
    """Stencil coefficients of A on a cut grid.

    Raises:
        UnsupportedOperation: A is no stencil of neighbours, or cannot be traced.

    Cost: that of `cut_stencil`.
    """
    bk, alone = A.bk, Cut(cut.mesh, cut.names)
    zeros = bk.spread_over(bk.zeros((1, *grid), A.dtype, getattr(A, "like", None)), alone, 1)
    stencil = cut_stencil(A, alone, bk.on_grid(zeros, grid, alone))
    if not isinstance(stencil, CutStencil):
        raise UnsupportedOperation(
            f"multigrid was asked for a function of arrays {grid} that {stencil}; expected couplings of neighbours. "
            "Give a matrix, or preconditioner='jacobi'."
        )
    far = next((shift for shift in stencil.shifts if max(map(abs, shift)) > 1), None)
    if far is not None:
        raise UnsupportedOperation(
            f"multigrid was asked for a function that couples points of the grid {grid} at a distance of {far}; "
            "expected neighbours, across corners at most. Give preconditioner='jacobi'."
        )
    values = {s: _on_grid(stencil, s, bk.constant(a)) for s, a in zip(stencil.shifts, stencil.values, strict=True)}
    for shift in [(0,) * len(grid), *map(opposite, stencil.shifts)]:
        values.setdefault(shift, zeros)
    return Couplings(bk, grid, stencil.periodic, values, None)


def _on_grid(A: CutStencil, shift: Shift, value: Array) -> Array:
    """`(1, *grid)`: the value at all points that have this neighbour."""
    bk, axes = A.bk, len(A.grid)
    if len(value.shape):
        return value[None]
    array = bk.reshape(value, (1,) * (1 + axes))
    for axis, (n, step, ring) in enumerate(zip(A.grid, shift, A.periodic, strict=True)):
        there = np.arange(n) + step
        inside = ring | ((there >= 0) & (there < n))
        along = bk.asarray(
            inside.reshape([-1 if k == axis else 1 for k in range(-1, axes)]).astype(A.dtype), like=value
        )
        array = array * bk.materialize(along)  # Otherwise the compiler would build one constant over all axes.
    return bk.spread_over(array, A.spread, -1)


class CutPlan(NamedTuple):
    """The levels on which arrays are cut.

    Attributes:
        grid: the finest one, padded at the end of open axes.
        factors: coarsening factors of each of these grids; the grid below the last one is gathered.
        most: points of the gathered grid that a device should hold, at most.
    """

    grid: tuple[int, ...]
    factors: tuple[Shift, ...]
    most: int

    @property
    def grids(self) -> list[tuple[int, ...]]:
        """The cut grids, and the gathered one."""
        grids = [self.grid]
        for factors in self.factors:
            grids.append(coarse_grid(grids[-1], factors))
        return grids


def plan_of(
    grid: tuple[int, ...], cut: Cut, periodic: tuple[bool, ...], strengths: Sequence[float] | None = None
) -> CutPlan:
    """Coarsen until a device has at most 8^d points; then it solves on the whole gathered grid.

    Rings are not padded, so that their blocks are halved while their length is even. If padding would double the
    points, the grid is gathered earlier.

    Args:
        strengths: strength of the couplings along each axis, if known: axes with weak ones are not coarsened yet. A
            halved axis has a quarter of the strength, because differences are of second order.

    Raises:
        ValueError: the parts do not divide a ring.
    """
    for n, parts, ring in zip(grid, cut.parts, periodic):
        if ring and n % parts:
            raise ValueError(
                f"multigrid was asked for a periodic axis of {n} points in {parts} parts; expected a multiple. Choose "
                "another mesh or grid, or preconditioner='jacobi'."
            )
    most = _SIDE ** max(sum(n > 1 for n in grid), 1)
    best, lengths, factors = CutPlan(_padded(grid, cut, periodic, ()), (), most), grid, list[Shift]()
    strong = [1.0] * len(grid) if strengths is None else list(strengths)
    while math.prod(cut.local(best.grids[-1])) > most:
        step = halved_axes([n >= (LEAST_RING if ring else LEAST) for n, ring in zip(lengths, periodic)], strong)
        odd = [ring and n // parts % 2 == 1 for n, parts, ring in zip(lengths, cut.parts, periodic)]
        if max(step) == 1 or any(f > 1 and is_odd for f, is_odd in zip(step, odd)):
            break
        factors.append(step)
        padded = _padded(grid, cut, periodic, factors)
        if math.prod(padded) > _MOST_PADDING * math.prod(grid):
            break
        best = CutPlan(padded, tuple(factors), most)
        lengths = coarse_grid(lengths, step)
        strong = [s / f**2 for s, f in zip(strong, step)]
    return best


def _padded(grid: Shift, cut: Cut, periodic: Sequence[bool], factors: Sequence[Shift]) -> Shift:
    """The padded grid, whose blocks can be coarsened by these factors."""
    units = [parts * math.prod(f[axis] for f in factors) for axis, parts in enumerate(cut.parts)]
    return tuple(
        n if ring or parts == 1 else -(-n // unit) * unit
        for n, ring, parts, unit in zip(grid, periodic, cut.parts, units)
    )


class CutSetup(NamedTuple):
    """Static data of a cut cycle.

    Attributes:
        grid: the finest one, without padding.
        shifts: offsets of the couplings on the finest grid.
        dtype: dtype of A.
        direct: largest number of points of the coarsest grid.
        batch: is there one matrix for each system?
    """

    bk: Backend
    cut: Cut
    plan: CutPlan
    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    shifts: tuple[Shift, ...]
    dtype: np.dtype
    smoothing: Smoothing
    direct: int
    hermitian: bool
    batch: bool

    @property
    def within(self) -> np.dtype:
        """The dtype of all cut levels."""
        return self.smoothing.dtype_within(self.dtype)

    @property
    def axes(self) -> Axes:
        return self.cut.axes(self.periodic)

    @property
    def padding(self) -> list[tuple[int, int]]:
        """Points before and after each axis; empty where there are none."""
        widths = [(0, n - m) for n, m in zip(self.plan.grid, self.grid)]
        return widths if any(map(any, widths)) else []


def cut_levels(values: Array, setup: CutSetup) -> tuple[Array, Array, tuple[Array, ...], Operator]:
    """Set up all levels: the parts of `CutMultigrid`.

    Args:
        values: `(shifts, systems or 1, *padded grid)`, zero at padding.

    Cost: the products and transfers of 3^d probes on each level; one gather of the coefficients of the gathered grid.
    """
    bk, axes, dtype, within, depth = setup.bk, setup.axes, setup.dtype, setup.within, len(setup.plan.factors)

    def on_block(values: Array) -> tuple[Array, Array, tuple[Array, ...], Operator]:
        systems = int(values.shape[1]) if setup.batch else None
        shape = tuple(map(int, values.shape[2:]))
        A = Couplings(bk, shape, axes, Stacked(setup.shifts, bk.constant(values)), systems)
        A = A.symmetrised() if setup.hermitian else A
        sign = signs_of(A, with_size=within != dtype)
        A = A.map(lambda array: bk.astype(sign, bk.dtype(array)) * array)
        levels = []
        for factors in setup.plan.factors:
            level, A, _ = made_level(A, factors, setup.hermitian, residue_of(dtype))
            levels.append(level)
        levels = [level._replace(scale=bk.ordered_after(level.scale, A.diagonal)) for level in levels]
        scale = levels[0].scale if levels else bk.full_like(bk.real(A.diagonal), 1)
        array = bk.stack([A.values[s] for s in A.shifts])
        lead = tuple(map(int, array.shape[:2]))
        whole = gathered(bk, bk.reshape(array, (math.prod(lead), *A.grid)), axes)
        grid = tuple(map(int, whole.shape[1:]))
        coarse_values = Stacked(A.shifts, bk.materialize(bk.reshape(whole, (*lead, *grid))))
        coarse = cycle_of(
            Couplings(bk, grid, setup.periodic, coarse_values, systems), dtype, Coarsest(setup.direct),
            setup.smoothing, setup.hermitian, above=depth,
        ).inner  # fmt: skip
        stored: Any = stored_levels([*levels, GridLevel(A, None, None)], within, True)
        arrays = tuple(array for matrix, P in stored for array in (matrix.values, P.weights))
        return bk.astype(scale, dtype), bk.astype(sign, dtype), arrays, coarse

    parts: tuple[Array, Array, tuple[Array, ...], Operator] = bk.map_parts(
        on_block, setup.cut, [values], [-2], (-1, None, (-2,) * (2 * depth), None)
    )
    return parts


@dataclass(eq=False, repr=False)
class CutMultigrid(Composed):
    """A cycle on a grid that is cut over a device mesh.

    Attributes:
        scale: diagonal scaling of the cycle on both sides, `(systems or 1, *grid)`, spread over the mesh.
        sign: sign of the matrix of each system, `(systems or 1, 1, ...)`, divided by its size for single precision.
        levels: for each level the values of the matrix and the weights of the interpolation to it, spread likewise.
        coarse: the cycle on the gathered grid.
        setup: static data.

    Cost: for each level and side of a cut axis a message for each product, and one message up and one down for each
    axis; one all-gather of the residual on the gathered grid. Nothing else leaves a device.
    """

    parts = ("scale", "sign", "levels", "coarse")
    keeps_grids = True
    is_container = True

    scale: Array
    sign: Array
    levels: tuple[Array, ...]
    coarse: Operator
    setup: CutSetup

    def _settle(self) -> None:
        self.bk = self.setup.bk
        self.shape = (math.prod(self.setup.grid),) * 2
        self.dtype = np.dtype(self.bk.dtype(self.scale))
        self.systems = int(self.scale.shape[0]) if self.setup.batch else None

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.setup.grid

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.setup.grid

    def apply(self, x: Array) -> Array:
        if self.bk.in_program():
            return _applied(x, self)
        return self.bk.compile_if_faster(_applied, ())(x, self)

    def transpose(self) -> Operator:
        if self.setup.hermitian:
            return self.conj() if self.dtype.kind == "c" else self
        transposed = _transposed if self.bk.in_program() else self.bk.compile_if_faster(_transposed, ())
        return replace(self, levels=transposed(self.levels, self), coarse=self.coarse.transpose())

    def on_backend(self, bk: Any, like: Array | None) -> Operator | None:
        return self if bk is self.bk else None

    def for_host(self) -> Any:
        raise UnsupportedOperation(
            "Multigrid on a grid that is spread over devices has no form on the host; make it of the matrix there."
        )

    @property
    def work(self) -> int:
        """Multiplications of one application, in all systems."""
        sizes = [math.prod(map(int, array.shape)) for array in self.levels]
        products = 2 * self.setup.smoothing.degree + self.setup.smoothing.visits - 1
        work = work_of(self.coarse)
        for values, weights in reversed([*zip(sizes[::2], sizes[1::2])]):
            work = products * values + self.setup.smoothing.visits * (2 * weights + work)
        return work + 2 * math.prod(map(int, self.scale.shape))

    def on_block(self, levels: Sequence[Array]) -> list[tuple[MatrixOnGrid, Interpolation]]:
        """Matrix and interpolation of each level on a block, inside `map_parts`."""
        setup, bk = self.setup, self.bk
        axes, batch, plan = setup.axes, setup.batch, setup.plan
        shifts, operators = setup.shifts, []
        for values, weights, factors, whole in zip(levels[::2], levels[1::2], plan.factors, plan.grids):
            grid = setup.cut.local(whole)
            A = MatrixOnGrid(bk, values, shifts, grid, axes, batch)
            operators.append((A, Interpolation(bk, weights, grid, factors, axes, batch)))
            shifts = couplings_of_coarse(coarse_grid(whole, factors))
        return operators


def _applied(x: Any, M: CutMultigrid) -> Any:
    setup, bk = M.setup, M.bk
    rows = bk.cells(x, setup.grid)
    if setup.padding:
        rows = bk.pad(rows, [(0, 0), *setup.padding])

    def on_block(rows: Array, scale: Array, sign: Array, coarse: Operator, *levels: Array) -> Array:
        flat = bk.reshape(rows, (int(rows.shape[0]), -1))
        scale, sign = (bk.reshape(each, (int(each.shape[0]), -1)) for each in (scale, sign))
        inner = GatheredCycle(coarse, setup.cut.local(setup.plan.grids[-1]), setup.axes)
        ones = bk.full_like(bk.real(scale[:, 0]), 1)
        cycle = setup.smoothing.cycle(M.on_block(levels), inner, ones, setup.hermitian)
        return bk.reshape(scale * _in_range(cycle, sign * (scale * flat), setup), tuple(map(int, rows.shape)))

    arrays, leads = (rows, M.scale, M.sign, M.coarse, *M.levels), (1, -1, None, None, *(-2,) * len(M.levels))
    image = bk.map_parts(on_block, setup.cut, arrays, leads, 1)
    if setup.padding:
        image = image[(slice(None), *map(slice, setup.grid))]
    return bk.as_rows(image, x)


def _in_range(cycle: Operator, x: Array, setup: CutSetup) -> Array:
    """Apply the cycle to x; an x of a wider dtype is scaled to the size of one first."""
    bk, dtype = setup.bk, np.dtype(setup.bk.dtype(x))
    if cycle.dtype == dtype:
        return cycle.apply(x)
    size = bk.max_over(bk.constant(bk.binary_scale(x)), names_of(setup.axes))
    return size * bk.astype(cycle.apply(bk.astype(x / size, cycle.dtype)), dtype)


def _transposed(levels: tuple[Array, ...], M: CutMultigrid) -> tuple[Array, ...]:
    """The same levels with transposed matrices."""
    if not levels:
        return ()
    leads = (-2,) * len(levels)

    def on_block(*levels: Array) -> tuple[Array, ...]:
        return tuple(array for A, P in M.on_block(levels) for array in (A.transpose().values, P.weights))

    transposed: tuple[Array, ...] = M.bk.map_parts(on_block, M.setup.cut, levels, leads, leads)
    return transposed


@dataclass(eq=False, repr=False)
class GatheredCycle(Composed):
    """`inner`, on the whole grid, as an operator on blocks inside `map_parts`.

    Attributes:
        grid: grid of the block.
        axes: how the grid is cut.

    Cost: one all-gather of the vector.
    """

    inner: Operator
    grid: tuple[int, ...]
    axes: Axes

    def _settle(self) -> None:
        super()._settle()
        self.shape = (math.prod(self.grid),) * 2

    def transpose(self) -> GatheredCycle:
        return replace(self, inner=self.inner.transpose())

    def apply(self, x: Array) -> Array:
        bk, rows = self.bk, int(x.shape[0])
        whole = gathered(bk, bk.reshape(x, (rows, *self.grid)), self.axes)
        image = self.inner.apply(bk.materialize(bk.reshape(whole, (rows, -1))))
        image = bk.reshape(image, tuple(map(int, whole.shape)))
        for axis, (n, cut) in enumerate(zip(self.grid, self.axes), 1):
            image = own_part(bk, image, axis, n, cut)
        return bk.reshape(image, (rows, self.shape[0]))


def gathered(bk: Backend, u: Array, axes: Axes) -> Array:
    """`(rows, *whole grid)` of blocks `(rows, *grid)`, by one all-gather over all mesh axes."""
    rows, *grid = map(int, u.shape)
    parts = [axis.parts if isinstance(axis, CutAxis) else 1 for axis in axes]
    blocks = bk.reshape(bk.all_gathered(u[None], names_of(axes), 0), (*parts, rows, *grid))
    order = [len(parts), *(k for axis in range(len(parts)) for k in (axis, len(parts) + 1 + axis))]
    whole = (length_and_ring(n, axis)[0] for n, axis in zip(grid, axes))
    return bk.reshape(bk.permute_dims(blocks, order), (rows, *whole))
