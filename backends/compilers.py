"""Run functions outside of compilers that read Python source, of PyTorch's autocast, and of strict modes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from .registry import get_backend

P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, in which tensors keep their dtype; what it calls of the user's too."""

    @wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        torch: Any = sys.modules["torch"]
        if not torch._C._is_any_autocast_enabled():
            return function(*args, **kwargs)
        with ExitStack() as stack:
            for device in ("cpu", "cuda", "mps", "xpu"):
                if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return in_full_precision


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
