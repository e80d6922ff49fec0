"""PyTorch's own functions for operations that the standard does not have."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import lgamma as lgamma
from torch.special import erf as erf
from torch.utils._pytree import tree_leaves

from ..interface.arrays import Array
from .random_numbers import TorchRandomNumbers as RandomNumbers


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


__all__ = ["RandomNumbers", "erf", "lgamma"]
