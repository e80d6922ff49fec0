"""Choice of the coarsening where none is given: a table.

The first row that holds decides. docs/preconditioners.md shows it; the tests run over it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class CoarseningFacts(NamedTuple):
    """What the choice depends on.

    Attributes:
        known: are the values those of one matrix, and known now, or those of a `pattern`?
        hermitian: is that Hermitian? False where values are not known.
        vectors: was a near null space given?
        several: are there several unknowns per point?
        components: is it a Hermitian matrix of several components, of which each can be coarsened by itself: said by
            `block_size`, or found? With rigid motions: of a body that is not slender?
        m_matrix: are they those of an M-matrix, as far as its rows prove it?
    """

    known: bool
    hermitian: bool
    vectors: bool
    several: bool
    components: bool = False
    m_matrix: bool = False


class CoarseningRow(NamedTuple):
    """One line of the table.

    Attributes:
        known: the condition, in words.
        holds: the condition as a function.
        coarsening: its name.
        why: in words.
    """

    known: str
    holds: Callable[[CoarseningFacts], bool]
    coarsening: str
    why: str

    @property
    def reason(self) -> str:
        """Coarsening and why, in a line."""
        return f"{self.coarsening}, as {self.why}"


SMOOTHED, CLASSICAL = "smoothed-aggregation", "classical"

ROWS = (
    CoarseningRow(
        "several components, Hermitian (`block_size`, or found: elasticity); rigid motions of a compact body",
        lambda f: f.components,
        CLASSICAL,
        "each component is coarsened by itself",
    ),
    CoarseningRow(
        "`near_nullspace` given",
        lambda f: f.vectors,
        SMOOTHED,
        "its prolongations contain these vectors",
    ),
    CoarseningRow(
        "several unknowns per point (`block_size`), not Hermitian",
        lambda f: f.several,
        SMOOTHED,
        "unknowns of a point stay together",
    ),
    CoarseningRow(
        "values that are traced, or those of a batch, without a `pattern`",
        lambda f: not f.known,
        SMOOTHED,
        "unknowns are put together as for unit coefficients, without their values",
    ),
    CoarseningRow(
        "known values, Hermitian",
        lambda f: f.hermitian,
        CLASSICAL,
        "iterations do not depend on how coefficients jump, nor on the mesh",
    ),
    CoarseningRow(
        "known values, not Hermitian, an M-matrix by its rows",
        lambda f: f.m_matrix,
        CLASSICAL,
        "it takes fewest iterations where information has a direction",
    ),
    CoarseningRow(
        "known values, not Hermitian",
        lambda f: True,
        SMOOTHED,
        "it takes more iterations than classical coarsening, and less time",
    ),
)
"""The table; the last row always holds."""


def choose_coarsening(facts: CoarseningFacts) -> CoarseningRow:
    """The first row that holds."""
    return next(row for row in ROWS if row.holds(facts))
