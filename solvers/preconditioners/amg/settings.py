"""What can be asked of an algebraic multigrid preconditioner, checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..checks import check_number
from ..cycle.level import VISITS
from ..cycle.recast import check_precision
from ..cycle.smoother import SMOOTHERS

COARSENINGS = ("smoothed-aggregation", "aggregation", "ruge-stuben", "root-node", "energy-minimising", "adaptive")
GIVEN = "given"  # the prolongations of a hierarchy of the user
OMEGA = 4 / 3  # of smoothed prolongations, over the largest eigenvalue
_STRENGTH = {"ruge-stuben": 0.25}  # all others: 0, every coupling is strong


@dataclass(frozen=True)
class AmgSettings:
    """As `amg` documents them."""

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
        if self.coarsening != GIVEN:
            _one_of("coarsening", self.coarsening, COARSENINGS)
        _one_of("cycle", self.cycle, tuple(VISITS))
        _one_of("smoother", self.smoother, (None, *SMOOTHERS))
        check_precision(self.precision)
        for name in ("degree", "max_levels", "max_coarse"):
            _at_least_one(name, getattr(self, name))
        if self.block_size is not None:
            _at_least_one("block_size", self.block_size)
        for name in ("strength", "over_correction"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), -1)
        if self.strength is not None and not 0 <= self.strength < 1:
            raise ValueError(f"strength={self.strength!r} was given; expected a number from 0 to below 1.")
        if self.over_correction is not None and not 0 < self.over_correction < 2:
            raise ValueError(f"over_correction={self.over_correction!r} was given; expected a number between 0 and 2.")

    @property
    def threshold(self) -> float:
        """How strong a coupling is at least that points are put together by."""
        return _STRENGTH.get(self.coarsening, 0.0) if self.strength is None else self.strength

    @property
    def factor(self) -> float:
        """By which corrections of coarser levels are multiplied."""
        if self.over_correction is not None:
            return self.over_correction
        return 1.6 if self.coarsening == "aggregation" else 1.0

    @property
    def aggregates(self) -> bool:
        """Are tentative prolongations made of aggregates, which need the pattern only?"""
        return self.coarsening in ("smoothed-aggregation", "aggregation")

    @property
    def smooths(self) -> bool:
        """Are prolongations smoothed, when new numbers come on an old pattern?"""
        return self.coarsening == "smoothed-aggregation"

    def smoother_of(self, hermitian: bool | None) -> str:
        """Chebyshev's polynomials are made for real eigenvalues; None: not known whether these are."""
        return self.smoother or ("jacobi" if hermitian is False else "chebyshev")

    def pairs(self) -> tuple[tuple[str, Any], ...]:
        """Names and values, of those that were not left to the default."""
        default = AmgSettings()
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return tuple((k, v) for k, v in found.items() if k == "coarsening" or v != getattr(default, k))


def _one_of(name: str, given: Any, known: tuple[str | None, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name}={given!r} was given; expected one of {', '.join(map(repr, known))}.")


def _at_least_one(name: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise ValueError(f"{name}={given!r} was given; expected a whole number of at least 1.")


def near_nullspace_columns(given: Any, n: int, block_size: int | None) -> tuple[np.ndarray | None, int]:
    """Vectors on the first axis as columns `(n, k)`, and how many unknowns there are at each point.

    Vectors `(k, points, unknowns per point)`, such as those of `rigid_motions`, tell the latter.

    Raises:
        ValueError: they do not fit to n unknowns, or are not finite.
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
    if n % size:
        raise ValueError(f"block_size={size} was given for {n} unknowns; expected a divisor of their number.")
    return given, size


def in_dtype(columns: np.ndarray | None, dtype: np.dtype) -> np.ndarray | None:
    """For a real matrix the real and the imaginary parts of complex vectors, each a vector of its own."""
    if columns is None or dtype.kind == "c" or columns.dtype.kind != "c":
        return columns
    parts = np.concatenate([columns.real, columns.imag], axis=1)
    return np.ascontiguousarray(parts[:, parts.any(axis=0)])
