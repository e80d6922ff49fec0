"""Rules for products with constant arrays and sparse matrices, convolutions and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....errors import UnsupportedOperation
from ...engine import coefficients as co
from ...engine.arithmetic import conjugate, convert, scale
from ...engine.linear import Linear, reshape
from ...engine.operands import shape_of
from ...engine.operations.fourier import fourier, fourier_of_real, fourier_to_real
from ...engine.operations.products import product, sparse_product
from ...engine.positions import take
from ...engine.products.convolution import convolve
from ...engine.refusals import NoRule, NotLinear
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


# --- convolutions ---------------------------------------------------------------------------------------------------


def _convolution(
    step: Step,
    image: Any,
    kernel: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if isinstance(image, Linear) and isinstance(kernel, Linear):
        raise NotLinear("the image and the kernel depend on it")
    if isinstance(image, Linear) or isinstance(kernel, Linear):
        by = _transposed if transposed else _direct
        result = by(image, kernel, stride, padding, dilation, output_padding, groups)
    else:
        device = device_of((image, kernel))
        settings = (stride, padding, dilation, transposed, output_padding, groups)
        result = coefficient(step.function(tensor(image, device), tensor(kernel, device), None, *settings))
    if bias is None:
        return result
    shape = (1, -1, *[1] * (len(step.shape) - 2))
    channels = reshape(bias, (1, bias.size, *shape[2:])) if isinstance(bias, Linear) else bias.reshape(shape)
    return plus(result, channels)


def _direct(
    image: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
) -> Linear:
    d = len(shape_of(kernel)) - 2
    stride, padding, dilation = (_each(v, d) for v in (stride, padding, dilation))
    return convolve(image, kernel, stride, [(p, p) for p in padding], [1] * d, dilation, groups)


def _transposed(
    image: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
) -> Linear:
    shape = shape_of(kernel)
    d = len(shape) - 2
    stride, padding, dilation, more = (_each(v, d) for v in (stride, padding, dilation, output_padding))
    reach = [(n - 1) * step - p for n, step, p in zip(shape[2:], dilation, padding)]
    widths = [(r, r + m) for r, m in zip(reach, more)]
    return convolve(image, _turned(kernel, groups), [1] * d, widths, stride, dilation, groups)


def _turned(kernel: Any, groups: int) -> Any:
    """A kernel `(in, out / groups, ...)` of a transposed convolution as that of a direct one."""
    n_in, n_out, *space = shape_of(kernel)
    order = [0, 2, 1, *range(3, 3 + len(space))]
    where = np.arange(math.prod(shape_of(kernel))).reshape(groups, n_in // groups, n_out, *space).transpose(order)
    where = np.flip(where, tuple(range(3, where.ndim))).reshape(groups * n_out, n_in // groups, *space)
    if isinstance(kernel, Linear):
        return take(kernel, where)
    flat = kernel.reshape(-1)
    return flat[where] if co.known(kernel) else flat[torch.from_numpy(where.copy()).to(flat.device)]


def _convolution_backward(
    step: Step,
    gradient: Any,
    image: Any,
    kernel: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Any]:
    """The first of the three derivatives: a convolution with the kernel turned round."""
    others = NoRule()
    if not isinstance(gradient, Linear) or isinstance(kernel, Linear):
        return [NotLinear() if isinstance(kernel, Linear) else others, others, others]
    d = len(shape_of(kernel)) - 2
    stride, padding, dilation = (_each(v, d) for v in (stride, padding, dilation))
    if transposed:
        found = _direct(gradient, kernel, stride, padding, dilation, 0, groups)
    else:
        sizes = zip(gradient.shape[2:], shape_of(image)[2:], shape_of(kernel)[2:], stride, padding, dilation)
        more = [n - ((m - 1) * s - 2 * p + (k - 1) * e + 1) for m, n, k, s, p, e in sizes]
        found = _transposed(gradient, kernel, stride, padding, dilation, more, groups)
    return [found, others, others]


def _each(value: Any, d: int) -> list[int]:
    values = list(value) if isinstance(value, Sequence) else [value]
    return [int(v) for v in (values * d if len(values) == 1 else values)]


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
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    **FOURIER,
}
