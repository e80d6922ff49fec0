"""Batched cotangents: `grad(..., is_grads_batched=True)` and `jacobian(..., vectorize=True)`.

Autograd maps over them with a batching of its own, older than `torch.func.vmap`, which knows no rules of custom
functions. A rule that meets such a batch takes it apart and is mapped by `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _functorch  # not public, as the next functions of torch; a test pins them


def is_batch_of_autograd(x: Any) -> bool:
    """Is it a batched tensor of autograd's own kind?"""
    return isinstance(x, torch.Tensor) and _functorch.is_legacy_batchedtensor(x)


def one_by_one(rule: Callable[[torch.Tensor], tuple[Any, ...]], cotangents: torch.Tensor) -> tuple[Any, ...]:
    """Map `rule` over such a batch of cotangents; the same entries are None for each."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    places: list[bool] = []

    def present(cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = rule(cotangent)
        places[:] = [r is not None for r in results]
        return tuple(r for r in results if r is not None)

    rows = torch._remove_batch_dim(cotangents, level, 1, 0)
    found = iter(torch._add_batch_dim(r, 0, level) for r in torch.func.vmap(present)(rows))
    return tuple(next(found) if is_there else None for is_there in places)
