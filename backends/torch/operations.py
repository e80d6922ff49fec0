"""PyTorch's own functions for operations that the standard does not have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import lgamma as lgamma
from torch.special import erf as erf
from torch.utils._pytree import tree_leaves

from ..interface import random_numbers
from ..interface.arrays import Array
from .tensors import is_transformed


def _of_numbers(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The function, and NaN of NaN, for which PyTorch's has the limits of the other argument."""
    return lambda a, x: torch.where(torch.isnan(a) | torch.isnan(x), torch.nan, function(a, x))


gammainc, gammaincc = _of_numbers(torch.special.gammainc), _of_numbers(torch.special.gammaincc)
einsum, eigvals = torch.einsum, torch.linalg.eigvals


def scatter_rows(rows: Array, places: Array, values: Array, mode: str) -> Array:
    """Rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    places = places.long()
    if mode in ("update", "add"):
        return rows.index_put((places,), values, accumulate=mode == "add")
    return rows.scatter_reduce(0, places[:, None].expand(values.shape), values, f"a{mode}")


def eig(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors in columns, complex."""
    values, vectors = torch.linalg.eig(matrix)
    return values, vectors


def get_sparse_format(x: Array) -> str:
    """The format of one of PyTorch's sparse matrices; "dense" of arrays."""
    return "dense" if x.layout == torch.strided else str(x.layout).removeprefix("torch.sparse_").replace("torch.", "")


def variable(x: Array) -> Array:
    """A tensor of its own with the values of `x`, whose derivatives are recorded."""
    return x.detach().clone().requires_grad_()


def block_until_ready(tree: Any) -> Any:
    """See `operations.functions`."""
    for device in {x.device for x in tree_leaves(tree) if isinstance(x, torch.Tensor)}:
        if device.type not in ("cpu", "meta"):
            getattr(torch, "accelerator", torch.cuda).synchronize(device)
    return tree


def compile(f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """See `operations.functions`."""
    return torch.compile(f)


# --- Random numbers in PyTorch: without a key of its own generator, which `torch.manual_seed` sets --------------------
# With a key by NumPy's generator: that of torch's CPU has 32 bits of seed, too few for many keys.


class TorchRandomNumbers(random_numbers.RandomNumbers):
    """Draws by torch or, with a key, by NumPy."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(random_numbers.known_seed(seed))

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


RandomNumbers = TorchRandomNumbers

__all__ = ["RandomNumbers", "erf", "lgamma"]
