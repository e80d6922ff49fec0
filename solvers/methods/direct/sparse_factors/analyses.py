"""Store of pattern analyses, which live as long as their factors, and of the last few solvers of sparse matrices."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np

from ....memory import SETUP_CACHE, Memory
from ..sparse_singular import HostSolver
from .pattern import EntryPattern, digest_of
from .protocol import SymbolicAnalysis

_FIRST = 64  # numbers that mostly tell matrices apart


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


@dataclass(frozen=True, eq=False)
class LastSolver:
    """A solver that was made lately.

    Attributes:
        asked: what else decides how it is made.
        data: the numbers of its matrices, `(matrices, nnz)`, in memory of its own.
    """

    known: KnownPattern
    asked: Hashable
    data: np.ndarray
    solver: HostSolver

    @property
    def nbytes(self) -> int:
        """Memory, with indices of the factors."""
        return self.data.nbytes + 2 * self.solver.numbers * self.data.itemsize


PATTERNS: Memory[KnownPattern] = Memory(8, 1 << 28)  # that are kept though nothing uses them
SOLVERS: Memory[LastSolver] = Memory(32, 1 << 27)
_alive: WeakValueDictionary[bytes, KnownPattern] = WeakValueDictionary()
_lock = Lock()


def known_pattern(indices: np.ndarray, indptr: np.ndarray) -> KnownPattern:
    """The pattern of a square matrix by columns, without duplicates and in order, with its analyses."""
    for one in PATTERNS:
        if one.pattern.is_of(indices, indptr):
            return one
    digest = digest_of(indices, indptr)
    with _lock:
        found = _alive.get(digest)
        if found is None:
            found = _alive[digest] = KnownPattern(EntryPattern(indices, indptr))
    return found


def last_solver(known: KnownPattern, data: np.ndarray, asked: Hashable) -> HostSolver | None:
    """Solver for the same numbers, or for those of the transposed or conjugated matrix, as derivatives need it."""
    if not SETUP_CACHE.get():
        return None
    mirrored: np.ndarray | None = None  # the numbers of the transpose, in its order
    for one in SOLVERS:
        if one.asked != asked or one.data.shape != data.shape or one.data.dtype != data.dtype:
            continue
        transposed, conjugated = False, _conjugated(one.data, data) if one.known is known else None
        if conjugated is None and known.pattern.is_transpose_of(one.known.pattern):
            mirrored = data[:, known.pattern.in_rows[2]] if mirrored is None else mirrored
            transposed, conjugated = True, _conjugated(one.data, mirrored)
        if conjugated is not None:
            _use(known, one)
            return one.solver.turned(transposed, conjugated)
    return None


def _conjugated(own: np.ndarray, data: np.ndarray) -> bool | None:
    """Return False where both matrices have the same values, True where they are conjugates, None otherwise."""
    for conjugated in (False, True) if data.dtype.kind == "c" else (False,):
        for some in (slice(_FIRST), slice(None)):
            if not np.array_equal(own[:, some], data[:, some].conj() if conjugated else data[:, some]):
                break
        else:
            return conjugated
    return None


def keep_solver(known: KnownPattern, asked: Hashable, data: np.ndarray, solver: HostSolver) -> None:
    """Keep a solver, which must not refer to memory of the caller, and the pattern of its matrices."""
    if SETUP_CACHE.get():
        _use(known, LastSolver(known, asked, data, solver))


def _use(known: KnownPattern, last: LastSolver) -> None:
    PATTERNS.keep(known, known, known.nbytes)
    SOLVERS.keep(last, last, last.nbytes)
