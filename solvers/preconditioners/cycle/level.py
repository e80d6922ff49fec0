"""Multigrid cycle from a zero initial guess, as an operator composed of its levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ....backends import Array, Backend
from ....sparse import Composed, Operator, as_symmetric_dia, storable
from ..target import suited
from .smoother import add_in_place, corrected, negated, smoothed_from_zero

VISITS = {"V": 1, "W": 2}
"""How often a cycle goes to the next coarser level from each one."""


@storable("level of a cycle")
@dataclass(eq=False, repr=False)
class Level(Composed):
    """Smooth, correct by the coarser levels, smooth: an approximation of the inverse of A from here on down.

    The second smoothing is the adjoint of the first one, so that with R = Pᴴ the cycle is Hermitian where A is, and
    positive definite with it. The transpose is the same cycle with transposed parts.

    Attributes:
        A: the matrix of this level, with ones on its diagonal unless there are `weights`.
        P: prolongation, from the next coarser level.
        R: restriction, to it.
        coarse: approximate inverse of the next coarser matrix.
        steps: coefficients of the smoother, `(degree, 2, 1)` or one column per system.
        visits: number of visits to the coarser levels (1: V-cycle, 2: W-cycle).
        hermitian: is it known to be?

    Cost: 2 degree products with A, one with P and R each for every visit, and 1 more with A for all but the first.
    """

    parts: ClassVar[tuple[str, ...]] = ("A", "P", "R", "coarse", "steps")

    A: Operator
    P: Operator
    R: Operator
    coarse: Operator
    steps: Array
    visits: int = 1
    hermitian: bool = False

    def __post_init__(self) -> None:
        (n, m), steps = self.P.shape, tuple(map(int, self.steps.shape))
        found = (self.A.shape, self.R.shape, self.coarse.shape)
        if found != ((n, n), (m, n), (m, m)) or len(steps) != 3 or steps[1] != 2 or not steps[0]:
            raise ValueError(f"The parts of a level of multigrid do not fit each other: {found}, {(n, m)}, {steps}.")
        if self.visits not in VISITS.values():
            raise ValueError(
                f"A level of multigrid has visits={self.visits}; expected one of {tuple(VISITS.values())}."
            )
        super().__post_init__()

    @property
    def weights(self) -> Array | None:
        """`(degree, 1 or systems, n)`: minus the second coefficients of `steps` over a diagonal; None: over ones."""
        return None

    @property
    def products_with_A(self) -> int:
        """Number of products with A in a cycle."""
        return 2 * int(self.steps.shape[0]) + self.visits - 1

    def apply(self, x: Array) -> Array:
        return self.of_negative(self.bk.materialize(negated(self.bk, x)))

    def of_negative(self, e: Array) -> Array:
        """The cycle applied to -e, which may be overwritten."""
        A, steps, weights = self._in_products, self.array("steps"), self.weights
        found, e = smoothed_from_zero(self.bk, A, steps, e, weights)
        change = self._from_below(e)
        for _ in range(1, self.visits):
            found, e = add_in_place(self.bk, found, change), self.bk.materialize(A.add_to(e, change))
            change = self._from_below(e)
        return corrected(self.bk, A, steps, found, e, change, weights)

    @cached_property
    def _in_products(self) -> Operator:
        return as_symmetric_dia(self.A) if self.hermitian else self.A

    def _from_below(self, e: Array) -> Array:
        """Coarse-grid correction of an x with the residual -e."""
        materialize, coarse = self.bk.materialize, self.coarse
        e = self.R.apply(e)
        change = coarse.of_negative(materialize(e)) if isinstance(coarse, Level) else coarse.apply(materialize(-e))
        return materialize(self.P.apply(change if self.P.materializes_input else materialize(change)))

    def transpose(self) -> Operator:
        if self.hermitian:
            return self.conj() if self.dtype.kind == "c" else self
        turned = replace(self, A=self.A.T, P=self.R.T, R=self.P.T, coarse=self.coarse.T)
        return in_suited_formats(turned, self.bk, self.array("steps"))

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        suited_here = in_suited_formats(self, bk, like)  # where matrices still know their zeros
        return super(Level, suited_here).on_backend(bk, like)


def in_suited_formats(level: Level, bk: Backend, like: Array | None) -> Level:
    """The same cycle with each matrix in the format that is fastest in a library, on the device of `like`."""
    A, P, R = (suited(part, bk, like) for part in (level.A, level.P, level.R))
    return replace(level, A=A, P=P, R=R)
