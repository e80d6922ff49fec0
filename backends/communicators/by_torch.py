"""Process groups of torch.distributed, for tensors."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .communicator import as_integers


class TorchCommunicator:
    """See `Communicator`. Every reduction is one `all_reduce` of a copy, which records no derivatives."""

    is_traced = False

    def __init__(self, group: Any) -> None:
        self.group = group
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.key: Hashable = ("torch", group)
        # NCCL reduces memory of its devices only
        self.device = torch.device("cuda") if dist.get_backend(group) == "nccl" else torch.device("cpu")

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return self._reduced(x, dist.ReduceOp.SUM)

    def max(self, x: torch.Tensor) -> torch.Tensor:
        return self._reduced(x, dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        return self.max_of_numbers([int(flag)]) == [1]

    def sum_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return self._of_numbers(numbers, dist.ReduceOp.SUM)

    def max_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return self._of_numbers(numbers, dist.ReduceOp.MAX)

    def _of_numbers(self, numbers: Sequence[int], operation: Any) -> list[int]:
        found: list[int] = self._reduced(torch.as_tensor(as_integers(numbers), device=self.device), operation).tolist()
        return found

    def _reduced(self, x: torch.Tensor, operation: Any) -> torch.Tensor:
        copy = x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(copy, op=operation, group=self.group)
        return copy


def by_torch(over: Any) -> TorchCommunicator | None:
    """The communicator; None if it is no process group."""
    return TorchCommunicator(over) if isinstance(over, dist.ProcessGroup) else None
