"""Analyses of patterns that are kept: as long as factors of them live, and a few of the last ones beyond that."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from .pattern import EntryPattern, digest_of
from .protocol import SymbolicAnalysis

MOST = 4  # patterns that are kept though nothing uses them
MOST_BYTES = 1 << 27  # of each, with its analyses: some hold the factors of the last numbers


@dataclass(eq=False)
class KnownPattern:
    """A pattern and its analyses, which hold no reference to this: it goes with the last factors that use it.

    Attributes:
        analyses: by the name of the provider, and the kind of dtype.
    """

    pattern: EntryPattern
    analyses: dict[tuple[str, str], SymbolicAnalysis] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory of the pattern and of its analyses."""
        pattern, kept = self.pattern, sum(one.nbytes for one in list(self.analyses.values()))
        return int(pattern.indices.nbytes + pattern.indptr.nbytes) + kept


_alive: WeakValueDictionary[bytes, KnownPattern] = WeakValueDictionary()
_recent: list[KnownPattern] = []  # the last one that was used first
_lock = Lock()


def known_pattern(A: Any) -> KnownPattern:
    """The pattern of a canonical square `csc_array`, with the analyses that are known of it."""
    digest = digest_of(A)
    with _lock:
        found = _alive.get(digest)
        if found is None:
            found = _alive[digest] = KnownPattern(EntryPattern(A))
    return found


def keep(known: KnownPattern) -> None:
    """Keep a pattern with its analyses, in place of the one that was not used for longest."""
    with _lock:
        rest = [one for one in _recent if one is not known]
        _recent[:] = ([known, *rest] if known.nbytes <= MOST_BYTES else rest)[:MOST]


def clear_analyses() -> None:
    """Let go of the analyses that nothing uses, and of the memory that they hold."""
    with _lock:
        _recent.clear()
