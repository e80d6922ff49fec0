"""PyTorch's own functions for operations that the standard does not have."""

import torch
from torch import lgamma as lgamma
from torch.special import erf as erf
from torch.special import gammainc as gammainc
from torch.special import gammaincc as gammaincc

from ..interface.arrays import Array

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


__all__ = ["erf", "gammainc", "gammaincc", "lgamma"]
