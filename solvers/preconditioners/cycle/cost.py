"""Storage and work of a cycle."""

from __future__ import annotations

import math
from typing import Any

from ....sparse import Composed, Matrix, Operator
from ..operators import DiagonallyScaled, Permuted, Recast
from .cf_relaxation import CFRelaxationLevel
from .level import Level


def numbers_stored(cycle: Operator) -> int:
    """Numbers stored in all levels and systems, without padding."""
    if isinstance(cycle, Matrix):
        return cycle.nnz
    parts = {id(part): part for part in _parts(cycle)}.values()  # one that stands for two is stored once
    return sum(numbers_stored(p) if isinstance(p, Operator) else math.prod(map(int, p.shape)) for p in parts)


def work_of(cycle: Operator) -> int:
    """Multiplications of one application, in all systems."""
    if isinstance(cycle, DiagonallyScaled):
        return work_of(cycle.inner) + 2 * cycle.shape[0] * (cycle.systems or 1)
    if isinstance(cycle, Permuted):
        return work_of(cycle.inner) + numbers_stored(cycle.there) + numbers_stored(cycle.back)
    if isinstance(cycle, Recast):
        return work_of(cycle.inner)
    if isinstance(cycle, CFRelaxationLevel):
        twice, once = (cycle.C, cycle.FC, cycle.FF, cycle.FF), (cycle.P, cycle.R)
        return 2 * sum(map(numbers_stored, twice)) + sum(map(numbers_stored, once)) + work_of(cycle.coarse)
    if not isinstance(cycle, Level):
        return numbers_stored(cycle)
    products = cycle.products_with_A
    around = numbers_stored(cycle.P) + numbers_stored(cycle.R) + work_of(cycle.coarse)
    return products * numbers_stored(cycle.A) + cycle.visits * around


def _parts(cycle: Operator) -> list[Any]:
    parts = [getattr(cycle, name) for name in cycle.parts] if isinstance(cycle, Composed) else []
    return [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
