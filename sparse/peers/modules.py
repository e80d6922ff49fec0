"""`torch.nn.Module`s that a function is or holds: what their evaluations change, and their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...backends import get_backend
from .read import LibraryFunction
from .table import peer_of

WITH_MODES = {"torch"}  # libraries that have such modules
_MOST = 64  # objects that are looked at
_CASTS = {"float32": "{}.float()", "float64": "{}.double()", "float16": "{}.half()"}


def state_of(function: Any) -> tuple[tuple[tuple[bool, ...], ...], Callable[[], None]]:
    """Which parts of the modules that a function is, belongs to or names are in training mode; and an undo.

    The second function takes back what evaluations write from now on to buffers of these modules, such as the
    statistics of a normalisation. Other things that the function reads, as entries of a dictionary, are not seen.

    Cost: some microseconds, and a copy of the buffers of a module in training mode.
    """
    modules = _modules(function)
    modes = tuple(tuple(part.training for part in module.modules()) for module in modules)
    kept = [
        (part, name, buffer, buffer.detach().clone())
        for module, mode in zip(modules, modes, strict=True)
        if any(mode)
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]

    def undo() -> None:
        for part, name, buffer, values in kept:
            buffer.detach().copy_(values)  # its version does not tell: normalisations write without
            part._buffers[name] = buffer

    return modes, undo


def wrong_dtype(function: Any, dtype: np.dtype) -> str | None:
    """Why one of these modules may have refused a vector of `dtype`, in words; None where its numbers have it."""
    found = (_wrong_dtype(module, dtype) for module in _modules(function))
    return next((words for words in found if words is not None), None)


def _wrong_dtype(module: Any, dtype: np.dtype) -> str | None:
    bk = get_backend("torch")
    found = {bk.dtype(p) for p in (*module.parameters(), *module.buffers()) if p.is_floating_point() or p.is_complex()}
    if len(found) != 1 or dtype in found:
        return None
    own = found.pop()
    what = f"the parameters of the module {type(module).__name__} are {own}, b is taken as {dtype}"
    if dtype.kind == "c" and own.kind != "c":
        return f"{what}: call module.to(torch.{dtype}), or solve for the real and the imaginary part of b"
    b, other = (_CASTS.get(name, f"{{}}.to(torch.{name})") for name in (own.name, dtype.name))
    return f"{what}: give {b.format('b')}, or call {other.format('module')}"


def _modules(function: Any) -> list[Any]:
    """Those among the function and what it is bound to, closes over or names, each once."""
    held, seen = [function], {id(function)}
    for it in held:
        for x in _parts(it):
            if id(x) not in seen and len(held) < _MOST:
                seen.add(id(x))
                held.append(x)
    return [x for x in held if _is_module(x)]


def _is_module(x: Any) -> bool:
    peer = peer_of(type(x))
    return peer is not None and peer.package in WITH_MODES


def _parts(it: Any) -> Iterator[Any]:
    if isinstance(it, FunctionType):
        for cell in it.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a name without a value yet
                continue
        yield from _globals(it.__code__, it.__globals__)
    elif isinstance(it, partial):
        yield from (it.func, *it.args, *it.keywords.values())
    elif isinstance(it, LibraryFunction):
        yield it.function
    elif (owner := getattr(it, "__self__", None)) is not None:
        yield from (owner, getattr(it, "__func__", None))


def _globals(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    for name in code.co_names:
        x = names.get(name)
        if isinstance(x, FunctionType) or (x is not None and peer_of(type(x)) is not None):
            yield x
