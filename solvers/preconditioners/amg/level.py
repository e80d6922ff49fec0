"""A level that remembers what its prolongation was made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....sparse import Operator, SparseMatrix, storable
from ..cycle.level import Level
from ..cycle.scaled import Scaled


@storable("level of an algebraic cycle")
@dataclass(eq=False, repr=False)
class AlgebraicLevel(Level):
    """A level whose matrix can get other numbers.

    Attributes:
        tentative: what P was made of, in variables of its own; new numbers of A make a new P of it.
    """

    parts = (*Level.parts, "tentative")

    tentative: Operator = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.tentative.shape != self.P.shape:
            raise ValueError(f"The prolongation {self.P!r} of a level was not made of {self.tentative!r}.")
        super().__post_init__()


def tentative_matrices(cycle: Operator) -> list[SparseMatrix] | None:
    """Those of all levels, finest first; None where there is one level only."""
    found: list[Any] = []
    while isinstance(cycle, AlgebraicLevel | Scaled):
        if isinstance(cycle, AlgebraicLevel):
            found.append(cycle.tentative)
        cycle = cycle.coarse if isinstance(cycle, AlgebraicLevel) else cycle.inner
    return found or None
