"""Symbolic set-up of AMG: the index pairs of its sparse products, found once per pattern.

With it new numbers of A give a new hierarchy by gathers, products and sums of segments, in compiled programs, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import SparseMatrix
from ....sparse.formats import FORMATS, Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import starts_of
from ....sparse.formats.entries.order import Order, sorted_entries
from ....sparse.formats.entries.regather import Regather
from ....sparse.formats.operations.arithmetic import Meeting, products_of_entries
from ..cycle.formats import suitable_format


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


class LevelPattern(NamedTuple):
    """Of one level: the products A T, A P and Pᴴ (A P), and where their entries go."""

    rows: CsrStructure  # of A
    A: ValueLayout
    P: ValueLayout
    R: ValueLayout
    smoothing: Meeting | None  # of A T; None where P = T
    tentative: np.ndarray  # of each entry of P: the number of T's, or -1
    smoothed: np.ndarray | None  # of each entry of P: the number of A T's, or -1
    prolongation: CsrStructure
    turned: np.ndarray  # of each entry of Pᴴ: the number of P's
    image: Meeting  # of A P
    coarse: Meeting  # of Pᴴ (A P)


class HierarchyPattern(NamedTuple):
    """Symbolic data of all levels, and of the coarsest matrix."""

    levels: tuple[LevelPattern, ...]
    coarsest: CsrStructure


@lru_cache(maxsize=8)
def pattern_of(bk: Backend, A: Structure, tentative: tuple[Structure, ...], smoothed: bool) -> HierarchyPattern:
    """The pattern of the hierarchy of all matrices with the structure of A. Cost: sorts of all single products."""
    entries = A.entries()
    rows, levels = CsrStructure(starts_of(entries.rows, A.shape[0]), entries.cols, A.shape), []
    for T in tentative:
        levels.append(_level(bk, rows, T, smoothed))
        coarse, n = levels[-1].coarse, T.shape[1]
        rows = CsrStructure(starts_of(coarse.rows, n), coarse.cols, (n, n))
    return HierarchyPattern(tuple(levels), rows)


def _level(bk: Backend, A: CsrStructure, T: Structure, smoothed: bool) -> LevelPattern:
    smoothing = products_of_entries(A, T) if smoothed else None
    first, shape = T.entries(), T.shape
    images = (smoothing.rows, smoothing.cols) if smoothing else (first.rows[:0], first.cols[:0])
    both = sorted_entries(np.concatenate([first.rows, images[0]]), np.concatenate([first.cols, images[1]]), shape)
    where = _sources(both, len(first.rows))
    P = CsrStructure(starts_of(both.rows, shape[0]), both.cols, shape)
    turned = sorted_entries(both.cols, both.rows, shape[::-1], sum_duplicates=False)
    R = CsrStructure(starts_of(turned.rows, shape[1]), turned.cols, shape[::-1])
    order = turned.order if turned.order is not None else np.arange(len(both.rows), dtype=np.int32)
    image = products_of_entries(A, P)
    AP = CsrStructure(starts_of(image.rows, shape[0]), image.cols, shape)
    coarse = products_of_entries(R, AP)
    return LevelPattern(
        rows=A,
        A=ValueLayout.of(bk, A),
        P=ValueLayout.of(bk, P),
        R=ValueLayout.of(bk, R),
        smoothing=smoothing,
        tentative=where[0],
        smoothed=where[1] if smoothed else None,
        prolongation=P,
        turned=order,
        image=image,
        coarse=coarse,
    )


def _sources(both: Order, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources of each entry of a union: index in the first list (of `count`) and in the second, or -1."""
    total = len(both.order) if both.order is not None else len(both.rows)
    order = both.order if both.order is not None else np.arange(total, dtype=np.int32)
    ids = both.ids if both.ids is not None else np.arange(total, dtype=np.int32)
    found = np.full((2, len(both.rows)), -1, np.int32)
    second = order >= count
    found[0, ids[~second]] = order[~second]
    found[1, ids[second]] = order[second] - np.int32(count)
    return found[0], found[1]
