"""Functions that record their calls, and where these stand in for others while a profile runs.

They are attributes of backends (in the `__dict__` of the instance) and of classes, which are what they were when the
last profile has ended. So no operation has to ask whether a profile runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from threading import RLock
from types import MethodType
from typing import Any, NamedTuple

from ..operations.table import ALIASES, OPERATIONS
from ..registry import loaded_backends, when_loaded
from ..standard.library import EXTENSIONS, RULES
from . import spans
from .recording import RecordedRun
from .spans import RUNNING, CallDescription, Span, is_compiling, name_of

_lock = RLock()
_MISSING = object()


class Stand(NamedTuple):
    """What stood at a place before."""

    owner: Any
    name: str
    before: Any


class Watched:
    """Function that records its calls, a method in a class; with the attributes of the one that it calls.

    Args:
        find: returns that one when it is first needed, if it is not given.
    """

    def __init__(self, description: CallDescription, untimed: Any = None, find: Any = None) -> None:
        self.description, self._find = description, find
        if untimed is not None:
            self.untimed = untimed

    @cached_property
    def untimed(self) -> Any:
        """The function without the recording."""
        return self._find()

    @property
    def __wrapped__(self) -> Any:
        return self.untimed

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not RUNNING or is_compiling():
            return self.untimed(*args, **kwargs)
        kind, name, backend = self.description
        bk = backend(args) if callable(backend) else backend
        with Span(kind, name if isinstance(name, str) else name(args), bk, None, args, sys._getframe(1)) as done:
            return done(self.untimed(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name in ("untimed", "description", "_find"):  # of one that is being unpickled
            raise AttributeError(name)
        return getattr(self.untimed, name)

    def __repr__(self) -> str:
        return f"<profiled {self.untimed!r}>"


# --- what is running --------------------------------------------------------------------------------------------------

_stands: list[Stand] = []


def put(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of another one until the last profile has ended."""
    with _lock:
        if RUNNING:
            _stands.append(Stand(owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, function)


@contextmanager
def recorded(recording: RecordedRun) -> Iterator[None]:
    """Record into it inside the `with` block; the first of several profiles puts all watched functions in place."""
    try:
        with _lock:
            RUNNING.append(recording)
            if not _stands:
                _install()
        yield
    finally:
        with _lock:
            recording.finish()
            RUNNING.remove(recording)
            while _stands and not RUNNING:
                owner, name, before = _stands.pop()
                if before is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)


# --- Which functions of a backend a profile watches: all that compute with arrays -------------------------------------

# What asks about arrays or the library, or changes how one goes on.
_QUESTIONS = """
    at_once broadcast_size can_ask_host can_cast can_rescue check_numbers compiled compiles_numbers concrete_value
    constant constant_folded device dtype enable_double_precision enter errstate finfo flat flatten get_device
    get_sparse_format guard hiding_constants host_view iinfo in_program is_array is_available is_concrete is_sparse
    isdtype leave leaves list_devices may_leave_to_host on_device on_grid prefers_diagonals read_only recorded
    refuse_derivatives register result_type rows_on_host serves set_default_device shape size spreads_arrays
    staticshape stored_dtype supports tracks transpose_function uncut unleaves vmap with_auto_axes
    without_derivatives
"""
QUESTIONS = set(_QUESTIONS.split())
KIND_OF = {"host_call": "host call", "by_host": "host call", "rescued": "host call", "trace": "trace"}
# What returns a function, whose calls are watched; so is what every name that begins with `compile` returns.
MAKERS = {"jacobian": "derivative", "hessian": "derivative"}
PARTS = ("linalg", "fourier")  # of the solvers' interface, with methods of their own


def watch_backend(bk: Any) -> None:
    """Put watched functions in the place of the operations of a backend, of its factorisations and transforms."""
    if isinstance(vars(bk).get("reshape"), Watched):  # by another thread, which has just made it
        return
    makes: dict[str, Any] = {
        name: Watched(_description(bk, name), getattr(bk, name)) for name in _watched_names(type(bk))
    }
    for name in OPERATIONS:
        if not hasattr(type(bk), name) and name not in QUESTIONS:
            before = vars(bk).get(name)
            makes[name] = Watched(_description(bk, name), before, None if before else partial(_untimed, bk, name))
    for name in filter(makes_functions, makes):
        makes[name] = _making(bk, name, makes[name])
    makes["call_user"] = Watched(CallDescription("user", lambda args: name_of(args[0]), bk), bk.call_user)
    for alias, name in ALIASES.items():
        if name in makes and not hasattr(type(bk), alias):
            makes[alias] = makes[name]
    for name, made in makes.items():
        put(bk, name, made)
    # Last, and so taken away first: operations that another thread looks for then are not watched ones.
    if isinstance(type(bk).xp, cached_property):  # as it is but in backends that users have written
        xp = vars(bk).get("xp")
        put(bk, "xp", WatchedNamespace(bk, cache(lambda: type(bk).xp.func(bk) if xp is None else xp)))  # takes ms
    # Backends that users have written may have none, or share those of another: then that one's calls are recorded.
    for part in PARTS:
        owner = getattr(bk, part, None)
        names = [] if owner is None else _watched_names(type(owner))
        for name in (name for name in names if not isinstance(getattr(owner, name), Watched)):
            put(owner, name, Watched(_description(bk, f"{part}.{name}"), getattr(owner, name)))


def _untimed(bk: Any, name: str) -> Any:
    found = bk._bind(name)
    return getattr(found, "untimed", found)  # the standard's own are watched, too


def makes_functions(name: str) -> bool:
    """Returns the operation a function, whose calls are watched?"""
    return name in MAKERS or name.startswith("compile")


def _watched_names(cls: type) -> list[str]:
    functions = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_") and name not in QUESTIONS}
    return [name for name, found in functions.items() if callable(found) and not isinstance(found, type)]


def _description(bk: Any, name: str) -> CallDescription:
    return CallDescription(KIND_OF.get(name, "operation"), name, bk)


def _making(bk: Any, name: str, make: Watched) -> Callable[..., Any]:
    kind = MAKERS.get(name, "compiled")

    def made(*args: Any, **kwargs: Any) -> Any:
        found, function = make.untimed(*args, **kwargs), next(iter((*args, *kwargs.values())), None)
        title = name_of(function) if kind == "compiled" else f"{name} of {name_of(function)}"
        return found if found is function else Watched(CallDescription(kind, title, bk), found)

    return made


class WatchedNamespace:
    """`bk.xp`, whose functions record their calls."""

    def __init__(self, bk: Any, namespace: Callable[[], Any], extension: str = "") -> None:
        self._bk, self._namespace, self._extension = bk, namespace, extension

    def __getattr__(self, name: str) -> Any:
        if name in ("_bk", "_namespace", "_extension"):
            raise AttributeError(name)
        found = getattr(self._namespace(), name)
        full = f"{self._extension}.{name}" if self._extension else name
        if full in EXTENSIONS:
            made: Any = WatchedNamespace(self._bk, lambda: found, full)
        elif full not in RULES or full in QUESTIONS:
            return found
        else:
            made = Watched(_description(self._bk, full), found)
        self.__dict__[name] = made
        return made

    def __dir__(self) -> list[str]:
        return dir(self._namespace())

    def __repr__(self) -> str:
        return f"<profiled {self._namespace()!r}>"


# --- Watched functions in all their places ----------------------------------------------------------------------------


def _install() -> None:
    for bk in (*loaded_backends(), *spans.further_backends):
        watch_backend(bk)
    for owner, name, description in (method for methods in spans.providers for method in methods()):
        put(owner, name, Watched(description, vars(owner)[name]))


def _watch_late(bk: Any) -> None:
    """Watch a backend whose library is needed for the first time."""
    if RUNNING:
        watch_backend(bk)


when_loaded.append(_watch_late)
