"""Runtime choice of multigrid: where values are known only when a compiled program runs, they decide then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Matrix, Operator
from ....sparse.analysis.analysis import on_its_grid
from ....sparse.fingerprint import fingerprint
from ....sparse.operators.couplings import Couplings, Shift, Stacked, sum_of_terms
from ...diagonal import DOMINANT
from ..base import Preconditioner
from ..cycle.either import Either
from ..jacobi import jacobi
from ..pipeline import grid_of, of_operator
from .coarsening import Coarsest
from .from_matrix import couples_neighbours, couplings_of
from .grid_cycle import cycle_of, with_cost
from .smoothing import Smoothing

_DIRECT = 64**2  # points of the coarsest grid: its elimination takes no longer than the finer grids
_LEAST = {2: 100_000, 3: 500_000}  # unknowns by number of axes from which some solves take longer than compiling this
_LEAST_DEFINITE = 1000
_LOPSIDED = 0.3  # admissible asymmetry of the couplings: convection beside diffusion
_POSITIVE = 0.25  # admissible share of positive off-diagonals, as in finite elements
_INDEFINITE = 0.1  # of the diagonal may be missing in the sums of rows of the coarsest grid: waves of ten points there


def pays_unseen(A: Matrix, definite: bool = False) -> bool:
    """Is A, of traced values, on a grid so large that multigrid is worth its compile time?

    Args:
        definite: is it symmetric positive definite, as far as is known?
    """
    A = on_its_grid(A)
    bk, grid = A.bk, A.in_shape
    axes = sum(n > 1 for n in grid) if all(isinstance(n, int) for n in grid) else 0
    large = axes in _LEAST and math.prod(grid) >= (_LEAST_DEFINITE if definite else _LEAST[axes])
    return large and A.systems is None and bk.compiled() and not bk.spreads_arrays() and couples_neighbours(A)


@of_operator()
def multigrid_or_jacobi(own: Matrix, _: Any, *, precision: str | None = None) -> Preconditioner:
    """Multigrid, or in runs whose values do not suit it, `jacobi`.

    That is for a zero or dominant diagonal, dominant convection, indefinite (wave) operators and NaN. The decision
    costs a few passes over the values; levels are set up only where they are used, and by NumPy where the program may
    call the host, which halves the compile time.
    """
    bk, other = own.bk, jacobi(own)
    A = couplings_of(own, grid_of(own, None, find=True)).map(bk.constant)
    chosen = _suits(A)
    setup = _SetUp(replace(A, values={}), [*A.values], own.dtype, Smoothing(precision=precision, as_grids=True))
    values = bk.stack([*A.values.values()])
    arrays = bk.where_needed(
        chosen[0] > 0, lambda: bk.by_host(setup.on_host, setup.in_program, values, name=setup.name)
    )
    cycle, setup.make = setup.make(arrays), None  # type: ignore[misc]  # as it may hold what is traced
    found = with_cost(Either(cycle, other.inner, chosen), None, (("direct", _DIRECT),))
    return replace(found, note="jacobi where the values of a run do not suit it")


@dataclass(eq=False)
class _SetUp:
    """Set-up of a cycle from coefficients in the order of `shifts`; it outlives the trace and keeps no tracers.

    Attributes:
        grid: couplings without values.
        make: the cycle of such arrays, once they were found in the program, in which they are in its order.
    """

    grid: Couplings
    shifts: list[Shift]
    dtype: np.dtype
    smoothing: Smoothing
    make: Callable[[Sequence[Array]], Operator] | None = None
    structure: Any = None

    def name(self) -> str | None:
        """Name of the host computation, the same in every process."""
        return fingerprint("multigrid", self.grid, self.shifts, self.dtype, self.smoothing)

    def in_program(self, values: Array) -> list[Array]:
        cycle = self._cycle(self._couplings(self.grid.bk, values), False)
        self.structure = _structure(cycle)
        arrays, self.make = cycle.bk.flatten(cycle.as_container())
        return arrays

    def on_host(self, values: np.ndarray) -> list[Array]:
        host = get_backend("numpy")
        with host.errstate():
            A = self._couplings(host, values)
            cycle = self._cycle(A, A.is_exactly_hermitian)
        if _structure(cycle) != self.structure:
            raise ValueError("multigrid has other parts on the host than in the program: an error of krylix.")
        return host.flatten(cycle)[0]

    def _couplings(self, bk: Backend, values: Array) -> Couplings:
        return replace(self.grid, bk=bk, values=Stacked(self.shifts, values))

    def _cycle(self, A: Couplings, hermitian: bool) -> Operator:
        return cycle_of(A, self.dtype, Coarsest(_DIRECT, _DIRECT), self.smoothing, hermitian).inner


def _structure(M: Operator) -> Any:
    """Structure of a cycle without its arrays; cycles of equal structure have interchangeable arrays."""
    if not isinstance(M, Composed):
        return M.shape
    own = (f.name for f in fields(M) if f.name not in (*M.parts, "bk", "hermitian"))
    parts = (getattr(M, name) for name in M.parts)
    inner = [_structure(part) if isinstance(part, Operator) else tuple(map(int, part.shape)) for part in parts]
    return type(M), [getattr(M, name) for name in own], inner


def _suits(A: Couplings) -> Array:
    """1 where multigrid suits the values, else 0, `(1,)`."""
    bk, diagonal = A.bk, A.diagonal
    size = bk.abs(diagonal)
    there = size > 0
    one = bk.full_like(size, 1)
    safe = bk.where(there, size, one)
    scale, unit = (
        bk.astype(1 / bk.sqrt(safe), bk.dtype(diagonal)),
        bk.conj(diagonal) / bk.astype(safe, bk.dtype(diagonal)),
    )
    rest = A.sum_of_sizes() - size
    others = {s: scale * a * A.moved(scale, s) for s, a in A.values.items() if s != A.here}
    scaled = replace(A, values={**others, A.here: bk.zeros_like(diagonal)})
    everything = _sum(bk, [bk.abs(a) for a in others.values()])
    lopsided = _sum(bk, [bk.abs(a - bk.conj(scaled.mirrored(s))) for s, a in others.items()]) / 2
    along = [bk.real(unit * a) for a in others.values()]
    positive = _sum(bk, [bk.maximum(a, bk.zeros_like(a)) for a in along])
    excess = _sum(bk, [one, *along])
    suits = (lopsided <= _LOPSIDED * everything) & (positive <= _POSITIVE * everything)
    suits = suits & (excess >= -_INDEFINITE * _DIRECT)  # and no NaN
    whole = ~bk.any(~there & (rest > 0))
    easy = ~bk.any(size < DOMINANT * rest)
    return bk.astype(suits & whole & ~easy, np.dtype(np.float32))


def _sum(bk: Backend, terms: list[Array]) -> Array:
    """Sum of all elements, `(1,)`."""
    sizes = sum_of_terms(terms)
    return bk.sum(bk.reshape(sizes, (1, -1)), 1)
