"""Functions that record their calls, and where they stand in while a profile runs.

They are attributes of backends (in the `__dict__` of the instance), their parts and namespaces, and of classes, which
are what they were when the last profile has ended. So no operation has to ask whether a profile runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from types import MethodType
from typing import Any

from ..operations.table import ALIASES, OPERATIONS
from ..registry import loaded_backends, when_loaded
from ..standard.library import EXTENSIONS, RULES
from ..standard.namespace import Namespace
from . import spans
from .spans import RUNNING, Span, is_compiling, name_of

_lock = RLock()
_MISSING = object()
_replaced: list[tuple[Any, str, Any]] = []  # owner, name, and the attribute of this name that it had itself


class Watched:
    """Function that records its calls, a method in a class; with the attributes of the one that it calls.

    Args:
        kind, name, backend: see `spans.WatchedMethod`.
        untimed: the function without the recording.
    """

    def __init__(self, kind: str, name: Any, backend: Any, untimed: Any) -> None:
        self.kind, self.name, self.backend, self.untimed = kind, name, backend, untimed

    @property
    def __wrapped__(self) -> Any:
        return self.untimed

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not RUNNING or is_compiling():
            return self.untimed(*args, **kwargs)
        name = self.name if isinstance(self.name, str) else self.name(args)
        bk = self.backend(args) if callable(self.backend) else self.backend
        with Span(self.kind, name, bk, None, args, sys._getframe(1)) as done:
            return done(self.untimed(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name == "untimed":  # of one that is being unpickled
            raise AttributeError(name)
        return getattr(self.untimed, name)

    def __repr__(self) -> str:
        return f"<profiled {self.untimed!r}>"


def _put(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of another one until the last profile has ended."""
    with _lock:
        if RUNNING:
            _replaced.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, function)


@contextmanager
def watched(profile: Any) -> Iterator[None]:
    """Have the profile run; the first of several puts all watched functions in place, the last takes them away."""
    try:
        with _lock:
            RUNNING.append(profile)
            if not _replaced:
                for bk in (*loaded_backends(), *spans.further_backends):
                    watch_backend(bk)
                for owner, name, kind, title, bk in (method for methods in spans.providers for method in methods()):
                    _put(owner, name, Watched(kind, title, bk, vars(owner)[name]))
        yield
    finally:
        with _lock:
            RUNNING.remove(profile)
            while _replaced and not RUNNING:
                owner, name, before = _replaced.pop()
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
    """Put watched functions in the place of the operations of a backend, of its factorisations, transforms and `xp`."""
    if not RUNNING or isinstance(vars(bk).get("reshape"), Watched):  # by another thread, which has just made it
        return
    operations = (name for name in OPERATIONS if name not in QUESTIONS and not hasattr(type(bk), name))
    functions: dict[str, Any] = {name: getattr(bk, name, None) for name in (*_methods(type(bk)), *operations)}
    made: dict[str, Any] = {}
    for name, function in functions.items():
        if isinstance(function, Watched):  # of `xp`, which this library shares with one that is watched already
            function = vars(bk)[name] = function.untimed
        if makes_functions(name):
            made[name] = _making(bk, name, function)
        elif function is not None:  # else this library has no such operation
            made[name] = Watched(KIND_OF.get(name, "operation"), name, bk, function)
    made["call_user"] = Watched("user", lambda args: name_of(args[0]), bk, bk.call_user)
    made |= {alias: made[name] for alias, name in ALIASES.items() if name in made and not hasattr(type(bk), alias)}
    # Backends that users have written may have no parts, or share those of another: that one's calls are recorded.
    parts = [(part, getattr(bk, part, None)) for part in PARTS]
    within = [(f"{part}.", owner, _methods(type(owner))) for part, owner in parts if owner is not None]
    if isinstance(xp := getattr(bk, "xp", None), Namespace):
        spaces = [("", xp), *((f"{extension}.", getattr(xp, extension)) for extension in EXTENSIONS)]
        within += [(p, owner, [n for n in vars(owner) if p + n in RULES.keys() - QUESTIONS]) for p, owner in spaces]
    for name, function in made.items():
        _put(bk, name, function)
    for prefix, owner, names in within:
        for name in names:
            if not isinstance(function := getattr(owner, name), Watched):
                _put(owner, name, Watched("operation", prefix + name, bk, function))


def makes_functions(name: str) -> bool:
    """Returns the operation a function, whose calls are watched?"""
    return name in MAKERS or name.startswith("compile")


def _methods(cls: type) -> Iterable[str]:
    """Names of the methods that compute."""
    names = (name for name in dir(cls) if not name.startswith("_") and name not in QUESTIONS)
    return [name for name in names if callable(method := getattr(cls, name)) and not isinstance(method, type)]


def _making(bk: Any, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
    kind = MAKERS.get(name, "compiled")

    def made(*args: Any, **kwargs: Any) -> Any:
        made, function = make(*args, **kwargs), next(iter((*args, *kwargs.values())), None)
        title = name_of(function) if kind == "compiled" else f"{name} of {name_of(function)}"
        return made if made is function else Watched(kind, title, bk, made)

    return made


when_loaded.append(watch_backend)
