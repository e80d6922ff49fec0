"""Memory of plain solves by pattern: what is kept of a matrix for others with entries at the same places.

The setups of `setup_cache` are those of one matrix, to the last bit. Here a preconditioner of a kind that can be
renewed (`UPDATES`) is kept for new numbers, such as those of the next time step: what it has found by places stays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ..sparse.content import Content
from .attempt import Attempt
from .log import log
from .preconditioners import UPDATES, Preconditioner
from .read.arguments import Request
from .results.failure import ConvergenceError
from .results.result import SolveResult

LEAST = 5000  # unknowns: smaller ones get no hierarchy where one is chosen, and cost little anyway
MOST = 2  # patterns
MOST_BYTES = 1 << 28  # of the preconditioner of each
_MOST_SEEN = 8  # patterns of the last calls
_SLACK = 10  # iterations that a renewed preconditioner may take more than twice those of a fresh one
_ONCE, _USELESS = "once", "useless"  # seen once; nothing that can be renewed was made for it


@dataclass(frozen=True, eq=False)
class PatternKey:
    """Where the entries of a matrix are, and everything else that a set-up depends on but its numbers.

    Attributes:
        key: all of it, with a checksum of some places.
        places: the index arrays.
    """

    key: Hashable
    places: Content

    @classmethod
    def of(cls, settings: Hashable, content: Content) -> PatternKey:
        """Of a sparse matrix and the settings of its solve."""
        places = Content(content.form, content.arrays[1:])
        return cls((settings, places.checksum()), places)

    def equals(self, other: PatternKey) -> bool:
        """Is each place the same?"""
        return self.key == other.key and self.places.equals(other.places)

    def copy(self) -> PatternKey:
        """In memory of its own."""
        return PatternKey(self.key, Content(self.places.form, tuple(array.copy() for array in self.places.arrays)))


@dataclass(frozen=True, eq=False)
class Renewable:
    """A preconditioner that can get the numbers of another matrix of a pattern.

    Attributes:
        M: of the last matrix.
        iterations: of the solve for which it was made from scratch.
    """

    pattern: PatternKey
    M: Preconditioner
    iterations: int


class PatternCall(Protocol):
    """What is known of a call, see `setup_cache.Call`."""

    @property
    def pattern(self) -> PatternKey: ...

    def copy(self) -> Any: ...


SolvedAnew = Callable[[Request, bool, Preconditioner | None], tuple[SolveResult, Attempt]]

_kept: tuple[Renewable, ...] = ()  # the last one that was used first
_seen: tuple[tuple[Hashable, str], ...] = ()
_lock = Lock()  # for writing; tuples are read as they are


def solve_on_pattern(
    call: PatternCall, request: Request, many: bool, solved_anew: SolvedAnew
) -> tuple[SolveResult, Attempt]:
    """Set up and solve, with what is kept of other matrices of this pattern as long as that serves.

    Args:
        solved_anew: sets up and solves, with a preconditioner to renew or None.
    """
    if request.monitor is not None or request.on_failure == "warn":  # which would hear of a first try that fails
        return solved_anew(request, many, None)
    pattern = call.pattern
    known = _find(pattern)
    if known is None and not _is_worth_keeping(pattern.key):
        return solved_anew(request, many, None)
    request = request if many else replace(request, A=call.copy())  # as M shares its places
    found = None if known is None else _by_renewed(request, many, solved_anew, known)
    if found is not None:
        return found
    result, attempt = solved_anew(request, many, None)
    if _all_converged(result, attempt) and result.method == attempt.method.name:
        _keep(pattern, attempt.M, _most_iterations(result, attempt))
    return result, attempt


def _by_renewed(
    request: Request, many: bool, solved_anew: SolvedAnew, known: Renewable
) -> tuple[SolveResult, Attempt] | None:
    """None where the solve fails; what takes too many iterations is not kept."""
    try:
        result, attempt = solved_anew(request, many, known.M)
    except ConvergenceError:
        result, attempt = None, None
    if result is None or attempt is None or not _all_converged(result, attempt):
        log.info("the renewed preconditioner of an earlier matrix with this pattern does not serve; making a fresh one")
        _drop(known.pattern)
        return None
    if _most_iterations(result, attempt) > 2 * known.iterations + _SLACK or result.method != attempt.method.name:
        _drop(known.pattern)
    elif attempt.M is not known.M:
        _keep(known.pattern, attempt.M, known.iterations)
    return result, attempt


def _all_converged(result: SolveResult, attempt: Attempt) -> bool:
    return bool(attempt.system.bk.to_numpy(result.converged).all())


def _most_iterations(result: SolveResult, attempt: Attempt) -> int:
    return int(np.max(attempt.system.bk.to_numpy(result.iterations), initial=0))


def _find(pattern: PatternKey) -> Renewable | None:
    return next((found for found in _kept if found.pattern.equals(pattern)), None)


def _is_worth_keeping(key: Hashable) -> bool:
    """Was there a solve with this pattern lately, and may what it made be renewed?"""
    global _seen
    with _lock:
        state = dict(_seen).get(key)
        if state is None:
            _seen = ((key, _ONCE), *_seen)[:_MOST_SEEN]
    return state == _ONCE


def _keep(pattern: PatternKey, M: object, iterations: int) -> None:
    """For matrices to come, if it can be renewed; the pattern that was not used longest is let go."""
    global _kept, _seen
    if not isinstance(M, Preconditioner) or M.kind not in UPDATES or _bytes_of(M) > MOST_BYTES:
        with _lock:
            _seen = ((pattern.key, _USELESS), *(e for e in _seen if e[0] != pattern.key))[:_MOST_SEEN]
        return
    known = _find(pattern)
    found = Renewable(pattern.copy() if known is None else known.pattern, M, iterations)
    with _lock:
        _kept = (found, *(e for e in _kept if not e.pattern.equals(pattern)))[:MOST]


def _drop(pattern: PatternKey) -> None:
    global _kept
    with _lock:
        _kept = tuple(e for e in _kept if e.pattern is not pattern)


def clear_patterns() -> None:
    """Let go of all that is kept."""
    global _kept, _seen
    with _lock:
        _kept, _seen = (), ()


def _bytes_of(M: Preconditioner) -> int:
    """Memory of its numbers, and of an index of 32 bits for each."""
    return (M.memory or 0) * (M.dtype.itemsize + 4)
