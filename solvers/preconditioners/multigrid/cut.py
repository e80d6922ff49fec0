"""Structured multigrid on grids that are cut over a device mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend, Cut, CutAxis
from ....sparse import Composed, Matrix, Operator, Stencil, UnsupportedOperation
from ....sparse.operators.couplings import Couplings, Shift, Stacked, neighbours, opposite, shifted_array
from ....sparse.operators.cut_stencil import CutStencil
from ....sparse.operators.cut_values import cut_stencil
from ....sparse.operators.halo import Axes, length_and_ring, names_of, own_part
from ..checks import check_integer
from ..operators import Preconditioner, Spread, inner_dtype, precision_as_setting
from ..pipeline import Target, built, entries_of, grid_of
from .couplings import MatrixOnGrid, couplings_of
from .cycle import VISITS, LevelParts, cycle_over, numbers_stored, work_of
from .grid_levels import LEAST, LEAST_RING, WEAK, Coarsest, GridLevel, made, strengths_of
from .multigrid import Smoothing, checked_couplings, checked_smoothing, cycle_of, residue_of, signs_of, sizes_of
from .transfer import Interpolation

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
    """`multigrid` for vectors spread over a device mesh; None if their blocks are no boxes of the grid."""
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
    """`multigrid` with arrays that are spread over the mesh like vectors.

    Args:
        couplings: those of the whole matrix, in NumPy if they are known, else in the library.
        bk: the library of vectors.
        cut: how vectors are spread.
        direct: largest number of points of the coarsest grid; by default 256.
        strengths: see `plan_of`.

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
    parts = " x ".join(map(str, cut.parts))
    own = math.prod(cut.local(plan.grids[-1]))
    levels = f"{len(plan.factors)} level{'s' * (len(plan.factors) != 1)} cut into {parts} parts"
    why = "" if own <= plan.most else f", {own} points for each device as no more blocks have an even length"
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
    found = cut_stencil(A, alone, bk.on_grid(zeros, grid, alone))
    if not isinstance(found, CutStencil):
        raise UnsupportedOperation(
            f"multigrid was asked for a function of arrays {grid} that {found}; expected couplings of neighbours. Give "
            "a matrix, or preconditioner='jacobi'."
        )
    far = next((shift for shift in found.shifts if max(map(abs, shift)) > 1), None)
    if far is not None:
        raise UnsupportedOperation(
            f"multigrid was asked for a function that couples points of the grid {grid} at a distance of {far}; "
            "expected neighbours, across corners at most. Give preconditioner='jacobi'."
        )
    values = {s: _on_grid(found, s, bk.constant(value)) for s, value in zip(found.shifts, found.values, strict=True)}
    for shift in [(0,) * len(grid), *map(opposite, found.shifts)]:
        values.setdefault(shift, zeros)
    return Couplings(bk, grid, found.periodic, values, None)


def _on_grid(A: CutStencil, shift: Shift, value: Array) -> Array:
    """`(1, *grid)`: the value at all points that have this neighbour."""
    bk, axes = A.bk, len(A.grid)
    if len(value.shape):
        return value[None]
    found = bk.reshape(value, (1,) * (1 + axes))
    for axis, (n, step, ring) in enumerate(zip(A.grid, shift, A.periodic, strict=True)):
        there = np.arange(n) + step
        inside = ring | ((there >= 0) & (there < n))
        along = bk.asarray(
            inside.reshape([-1 if k == axis else 1 for k in range(-1, axes)]).astype(A.dtype), like=value
        )
        found = found * bk.materialize(along)  # Otherwise the compiler would build one constant over all axes.
    return bk.spread_over(found, A.spread, -1)


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
        found = [self.grid]
        for factors in self.factors:
            found.append(tuple(-(-n // f) for n, f in zip(found[-1], factors)))
        return found


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
        step = _step(lengths, cut, periodic, strong)
        if step is None:
            break
        factors.append(step)
        padded = _padded(grid, cut, periodic, factors)
        if math.prod(padded) > _MOST_PADDING * math.prod(grid):
            break
        best = CutPlan(padded, tuple(factors), most)
        lengths = tuple(-(-n // f) for n, f in zip(lengths, step))
        strong = [s / f**2 for s, f in zip(strong, step)]
    return best


def _step(lengths: Shift, cut: Cut, periodic: Sequence[bool], strengths: Sequence[float]) -> Shift | None:
    """Coarsening factors of the next level, or None if there is none."""
    long = [n >= (LEAST_RING if ring else LEAST) for n, ring in zip(lengths, periodic)]
    largest = max((s for s, can in zip(strengths, long) if can), default=0)
    halved = [can and s >= WEAK * largest for s, can in zip(strengths, long)]
    even = [not ring or n // parts % 2 == 0 for n, parts, ring in zip(lengths, cut.parts, periodic)]
    if not any(halved) or not all(fits for fits, needed in zip(even, halved) if needed):
        return None
    return tuple(2 if half else 1 for half in halved)


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
        grid: the given one, without padding.
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
        return inner_dtype(self.smoothing.precision, self.dtype)


class CutArrays(NamedTuple):
    """Arrays of a cycle on a cut grid.

    Attributes:
        scale: diagonal scaling of the cycle on both sides, `(systems or 1, *grid)`.
        sign: sign of the matrix of each system, `(systems or 1, 1, ...)`, divided by its size for single precision.
        levels: for each level the values of the matrix, and the weights of the interpolation to it.
        coarse: the cycle on the gathered grid.
    """

    scale: Array
    sign: Array
    levels: tuple[Array, ...]
    coarse: Operator


def cut_levels(values: Array, setup: CutSetup) -> CutArrays:
    """Set up all levels.

    Args:
        values: `(shifts, systems or 1, *padded grid)`, zero at padding.

    Cost: the products and transfers of 3^d probes on each level; one gather of the coefficients of the gathered grid.
    """
    leads = CutArrays(-1, None, (-2,) * (2 * len(setup.plan.factors)), None)  # type: ignore[arg-type]
    found: CutArrays = setup.bk.map_parts(lambda own: _on_block(own, setup), setup.cut, [values], [-2], leads)
    return found


def _on_block(values: Array, this: CutSetup) -> CutArrays:
    bk, systems = this.bk, int(values.shape[1]) if this.batch else None
    shape, axes = tuple(map(int, values.shape[2:])), this.cut.axes(this.periodic)
    A = Couplings(bk, shape, axes, Stacked(this.shifts, bk.constant(values)), systems)
    A = A.symmetrised() if this.hermitian else A
    sign = signs_of(A)
    if this.within != this.dtype:  # Interpolation has numbers of the size of sqrt(A).
        sign = sign / sizes_of(A)
    A = A.map(lambda array: bk.astype(sign, bk.dtype(array)) * array)
    levels = []
    for factors in this.plan.factors:
        found = made(A, factors, this.hermitian, residue_of(this.dtype))
        P = Interpolation(bk, found.weights, A.grid, factors, axes, this.batch)
        levels.append(GridLevel(found.own, found.scale, P))
        A = found.coarse
    levels = [level._replace(scale=bk.ordered_after(level.scale, A.diagonal)) for level in levels]
    scale = levels[0].scale if levels else bk.full_like(bk.real(A.diagonal), 1)
    coarse = _below(A, this)
    arrays = [array for k in range(len(levels)) for array in _arrays(levels, k, this.within)]
    return CutArrays(bk.astype(scale, this.dtype), bk.astype(sign, this.dtype), tuple(arrays), coarse)


def _arrays(levels: list[GridLevel], k: int, dtype: np.dtype) -> tuple[Array, Array]:
    A, _, P = levels[k]
    below = levels[k + 1].scale if k + 1 < len(levels) else None
    P = P if below is None else P.scaled(below)  # type: ignore[union-attr]
    return MatrixOnGrid.of(A.astype(dtype)).values, P.astype(dtype).weights  # type: ignore[union-attr]


def _below(A: Couplings, this: CutSetup) -> Operator:
    """The cycle on the gathered grid."""
    bk, axes = this.bk, A.periodic
    shifts, count = A.shifts, len(A.shifts)
    array = bk.stack([A.values[s] for s in shifts])
    rows = int(array.shape[1])
    flat = bk.reshape(array, (count * rows, *A.grid))
    whole = gathered(bk, flat, axes)
    grid = tuple(map(int, whole.shape[1:]))
    values = Stacked(shifts, bk.materialize(bk.reshape(whole, (count, rows, *grid))))
    own = Couplings(bk, grid, this.periodic, values, A.systems)
    size = Coarsest(this.direct, this.direct)
    return cycle_of(own, this.dtype, size, this.smoothing, this.hermitian, above=len(this.plan.factors)).inner


@dataclass(eq=False, repr=False)
class CutMultigrid(Composed):
    """A cycle on a grid that is cut over a device mesh.

    Attributes:
        scale, sign, levels, coarse: see `CutArrays`; spread over the mesh except for the gathered grid.
        setup: its static data.

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

    @classmethod
    def of(cls, arrays: CutArrays, setup: CutSetup) -> CutMultigrid:
        return cls(*arrays, setup)

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
        turned = _transposed
        if not self.bk.in_program():
            turned = self.bk.compile_if_faster(_transposed, ())
        return replace(self, levels=turned(self.levels, self), coarse=self.coarse.transpose())

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
        found = work_of(self.coarse)
        for values, weights in reversed([*zip(sizes[::2], sizes[1::2])]):
            found = products * values + self.setup.smoothing.visits * (2 * weights + found)
        return found + 2 * math.prod(map(int, self.scale.shape))

    def matrices(self) -> list[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]]:
        """Offsets of each level's matrix, and the grid of each block."""
        this = self.setup
        grids = map(this.cut.local, this.plan.grids)
        every = neighbours(len(this.grid))
        return [(tuple(every if k else this.shifts), grid) for k, grid in enumerate(grids)]


def _applied(x: Any, M: CutMultigrid) -> Any:
    this, bk = M.setup, M.bk
    rows = bk.cells(x, this.grid)
    added = [n - m for n, m in zip(this.plan.grid, this.grid)]
    if any(added):
        rows = bk.pad(rows, [(0, 0), *((0, n) for n in added)])
    count = len(M.levels)

    def on_block(own: Array, scale: Array, sign: Array, coarse: Operator, *levels: Array) -> Array:
        flat = bk.reshape(own, (int(own.shape[0]), -1))
        scale, sign = (bk.reshape(each, (int(each.shape[0]), -1)) for each in (scale, sign))
        found = scale * _in_range(_cycle(M, levels, coarse), sign * (scale * flat), this)
        return bk.reshape(found, tuple(map(int, own.shape)))

    arrays, leads = (rows, M.scale, M.sign, M.coarse, *M.levels), (1, -1, None, None, *(-2,) * count)
    found = bk.map_parts(on_block, this.cut, arrays, leads, 1)
    if any(added):
        found = found[(slice(None), *map(slice, this.grid))]
    return bk.as_rows(found, x)


def _cycle(M: CutMultigrid, levels: tuple[Array, ...], coarse: Operator) -> Operator:
    """The cycle on a block."""
    this, bk, axes = M.setup, M.bk, M.setup.cut.axes(M.setup.periodic)
    shapes, parts = M.matrices(), []
    for k in range(len(this.plan.factors)):
        (shifts, grid), values, weights = shapes[k], levels[2 * k], levels[2 * k + 1]
        A = MatrixOnGrid(bk, values, shifts, grid, axes, this.batch)
        P = Interpolation(bk, weights, grid, this.plan.factors[k], axes, this.batch)
        bound = bk.full_like(bk.real(values[0][:, *(0,) * len(grid)]), 1)
        parts.append(LevelParts(this.smoothing.smoother_of(A, bound, this.hermitian), P, P.T))
    return cycle_over(parts, GatheredCycle(coarse, shapes[-1][1], axes), this.smoothing.visits)


def _in_range(cycle: Operator, x: Array, this: CutSetup) -> Array:
    """Apply the cycle to x; an x of a wider dtype is scaled to the size of one first."""
    bk, dtype = this.bk, np.dtype(this.bk.dtype(x))
    if cycle.dtype == dtype:
        return cycle.apply(x)
    size = bk.max_over(bk.constant(bk.binary_scale(x)), names_of(this.cut.axes(this.periodic)))
    return size * bk.astype(cycle.apply(bk.astype(x / size, cycle.dtype)), dtype)


def _transposed(levels: tuple[Array, ...], M: CutMultigrid) -> tuple[Array, ...]:
    """The same levels with transposed matrices."""
    bk, axes, shapes = M.bk, M.setup.cut.axes(M.setup.periodic), M.matrices()

    def on_block(*own: Array) -> tuple[Array, ...]:
        return tuple(_mirrored(values, shapes[k][0]) for k, values in enumerate(own))

    def _mirrored(values: Array, shifts: tuple[tuple[int, ...], ...]) -> Array:
        back = [shifts.index(opposite(s)) for s in shifts]
        return bk.stack([shifted_array(bk, values[k], s, axes) for k, s in zip(back, shifts)])

    matrices = levels[::2]
    if not matrices:
        return ()
    turned = bk.map_parts(on_block, M.setup.cut, matrices, (-2,) * len(matrices), (-2,) * len(matrices))
    return tuple(array for pair in zip(turned, levels[1::2]) for array in pair)


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
        found = self.inner.apply(bk.materialize(bk.reshape(whole, (rows, -1))))
        found = bk.reshape(found, tuple(map(int, whole.shape)))
        for axis, (n, cut) in enumerate(zip(self.grid, self.axes), 1):
            found = own_part(bk, found, axis, n, cut)
        return bk.reshape(found, (rows, self.shape[0]))


def gathered(bk: Backend, u: Array, axes: Axes) -> Array:
    """`(rows, *whole grid)` of blocks `(rows, *grid)`, by one all-gather over all mesh axes."""
    rows, *grid = map(int, u.shape)
    parts = [axis.parts if isinstance(axis, CutAxis) else 1 for axis in axes]
    blocks = bk.reshape(bk.all_gathered(u[None], names_of(axes), 0), (*parts, rows, *grid))
    order = [len(parts), *(k for axis in range(len(parts)) for k in (axis, len(parts) + 1 + axis))]
    whole = (length_and_ring(n, axis)[0] for n, axis in zip(grid, axes))
    return bk.reshape(bk.permute_dims(blocks, order), (rows, *whole))
