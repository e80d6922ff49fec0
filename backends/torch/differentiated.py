"""The derivatives of a loss in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..interface.transformations import Differentiated


def differentiated(function: Callable[..., tuple[torch.Tensor, Any]], arrays: Sequence[torch.Tensor]) -> Differentiated:
    """See `Transformations._differentiated`.

    By `torch.func`, so that what the function closes over keeps its derivatives, and the arrays theirs outside of it.
    """
    loss, pull, outputs = torch.func.vjp(function, *arrays, has_aux=True)
    return Differentiated(loss, outputs, pull, torch.func.vmap(pull))


def outside_compilers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; inside of `torch.compile` it runs between two graphs, where that cannot follow derivatives."""
    disabled: Callable[..., Any] = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
    return disabled
