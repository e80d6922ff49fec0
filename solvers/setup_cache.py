"""Set-up cache of plain solves with one matrix: the method, the preconditioner, the factors.

A matrix is the same if all its bits are: a copy is compared, so a matrix that was written to is another one, and one
that was made anew with the same numbers is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np

from ..backends import Backend, NoBackendFound, choose_backend, get_precision
from ..sparse import Operator
from ..sparse.content import Content, content_of, copy_of
from .attempt import Attempt
from .iteration_budget import Fallback
from .known_plan import KnownPlan
from .memory import clear_all
from .methods.method import Method
from .methods.registry import find_method, is_auto
from .pattern_cache import LEAST, PatternKey, clear_patterns
from .preconditioners import PRECONDITIONERS
from .read.arguments import Request
from .read.system import KnownNull, read_system
from .results.result import SolveResult
from .setup_cache_setting import SETUP_CACHE
from .solve import solve

MOST = 4  # matrices
MOST_BYTES = 1 << 25  # of the numbers of each
MOST_COMPARED = 1 << 28  # bytes of a matrix whose pattern may be known, see `pattern_cache`
MOST_FACTORS = 1 << 27  # bytes of the factors of each: those of a grid of three axes take hundreds of times the matrix
_MOST_SEEN = MOST  # matrices of the last calls that were seen once: of more in turn, each would push out the next

_setting = SETUP_CACHE
_OF_EACH_SOLVE = ("A", "b", "x0", "args", "history", "monitor", "told")  # no setup depends on them
_PLAIN = frozenset((type(None), str, int, float, complex, bool))  # in one test; `_is_plain_setting` has the others
_COMPARED = tuple(f.name for f in fields(Request) if f.name not in (*_OF_EACH_SOLVE, "method"))


@dataclass(frozen=True, eq=False)
class Setup:
    """Cached set-up of solves with one matrix.

    Attributes:
        A: the matrix as an operator, with no offset.
        source: what the user called A, in memory of its own.
        plan: the fast path of solves that only apply factors.
        why: this method, in words.
    """

    A: Operator
    method: Method
    M: Operator | None
    fallback: Fallback | None
    null: KnownNull
    source: Any
    plan: KnownPlan | None
    why: str

    @classmethod
    def of(cls, attempt: Attempt, request: Request) -> Setup:
        """Set-up of a solve, with a private copy of its matrix."""
        system, method, M = attempt.system, attempt.method, attempt.M
        null, A = KnownNull(system.null, system.both), system.A.without_offset
        settings = replace(request, A=None, b=None, x0=None)
        plan = KnownPlan.of(A, method, M, null, settings, system.source, attempt.why)
        return cls(A, method, M, attempt.fallback, null, system.source, plan, attempt.why)

    def solve(self, request: Request) -> SolveResult | None:
        """Solve for another right-hand side; None if that needs another set-up."""
        usual = request.x0 is None and request.history is False and request.monitor is None
        if usual and self.plan is not None and (found := self.plan.solve(request.b)) is not None:
            return found
        system = read_system(replace(request, A=self.A), self.method, self.null)
        if system.A.dtype != self.A.dtype:
            return None
        system = replace(system, source=self.source)
        return solve(Attempt.of(request, system, self.method, self.M, self.fallback, self.why), request.b)


@dataclass(frozen=True, eq=False)
class Call:
    """Cache key of a solve: everything that its set-up depends on.

    Attributes:
        is_kept: is the matrix small enough for its set-up to be kept?
        has_pattern: is it sparse, and large enough for what its pattern tells to be kept?
    """

    A: Any
    bk: Backend
    key: Hashable
    content: Content
    is_kept: bool
    has_pattern: bool

    @property
    def pattern(self) -> PatternKey:
        """Key of all matrices with entries at the same places."""
        return PatternKey.of(self.key, self.content)

    def copy(self) -> Any:
        """The matrix in memory of its own."""
        return copy_of(self.A, self.bk)

    def is_like(self, key: Hashable, content: Content) -> bool:
        """Are the keys equal?"""
        return self.key == key and self.content.equals(content)


_kept: tuple[tuple[Hashable, Content, Setup], ...] = ()  # the last one that was used first
_seen: tuple[tuple[Hashable, int], ...] = ()
_lock = Lock()  # for writing; tuples are read as they are


def call_of(request: Request) -> Call | None:
    """None where nothing is kept: a matrix too large, or not in memory; a setting that is no number and no name."""
    if not _setting.get() or request.args:
        return None
    A, b = request.A, request.b
    shape: Any = getattr(A, "shape", ())
    if len(shape) != 2 or 0 in getattr(b, "shape", (0,)) or not isinstance(request.nullspace, str | None):
        return None
    try:
        bk = choose_backend(b, A, request.x0)
        if not (_is_plain(bk, b) and (request.x0 is None or _is_plain(bk, request.x0))):
            return None
        content = content_of(A, bk)
        size = 0 if content is None else content.nbytes
        if content is None or not 0 < size <= MOST_COMPARED:
            return None
        key: Hashable = (bk.name, content.form, tuple(b.shape), str(b.dtype), repr(type(b)), *_settings(request, bk))
        hash(key)
    except (NoBackendFound, TypeError, ValueError):  # refused by the solve itself, in its words
        return None
    return Call(A, bk, key, content, size <= MOST_BYTES, shape[0] >= LEAST and len(content.arrays) > 1)


def _is_plain(bk: Backend, b: Any) -> bool:
    """Is it one array in memory of the host, and does no transformation run? Derivatives by it may be recorded."""
    if type(b) is np.ndarray:
        return not bk.compiled() and not bk.in_program()
    return bk.is_array(b) and not bk.compiled(b) and bk.host_view(bk.constant(b)) is not None


def _settings(request: Request, bk: Backend) -> tuple[Hashable, ...]:
    """
    Raises:
        TypeError, ValueError: they cannot be compared, or are refused.
    """
    method, kind = request.method, request.preconditioner
    found = "auto" if is_auto(method) else find_method(method, request.A)
    if not isinstance(found, str) and (found.holds_external or not _is_ours(type(found))):
        raise TypeError(f"{found!r} may do something else each time.")
    if not (kind is None or kind == "auto" or (isinstance(kind, str) and _is_ours(PRECONDITIONERS.get(kind)))):
        raise TypeError(f"{kind!r} may be something else each time.")
    others = [getattr(request, name) for name in _COMPARED]
    if not (_PLAIN.issuperset(map(type, others)) or all(map(_is_plain_setting, others))):
        raise TypeError("An array, or something else, cannot be compared by `==`.")
    return found, get_precision(), bk.stored_dtype(np.dtype(np.float64)), *zip(map(type, others), others)


def _is_plain_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain_setting, value))
    return value is None or isinstance(value, str | int | float | complex | np.generic)


def _is_ours(thing: Any) -> bool:
    return thing is not None and thing.__module__.startswith(f"{__package__}.")


def find_setup(call: Call) -> Setup | None:
    """The setup that is kept for this call."""
    global _kept
    if not call.is_kept:
        return None
    for entry in _kept:
        if call.is_like(*entry[:2]):
            if entry is not _kept[0]:
                with _lock:
                    _kept = (entry, *(e for e in _kept if e is not entry))[:MOST]
            return entry[2]
    return None


def seen_before(call: Call) -> bool:
    """Was there a solve like this one lately? By a checksum, so with high probability only."""
    global _seen
    if not call.is_kept:
        return False
    this = call.key, call.content.checksum()
    with _lock:
        if this in _seen:
            return True
        _seen = (this, *_seen)[:_MOST_SEEN]
    return False


def keep_setup(call: Call, setup: Setup) -> None:
    """For later solves; what was kept longest without being used is let go."""
    global _kept
    if getattr(setup.M, "nbytes", 0) > MOST_FACTORS:
        return
    content = content_of(setup.source, call.bk)
    if content is None or not call.is_like(call.key, content):  # written to while it was solved
        return
    with _lock:
        _kept = ((call.key, content, setup), *(e for e in _kept if not call.is_like(*e[:2])))[:MOST]


@contextmanager
def setup_cache(enabled: bool) -> Iterator[None]:
    """Keep setups of repeated matrices inside the `with` block, or make each anew (per thread and task).

    Args:
        enabled: whether setups are kept.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.setup_cache(False):  # nothing of this matrix is kept
        ...     x = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2)).x
        >>> x
        array([1. , 0.5])
    """
    with _setting.local(bool(enabled)):
        yield


def set_global_setup_cache(enabled: bool) -> None:
    """Keep setups of repeated matrices in the whole process, or none; `setup_cache(enabled)` overrides it locally.

    Args:
        enabled: whether setups are kept; False also drops those that are kept now.

    Examples:
        >>> import krylix
        >>> krylix.set_global_setup_cache(False)
        >>> krylix.set_global_setup_cache(True)  # the default
    """
    _setting.set_global(bool(enabled))
    if not enabled:
        clear_setup_cache()


def clear_setup_cache() -> None:
    """Let go of everything that was kept for later solves: set-ups, analyses of patterns, factors and hierarchies.

    Which functions were solved with is forgotten, too: the next solve with each is a first one.

    Examples:
        >>> import krylix
        >>> krylix.clear_setup_cache()
    """
    global _kept, _seen
    with _lock:
        _kept, _seen = (), ()
    clear_patterns()
    clear_all()
