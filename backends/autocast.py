"""Disable PyTorch's autocast in krylix: a solve in half precision would not reach its tolerance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any, ParamSpec, TypeVar

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
