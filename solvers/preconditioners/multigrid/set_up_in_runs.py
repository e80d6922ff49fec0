"""Multigrid for values that are known when a program runs: set up then, by NumPy where the program may call it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Operator
from ....sparse.fingerprint import fingerprint
from ....sparse.operators.couplings import Couplings, Shift, Stacked
from ...factors.planes import BlockTridiagonalInverse, block_layout
from ..operators import DiagonallyScaled, inner_dtype, recast
from .coarsening import Coarsest, check_coarsest, coarsening_factors
from .cycle import Level, PolynomialSmoother
from .galerkin import couplings_of_coarse
from .grid_cycle import GridCycle, cycle_of
from .on_grid import MatrixOnGrid
from .smoothing import Smoothing
from .transfer import Interpolation, interpolation_places
from .weights import coarse_grid


def cycle_in_runs(
    A: Couplings, dtype: np.dtype, points: int, smoothing: Smoothing, wanted: Array | None = None
) -> GridCycle:
    """Cycle for coefficients that are known when a program runs.

    NumPy sets it up without a second of compilation for each level; but not in programs of other devices and
    libraries, those with `on_failure="nan"`, and exported ones.

    Args:
        points: of the coarsest grid at most.
        wanted: `(1,)`; where it is not positive, the arrays of the cycle are unspecified.

    Raises:
        ValueError: the coarsest grid is too large.
    """
    bk = A.bk
    smoothing = smoothing._replace(as_grids=True)  # the host's arrays are those of the program
    setup = _SetUp(replace(A, values={}), tuple(A.values), dtype, points, smoothing)
    blank = setup.blank()
    returns = [(array.shape, array.dtype) for array in blank.bk.flatten(blank)[0]]
    values = bk.constant(bk.stack([*A.values.values()]))

    def arrays() -> list[Array]:
        if not bk.sets_up_by_host():
            return setup.in_program(bk, values)
        in_program = partial(setup.in_program, bk)
        return bk.by_host(setup.on_host, in_program, returns, values, name=setup.name)

    found = arrays() if wanted is None else bk.where_needed(wanted[0] > 0, arrays)
    return GridCycle(_filled(blank, bk, iter(found)), _points_of_coarsest(blank), None)


@dataclass(frozen=True, eq=False)
class _SetUp:
    """Set-up of a cycle from coefficients in the order of `shifts`; it outlives the trace and keeps no tracers.

    Attributes:
        grid: couplings without values.
    """

    grid: Couplings
    shifts: tuple[Shift, ...]
    dtype: np.dtype
    points: int
    smoothing: Smoothing

    def name(self) -> str | None:
        """Name of the host computation, the same in every process."""
        return fingerprint("multigrid", self.grid, self.shifts, self.dtype, self.points, self.smoothing)

    def in_program(self, bk: Backend, values: Array) -> list[Array]:
        cycle = self._cycle(replace(self.grid, bk=bk, values=Stacked(self.shifts, values)), False)
        return bk.flatten(cycle.as_container())[0]

    def on_host(self, values: np.ndarray) -> list[Array]:
        host = get_backend("numpy")
        with host.errstate():
            A = replace(self.grid, bk=host, values=Stacked(self.shifts, values))
            return host.flatten(self._cycle(A, A.is_exactly_hermitian))[0]

    def _cycle(self, A: Couplings, hermitian: bool) -> Operator:
        return cycle_of(A, self.dtype, Coarsest(self.points, self.points), self.smoothing, hermitian).inner

    def blank(self) -> Operator:
        """The cycle with zeros for all arrays, which take no memory."""
        within = inner_dtype(self.smoothing.precision, self.dtype)
        inner = recast(self._blank_from(self.grid.grid, self.shifts, within), self.dtype)
        scale = _zeros(self.dtype, self.grid.systems or 1, inner.shape[0])
        return DiagonallyScaled(inner, scale, scale)

    def _blank_from(self, grid: tuple[int, ...], shifts: tuple[Shift, ...], within: np.dtype) -> Operator:
        """The cycle from a level down."""
        host, rows, batch = get_backend("numpy"), self.grid.systems or 1, self.grid.systems is not None
        A = replace(self.grid, grid=grid, values=dict.fromkeys(shifts))
        factors = coarsening_factors(A, False) if math.prod(grid) > self.points else None
        if factors is None:
            check_coarsest(grid, A.periodic)
            blocks = block_layout(grid, A.periodic, A.shifts)
            pivots = _zeros(self.dtype, rows, blocks.count, blocks.size, blocks.size)
            lower, upper = (_zeros(self.dtype, rows, *each.shape) for each in (blocks.lower, blocks.upper))
            return BlockTridiagonalInverse(host, pivots, lower, upper, grid, A.periodic, A.shifts, batch)
        coarse = coarse_grid(grid, factors)
        inner = recast(self._blank_from(coarse, couplings_of_coarse(coarse), within), within)
        weights = _zeros(within, len(interpolation_places(factors)), rows, *coarse)
        P = Interpolation(host, weights, grid, factors, A.periodic, batch)
        own = MatrixOnGrid(host, _zeros(within, len(shifts), rows, *grid), A.shifts, grid, A.periodic, batch)
        alphas, weights = (_zeros(within, self.smoothing.degree, rows, *last) for last in ((), (1,)))
        return Level(PolynomialSmoother(own, alphas, weights), P, P.T, inner, visits=self.smoothing.visits)


def _zeros(dtype: np.dtype, *shape: int) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _points_of_coarsest(M: Any) -> int:
    while not isinstance(M, BlockTridiagonalInverse):
        M = M.coarse if isinstance(M, Level) else M.inner
    return int(M.shape[0])


def _filled(M: Any, bk: Backend, arrays: Iterator[Array]) -> Any:
    """M of another library, with other arrays."""
    if not isinstance(M, Composed):
        return None if M is None else next(arrays)
    return M._moved({name: _filled(getattr(M, name), bk, arrays) for name in M.parts}, bk)
