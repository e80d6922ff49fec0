"""Rules for products with constant arrays and sparse matrices, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....errors import UnsupportedOperation
from ...engine.arithmetic import conjugate, convert, scale
from ...engine.linear import Linear
from ...engine.operations.fourier import fourier, fourier_of_real, fourier_to_real
from ...engine.operations.products import product, sparse_product
from ...engine.refusals import NoRule
from ..steps import Step
from .arithmetic import plus, times
from .tensors import coefficient, device_of, tensor


def _matrices(step: Step, a: Any, b: Any, *args: Any) -> Any:
    if any(isinstance(x, torch.Tensor) and x.layout != torch.strided for x in (a, b)):
        return _sparse_product(a, b)
    return product(a, b, ((1,), (0,)))


def _batches(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((2,), (1,)), ((0,), (0,)))


def _dot(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((0,), (0,)))


def _added(by: Callable[..., Any]) -> Callable[..., Any]:
    """`beta x + alpha a b`."""

    def rule(step: Step, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        if isinstance(a, Linear) or isinstance(b, Linear):
            return plus(times(beta, x), times(alpha, by(step, a, b)))
        device = device_of((a, b))
        zeros = torch.zeros(x.shape, dtype=step.place.dtype, device=device)
        constant = step.function(zeros, tensor(a, device), tensor(b, device), beta=0, alpha=alpha)
        return plus(times(beta, x), coefficient(constant))

    return rule


def _conjugated_dot(step: Step, a: Any, b: Any) -> Any:
    return _dot(step, conjugate(a) if isinstance(a, Linear) else a.conj(), b)


def _outer(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((), ()))


def _sum_of_batches(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((0, 2), (0, 1)))


def _sparse_product(a: Any, b: Any) -> Any:
    """By the entries: rows of b, multiplied and added up."""
    if not isinstance(b, Linear) or not isinstance(a, torch.Tensor):
        raise NoRule()
    if a.requires_grad:
        raise UnsupportedOperation(
            "torch does not differentiate sparse tensors twice. Compute with indices and values(), or detach it."
        )
    entries = a.to_sparse_coo().coalesce()
    rows, columns = entries.indices().cpu().numpy()
    return sparse_product(rows, columns, entries.values().cpu().numpy(), a.shape[0], b)


# --- Fourier transforms ---------------------------------------------------------------------------------------------

_NORMALISED = {0: 0.0, 1: -0.5, 2: -1.0}  # none, by the root of the number of elements, by that number


def _normalised(x: Linear, count: int, normalization: int) -> Linear:
    return x if normalization == 0 else scale(x, float(count) ** _NORMALISED[normalization])


def _complex_transform(step: Step, x: Linear, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    x = fourier(convert(x, np.result_type(x.dtype, np.complex64)), dim, forward, scaled=False)
    return _normalised(x, math.prod(x.shape[a] for a in dim), normalization)


def _from_real(step: Step, x: Linear, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    return _normalised(fourier_of_real(x, dim, onesided), math.prod(x.shape[a] for a in dim), normalization)


def _to_real(step: Step, x: Linear, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    found = scale(fourier_to_real(x, dim, last_dim_size, scaled=False), float(last_dim_size))
    return _normalised(found, math.prod(found.shape[a] for a in dim), normalization)


FOURIER = {  # do not commute with conjugation
    "_fft_c2c": _complex_transform,
    "_fft_r2c": _from_real,
    "_fft_c2r": _to_real,
}
PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": _matrices,
    "mv": _matrices,
    "_sparse_mm": _matrices,
    "bmm": _batches,
    "dot": _dot,
    "vdot": _conjugated_dot,
    "addmm": _added(_matrices),
    "_sparse_addmm": _added(_matrices),
    "addmv": _added(_matrices),
    "baddbmm": _added(_batches),
    "addbmm": _added(_sum_of_batches),
    "addr": _added(_outer),
    **FOURIER,
}
