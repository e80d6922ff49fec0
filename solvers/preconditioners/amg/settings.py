"""Settings of AMG and their checks, and the table that chooses a coarsening."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ..checks import check_integer, check_number
from ..multigrid.cycle import SMOOTHERS, VISITS
from ..operators import check_precision

COARSENINGS = ("classical", "smoothed-aggregation", "aggregation")
GIVEN = "given"  # prolongations of a user's hierarchy
OMEGA = 4 / 3  # of smoothed prolongations, over the largest eigenvalue
BOUND = {True: 1 / 1.05, False: 4 / (3 * 0.7)}
"""Eigenvalue bounds of classical levels for smoothers, by whether A is Hermitian. Hermitian levels, relative to row
sums, have eigenvalues up to 1, and polynomials reach 5 % above the bound; others are damped by 0.7."""
SOLVED_BY_SCALING = 2.0  # times the other entries of each row: so dominant a diagonal needs no coarser level


@dataclass(frozen=True)
class AmgSettings:
    """Settings of `amg`, which documents them."""

    coarsening: str = "smoothed-aggregation"
    cycle: str = "V"
    smoother: str | None = None
    degree: int = 2
    strength: float | None = None
    block_size: int | None = None
    max_levels: int = 20
    max_coarse: int = 300
    over_correction: float | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        coarsenings = (GIVEN,) if self.coarsening == GIVEN else COARSENINGS
        words = {"coarsening": coarsenings, "cycle": tuple(VISITS), "smoother": (None, *SMOOTHERS)}
        for name, known in words.items():
            if getattr(self, name) not in known:
                expected = ", ".join(map(repr, known))
                raise ValueError(f"{name}={getattr(self, name)!r} was given; expected one of {expected}.")
        check_precision(self.precision)
        for name in ("degree", "max_levels", "max_coarse", "block_size"):
            if name != "block_size" or self.block_size is not None:
                check_integer(name, getattr(self, name), 1)
        for name in ("strength", "over_correction"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), -1)
        if self.strength is not None and not 0 <= self.strength < 1:
            raise ValueError(f"strength={self.strength!r} was given; expected a number from 0 to below 1.")
        if self.over_correction is not None and not 0 < self.over_correction < 2:
            raise ValueError(f"over_correction={self.over_correction!r} was given; expected a number between 0 and 2.")

    @property
    def threshold(self) -> float:
        if self.strength is not None:
            return self.strength
        return 0.25 if self.is_classical else 0.0  # in aggregation every coupling is strong

    @property
    def factor(self) -> float:
        """Factor of coarse-grid corrections."""
        if self.over_correction is not None:
            return self.over_correction
        # Braess' 1.8 saves 1 or 2 of 13 to 32 iterations for smooth coefficients, and takes 7 % more for jumps.
        return 1.6 if self.coarsening == "aggregation" else 1.0

    @property
    def smooths(self) -> bool:
        return self.coarsening == "smoothed-aggregation"

    @property
    def is_classical(self) -> bool:
        return self.coarsening == "classical"

    @property
    def uses_cf_relaxation(self) -> bool:
        """Are coarse and fine unknowns of a non-Hermitian A smoothed in turns, because nothing else was requested?"""
        plain = AmgSettings(self.coarsening)
        return all(getattr(self, k) == getattr(plain, k) for k in ("cycle", "smoother", "degree", "over_correction"))

    def smoother_of(self, hermitian: bool | None) -> str:
        """The given smoother, or by default Chebyshev, but Jacobi if eigenvalues may be complex."""
        return self.smoother or ("jacobi" if hermitian is False else "chebyshev")

    def pairs(self) -> tuple[tuple[str, Any], ...]:
        """Pairs of name and value of the coarsening, and of settings that differ from the defaults."""
        default = AmgSettings()
        settings = {f.name: getattr(self, f.name) for f in fields(self)}
        return tuple((k, v) for k, v in settings.items() if k == "coarsening" or v != getattr(default, k))


# --- the coarsening if none is given ---


class CoarseningFacts(NamedTuple):
    """Facts that decide if no coarsening is given."""

    known: bool  # the values are those of one known matrix, or of a `pattern`
    hermitian: bool  # that matrix is Hermitian
    vectors: bool  # a near null space was given
    several: bool  # unknowns per point
    components: bool = False  # that can be coarsened separately, see `components_for`
    m_matrix: bool = False  # by its rows


class CoarseningRow(NamedTuple):
    """A row of the table: a condition in words and as a function, the coarsening, and why."""

    known: str
    holds: Callable[[CoarseningFacts], bool]
    coarsening: str
    why: str

    @property
    def reason(self) -> str:
        return f"{self.coarsening}, as {self.why}"


_CLASSICAL, _SMOOTHED = "classical", "smoothed-aggregation"

ROWS = (
    CoarseningRow(
        "several components, Hermitian (`block_size`, or found: elasticity); rigid motions of a compact body",
        lambda f: f.components,
        _CLASSICAL,
        "each component is coarsened by itself",
    ),
    CoarseningRow("`near_nullspace` given", lambda f: f.vectors, _SMOOTHED, "its prolongations contain these vectors"),
    CoarseningRow(
        "several unknowns per point (`block_size`), not Hermitian",
        lambda f: f.several,
        _SMOOTHED,
        "unknowns of a point stay together",
    ),
    CoarseningRow(
        "values that are traced, or those of a batch, without a `pattern`",
        lambda f: not f.known,
        _SMOOTHED,
        "unknowns are put together as for unit coefficients, without their values",
    ),
    CoarseningRow(
        "known values, Hermitian",
        lambda f: f.hermitian,
        _CLASSICAL,
        "iterations do not depend on how coefficients jump, nor on the mesh",
    ),
    CoarseningRow(
        "known values, not Hermitian, an M-matrix by its rows",
        lambda f: f.m_matrix,
        _CLASSICAL,
        "it takes fewest iterations where information has a direction",
    ),
    CoarseningRow(
        "known values, not Hermitian",
        lambda f: True,
        _SMOOTHED,
        "it takes more iterations than classical coarsening, and less time",
    ),
)
"""The first row that holds decides; the last one always does. docs/preconditioners.md shows the table."""


def choose_coarsening(facts: CoarseningFacts) -> CoarseningRow:
    """The first row of the table that holds."""
    return next(row for row in ROWS if row.holds(facts))
