"""Properties of a matrix that need no solve, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sparse.analysis.facts import (
    component_labels,
    dominance,
    has_symmetric_pattern,
    is_hermitian,
    is_positive_definite,
    is_positive_semidefinite,
    occupied_diagonals,
)
from .facts import Line, diagonal_text, maps_constants_to_zero, size_text, symmetry_text
from .inspected import Inspected


def describe(inspected: Inspected) -> list[Line]:
    """Source, entries, and of a square matrix symmetry, diagonal, definiteness and components."""
    A = inspected.A
    lines = [
        ("matrix", inspected.source),
        ("shape", size_text(A)),
        ("stored", _stored(inspected)),
        ("per row", _lengths(A)),
        ("band", _band(A)),
    ]
    if A.shape[0] != A.shape[1]:
        lines.append(("symmetry", "not square"))
    elif A.shape[0]:
        lines += _square(A)
    if maps_constants_to_zero(A):
        both = ", and so does every column" if maps_constants_to_zero(A.T.tocsr()) else ""
        lines.append(("null space", f"contains the constants: every row sums to zero{both}"))
    return lines


def _square(A: Any) -> list[Line]:
    return [
        ("symmetry", symmetry_text(A)),
        ("pattern", "symmetric" if has_symmetric_pattern(A) else "not symmetric"),
        ("diagonal", diagonal_text(A.diagonal())),
        ("dominance", _dominance(A)),
        ("definite", _definite(A)),
        ("components", _components(A)),
    ]


def _stored(inspected: Inspected) -> str:
    if not inspected.sparse:
        return f"dense, {inspected.stored} numbers, of which {_count(inspected.zeros, 'zero')}"
    duplicates = _count(inspected.duplicates, "duplicate") + (" (added up)" if inspected.duplicates else "")
    return f"{_count(inspected.stored, 'entry', 'entries')}, {duplicates}, {_count(inspected.zeros, 'explicit zero')}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number or 'no'} {one if number == 1 else many or one + 's'}"


def _lengths(A: Any) -> str:
    if not A.shape[0]:
        return "no rows"
    lengths = np.diff(A.indptr)
    columns = np.zeros(A.shape[1], bool)
    columns[A.indices] = True
    empty_rows, empty_columns = int(np.sum(lengths == 0)), int(np.sum(~columns))
    empty = f"{_count(empty_rows, 'empty row')}, {_count(empty_columns, 'empty column')}"
    return f"{lengths.min()} to {lengths.max()} non-zeros, median {np.median(lengths):g}; {empty}"


def _band(A: Any) -> str:
    if not A.nnz:
        return "no non-zeros"
    n, m = A.shape
    offsets = occupied_diagonals(A)
    low, high = max(0, -int(offsets[0])), max(0, int(offsets[-1]))
    return f"{low} below and {high} above the diagonal; {len(offsets)} of {n + m - 1} diagonals occupied"


def _dominance(A: Any) -> str:
    found = dominance(A)
    if found.strict.all():
        return "strict in every row"
    if found.weak.all():
        return f"weak in every row, strict in {found.strict.sum()} of {A.shape[0]}"
    ratio = found.diagonal / np.where(found.weak, 1, found.others)
    worst = int(np.argmin(np.where(found.weak, np.inf, ratio)))
    bad = f"{np.sum(~found.weak)} of {A.shape[0]} rows are not diagonally dominant"
    return f"{bad}; worst row {worst}: |a_ii| is {ratio[worst]:.2g} of the sum of the others"


def _definite(A: Any) -> str:
    if not is_hermitian(A):
        return f"not {'Hermitian' if A.dtype.kind == 'c' else 'symmetric'}"
    for sign, matrix in (("positive", A), ("negative", -A)):
        if is_positive_definite(matrix):
            return f"{sign} definite: diagonally dominant, strictly somewhere in every component"
    for sign, matrix in (("positive", A), ("negative", -A)):
        if is_positive_semidefinite(matrix):
            return f"{sign} semi-definite: diagonally dominant"
    diagonal = A.diagonal().real
    if diagonal.min() < 0 < diagonal.max():
        return "indefinite: the diagonal has both signs"
    return "not proven"


def _components(A: Any) -> str:
    count, labels = component_labels(A)
    if count == 1:
        return "1, all rows are connected"
    sizes = np.bincount(labels)
    return f"{count} that are not connected, of {sizes.min()} to {sizes.max()} rows"
