"""Settings of AMG and their checks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..checks import check_integer, check_number
from ..multigrid.cycle import SMOOTHERS, VISITS
from ..operators import check_precision

COARSENINGS = ("classical", "smoothed-aggregation", "aggregation")
GIVEN = "given"  # prolongations of a user's hierarchy
OMEGA = 4 / 3  # of smoothed prolongations, over the largest eigenvalue
BOUND = {True: 1 / 1.05, False: 4 / (3 * 0.7)}
"""Eigenvalue bounds of classical levels for smoothers, by whether A is Hermitian. Hermitian levels, relative to row
sums, have eigenvalues up to 1, and polynomials reach 5 % above the bound; others are damped by 0.7."""


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
        """Are prolongations smoothed?"""
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


def near_nullspace_columns(
    given: Any, n: int, dtype: np.dtype, block_size: int | None
) -> tuple[np.ndarray | None, int]:
    """Near null space as columns `(n, k)`, and the number of unknowns per point.

    Vectors `(k, points, unknowns per point)`, such as those of `rigid_motions`, give that number. For a real matrix
    complex vectors are split into real and imaginary parts.
    """
    size = block_size or 1
    if given is not None:
        try:
            given = np.asarray(given)
        except ValueError as error:  # a ragged list
            raise ValueError(f"near_nullspace is no array: {error}") from error
        if given.ndim < 2 or not len(given) or given[0].size != n:
            raise ValueError(
                f"near_nullspace has the shape {given.shape}; expected vectors of {n} numbers on its first axis, (k, "
                f"{n}), or (k, points, unknowns per point)."
            )
        if given.dtype.kind not in "fciu" or not np.isfinite(given).all():
            raise ValueError("near_nullspace holds what is no finite number; expected vectors that A nearly maps to 0.")
        if n and not given.reshape(len(given), n).any(axis=1).all():
            raise ValueError("near_nullspace holds a vector of zeros; expected vectors that A nearly maps to 0.")
        if block_size is None and given.ndim == 3 and given.shape[2] <= 8:
            size = int(given.shape[2])
        given = np.ascontiguousarray(given.reshape(len(given), n).T)
        if given.dtype.kind == "c" and dtype.kind != "c":
            parts = np.concatenate([given.real, given.imag], axis=1)
            given = np.ascontiguousarray(parts[:, parts.any(axis=0)])
    if n % size:
        raise ValueError(f"block_size={size} was given for {n} unknowns; expected a divisor of their number.")
    return given, size
