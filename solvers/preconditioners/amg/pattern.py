"""Symbolic set-up of AMG: the index pairs of its sparse products, found once per pattern.

With it new numbers of A give a new hierarchy by gathers, products and sums of segments, in compiled programs, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....backends import Array, Backend
from ....sparse import SparseMatrix
from ....sparse.formats import FORMATS, Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import starts_of
from ....sparse.formats.entries.order import sorted_entries
from ....sparse.formats.entries.regather import Regather
from ....sparse.formats.operations.arithmetic import Meeting, products_of_entries
from ..target import suitable_format
from .scaled_values import ScaledValues


class ValueLayout(NamedTuple):
    """How values in row order lie in the format that suits a matrix."""

    structure: Structure
    regather: Regather

    @classmethod
    def of(cls, bk: Backend, rows: CsrStructure) -> ValueLayout:
        format = suitable_format(bk, rows)
        if format == "csr":
            return cls(rows, Regather.unchanged())
        return cls(*rows.convert(FORMATS[format].structure_class))  # type: ignore[attr-defined]

    def matrix(self, bk: Backend, values: Array, like: Array | None) -> SparseMatrix:
        """Of values `(nnz,)` or `(systems, nnz)` in row order."""
        systems = None if len(values.shape) == 1 else int(values.shape[0])
        return SparseMatrix.build(bk, self.structure, self.regather(bk, (values,), systems), like=like)


class ProlongationPlan(Protocol):
    """Places of the numbers of a prolongation, for matrices of one structure."""

    @property
    def prolongation(self) -> CsrStructure: ...

    def values(self, bk: Backend, level: ScaledValues, kept: Any, rho: Array) -> Array:
        """Entries of P in row order, for the scaled matrix of a level.

        Args:
            kept: the operator that the level keeps for updates.
            rho: bounds of the eigenvalues of the scaled matrix, one per system.
        """


class ProlongationRule(Protocol):
    """How the prolongation of a level is made of its matrix; compared by content."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def plan(self, A: CsrStructure) -> ProlongationPlan: ...


class LevelPattern(NamedTuple):
    """Of one level: the prolongation, the products A P and Pᴴ (A P), and where their entries go."""

    rows: CsrStructure  # of A
    A: ValueLayout
    P: ValueLayout
    R: ValueLayout
    plan: ProlongationPlan
    transposed: np.ndarray  # of each entry of Pᴴ: the number of P's
    image: Meeting  # of A P
    coarse: Meeting  # of Pᴴ (A P)


class HierarchyPattern(NamedTuple):
    """Symbolic data of all levels, and of the coarsest matrix."""

    levels: tuple[LevelPattern, ...]
    coarsest: CsrStructure


@lru_cache(maxsize=8)
def pattern_of(bk: Backend, A: Structure, rules: tuple[ProlongationRule, ...]) -> HierarchyPattern:
    """The pattern of the hierarchy of all matrices with the structure of A. Cost: sorts of all single products."""
    entries = A.entries()
    rows, levels = CsrStructure(starts_of(entries.rows, A.shape[0]), entries.cols, A.shape), []
    for rule in rules:
        levels.append(_level(bk, rows, rule))
        coarse, n = levels[-1].coarse, rule.shape[1]
        rows = CsrStructure(starts_of(coarse.rows, n), coarse.cols, (n, n))
    return HierarchyPattern(tuple(levels), rows)


def _level(bk: Backend, A: CsrStructure, rule: ProlongationRule) -> LevelPattern:
    plan, shape = rule.plan(A), rule.shape
    P = plan.prolongation
    transposed = sorted_entries(P.cols, P.rows, shape[::-1], sum_duplicates=False)
    R = CsrStructure(starts_of(transposed.rows, shape[1]), transposed.cols, shape[::-1])
    order = transposed.order if transposed.order is not None else np.arange(P.nnz, dtype=np.int32)
    image = products_of_entries(A, P)
    AP = CsrStructure(starts_of(image.rows, shape[0]), image.cols, shape)
    coarse = products_of_entries(R, AP)
    return LevelPattern(
        rows=A,
        A=ValueLayout.of(bk, A),
        P=ValueLayout.of(bk, P),
        R=ValueLayout.of(bk, R),
        plan=plan,
        transposed=order,
        image=image,
        coarse=coarse,
    )
