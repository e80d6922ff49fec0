"""What modules, that a function is or holds, change from one evaluation to the next: modes, buffers, dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from .read import LibraryFunction
from .table import PEERS, Peer, peer_of

WITH_MODES = {peer.package for peer in PEERS if peer.has_modes}
"""Names of the libraries that have such modules."""
_MOST = 64  # objects that are looked at


def state_of(function: Any) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Modes of the modules that a function is, belongs to or names, and what takes back its writes.

    Returns:
        Modes, to be compared. Other things that it reads, as entries of a dictionary, are not seen.
        A function that takes back what evaluations write from now on to buffers of these modules, such as the
        statistics of a normalisation.

    Cost: some microseconds, and a copy of the buffers of a module in training mode.
    """
    modules = _modules(function)
    undo: list[Callable[[], None]] = [_reader(peer).keep(module) for module, peer in modules]

    def all_of_them() -> None:
        for one in undo:
            one()

    return tuple(_reader(peer).mode(module) for module, peer in modules), all_of_them


def wrong_dtype(function: Any, dtype: np.dtype) -> str | None:
    """Why one of these modules may have refused a vector of `dtype`, in words; None where its numbers have it."""
    found = (_reader(peer).wrong_dtype(module, dtype) for module, peer in _modules(function))
    return next((words for words in found if words is not None), None)


def _reader(peer: Peer) -> Any:
    return import_module(f".{peer.module}", __package__)


def _modules(function: Any) -> list[tuple[Any, Peer]]:
    found = []
    for x in _held(function):
        peer = peer_of(type(x))
        if peer is not None and peer.has_modes:
            found.append((x, peer))
    return found


def _held(function: Any) -> list[Any]:
    """The function, and what it is bound to, closes over or names, each once."""
    held, seen = [function], {id(function)}
    for it in held:
        for x in _parts(it):
            if id(x) not in seen and len(held) < _MOST:
                seen.add(id(x))
                held.append(x)
    return held


def _parts(it: Any) -> Iterator[Any]:
    if isinstance(it, FunctionType):
        yield from _cells(it)
        yield from _globals(it.__code__, it.__globals__)
    elif isinstance(it, partial):
        yield from (it.func, *it.args, *it.keywords.values())
    elif isinstance(it, LibraryFunction):
        yield it.function
    else:
        owner = getattr(it, "__self__", None)
        if owner is not None:
            yield owner
            yield getattr(it, "__func__", None)


def _globals(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    for name in code.co_names:
        x = names.get(name)
        if isinstance(x, FunctionType) or (x is not None and peer_of(type(x)) is not None):
            yield x


def _cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name without a value yet
            continue
