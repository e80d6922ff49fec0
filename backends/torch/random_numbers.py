"""Random numbers in PyTorch: without a key of its own generator, which `torch.manual_seed` sets.

With a key by NumPy's generator: that of torch's CPU has 32 bits of seed, too few for many keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..interface.random_numbers import RandomNumbers, known_seed
from .transformed import is_transformed


class TorchRandomNumbers(RandomNumbers):
    """Draws by torch or, with a key, by NumPy."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(known_seed(seed))

    def uniform(self, shape: Sequence[int], double: bool, key: Any) -> torch.Tensor:
        if key is None:
            return torch.rand(tuple(shape), dtype=_real(double))
        return super().uniform(shape, double, key)

    def normal(self, shape: Sequence[int], double: bool, key: Any) -> torch.Tensor:
        if key is None:
            return torch.randn(tuple(shape), dtype=_real(double))
        return super().normal(shape, double, key)

    def integers(self, shape: Sequence[int], low: int, high: int, key: Any) -> torch.Tensor:
        if key is None:
            return torch.randint(low, high, tuple(shape))
        return super().integers(shape, low, high, key)

    def widest_limits(self, key: Any) -> tuple[int, int]:
        least, most = super().widest_limits(key)
        return least, most - (key is None)

    def permutations(self, count: int, n: int, key: Any) -> torch.Tensor:
        if key is None:
            return torch.argsort(torch.rand((count, n), dtype=torch.float64), dim=1)
        return super().permutations(count, n, key)

    def _words(self, key: Any) -> Any:
        if is_transformed(key):
            raise TypeError(
                "key= got a tensor that torch.func transforms; expected one with numbers. Draw the random numbers "
                "outside of the transformed function, or give the key as an argument that is not transformed."
            )
        return super()._words(key)


def _real(double: bool) -> torch.dtype:
    return torch.float64 if double else torch.float32
