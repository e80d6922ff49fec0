"""Smoother and cycle type of multigrid on grids."""

from __future__ import annotations

from typing import NamedTuple

from ..cycle.level import VISITS


class Smoothing(NamedTuple):
    """Smoother and cycle type of all levels but the coarsest."""

    smoother: str = "chebyshev"
    degree: int = 2
    visits: int = VISITS["V"]
    precision: str | None = None
    as_grids: bool = False  # are NumPy's matrices made of shifted grids, as those of all other libraries?
