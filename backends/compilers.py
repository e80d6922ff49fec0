"""`without_compilers`: run a function outside of compilers that read Python source, and of strict modes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from .autocast import without_autocast
from .registry import get_backend

_wrapped: dict[tuple[Callable[..., Any], bool, bool, bool, bool], Callable[..., Any]] = {}


def without_compilers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, run outside of compilers that read Python source, autocast, and JAX's strict modes.

    `torch.compile` runs it between two graphs, AutoGraph as it is. PyTorch's autocast is off in it.
    """
    torch, tensorflow, dynamo, jax = _imported()
    # Where nobody has imported Dynamo, which takes a second, nobody compiles.
    compiles = dynamo is not None and hasattr(torch, "compiler")
    key = (function, compiles, hasattr(tensorflow, "autograph"), jax is not None, hasattr(torch, "_C"))
    if key not in _wrapped:
        wrapped = _leniently(function) if key[3] else function
        wrapped = tensorflow.autograph.experimental.do_not_convert(wrapped) if key[2] else wrapped
        wrapped = without_autocast(wrapped) if key[4] else wrapped
        _wrapped[key] = torch.compiler.disable(wrapped) if key[1] else wrapped
    return _wrapped[key]


def _imported() -> tuple[Any, ...]:
    return tuple(map(sys.modules.get, ("torch", "tensorflow", "torch._dynamo", "jax")))


# Dynamo would guard each of the thousands of modules, for a second in every program that it compiles.
_imported._torchdynamo_disable = True  # type: ignore[attr-defined]


def _leniently(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with get_backend("jax")._leniently():
            return function(*args, **kwargs)

    return called
