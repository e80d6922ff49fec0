"""Analyses of patterns that are kept: as long as their factors live, and the last few, with the last factors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sp

from ....setup_cache_setting import SETUP_CACHE
from .pattern import EntryPattern, digest_of
from .protocol import Factors, SymbolicAnalysis
from .transposed import TransposedFactors

MOST = 4  # patterns that are kept though nothing uses them
MOST_BYTES = 1 << 27  # of each, with its analyses and factors


@dataclass(eq=False)
class KnownPattern:
    """A pattern and its analyses, which hold no reference to this: it goes with the last factors that use it.

    Attributes:
        analyses: by the name of the provider, and the kind of dtype.
        refused: by the same, why a provider does not suit the pattern.
    """

    pattern: EntryPattern
    analyses: dict[tuple[str, str], SymbolicAnalysis] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory of the pattern and of its analyses."""
        pattern, kept = self.pattern, sum(one.nbytes for one in list(self.analyses.values()))
        return int(pattern.indices.nbytes + pattern.indptr.nbytes) + kept


class LastFactors(NamedTuple):
    """The last factors of a pattern.

    Attributes:
        asked: which providers were to be tried.
        data: the numbers of the matrix, in memory of its own.
        factors: of it.
        by: what made them, in words.
    """

    asked: Hashable
    data: np.ndarray
    factors: Factors
    by: str


_alive: WeakValueDictionary[bytes, KnownPattern] = WeakValueDictionary()
_recent: list[tuple[KnownPattern, LastFactors | None]] = []  # the last one that was used first
_lock = Lock()


def known_pattern(A: Any) -> KnownPattern:
    """The pattern of a canonical square `csc_array`, with the analyses that are known of it."""
    digest = digest_of(A)
    with _lock:
        found = _alive.get(digest)
        if found is None:
            found = _alive[digest] = KnownPattern(EntryPattern(A))
    return found


def last_factors(known: KnownPattern, A: Any, asked: Hashable) -> tuple[Factors, str] | None:
    """Factors that were made of the same numbers, or of those of the transpose, as derivatives need it; else None."""
    if not SETUP_CACHE.get():
        return None
    for one, last in list(_recent):
        if last is None or last.asked != asked or last.data.dtype != A.dtype or last.data.shape != A.data.shape:
            continue
        found = _factors_if_same(last, A.data, False) if one is known else None
        data = _data_of_transpose(known, one, A) if found is None else None
        found = _factors_if_same(last, data, True) if data is not None else found
        if found is not None:
            return found
    return None


def _data_of_transpose(known: KnownPattern, other: KnownPattern, A: Any) -> np.ndarray | None:
    """The numbers of the transpose of A, whose pattern is the known one; None if that of its transpose is another."""
    if other is known:
        mirror = known.pattern.mirror
        return None if mirror is None else A.data[mirror]
    if other.pattern.n != A.shape[0]:
        return None
    transpose = sp.csr_array(A)  # whose arrays are those of the transpose by columns
    same = np.array_equal(transpose.indptr, other.pattern.indptr)
    return transpose.data if same and np.array_equal(transpose.indices, other.pattern.indices) else None


def _factors_if_same(last: LastFactors, data: np.ndarray, transposed: bool) -> tuple[Factors, str] | None:
    for conjugated in (False, True) if data.dtype.kind == "c" else (False,):
        if np.array_equal(data.conj() if conjugated else data, last.data):
            plain = not (transposed or conjugated)
            return (last.factors if plain else TransposedFactors(last.factors, transposed, conjugated)), last.by
    return None


def keep(known: KnownPattern, last: LastFactors) -> None:
    """Keep a pattern and its last factors, in place of the one that was not used for longest."""
    if not SETUP_CACHE.get():
        return
    held = None if last.factors.nnz * 2 * last.data.itemsize > MOST_BYTES else last
    with _lock:
        rest = [entry for entry in _recent if entry[0] is not known]
        _recent[:] = ([(known, held), *rest] if known.nbytes <= MOST_BYTES else rest)[:MOST]


def clear_analyses() -> None:
    """Let go of the analyses and factors that nothing uses, and of the memory that they hold."""
    with _lock:
        _recent.clear()
