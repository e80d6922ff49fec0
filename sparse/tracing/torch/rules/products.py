"""Rules for products with constant arrays and sparse matrices, Fourier transforms, convolutions, interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....errors import UnsupportedOperation
from ...engine.arithmetic import conjugate, convert, reduce_sum, scale
from ...engine.convolution import Windows, convolve, convolve_by_image, convolve_by_kernel
from ...engine.images import along_axes, fourier, fourier_of_real, fourier_to_real
from ...engine.linear import Linear
from ...engine.operands import NoRule, NotLinear, plus, reshaped, shape_of
from ...engine.products import linear_factor, product, sparse_product
from ...engine.structural import cut, transpose
from ..recorder import Step
from .arithmetic import by_first, by_shapes, coefficient, device_of, tensor, times


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


def _outer(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((), ()))


def _sum_of_batches(step: Step, a: Any, b: Any) -> Any:
    return product(a, b, ((0, 2), (0, 1)))


def _sparse_product(a: Any, b: Any) -> Any:
    if not isinstance(b, Linear) or not isinstance(a, torch.Tensor):
        raise NoRule()
    if a.requires_grad:
        raise UnsupportedOperation(
            "torch does not differentiate sparse tensors twice. Compute with indices and values(), or detach it."
        )
    entries = a.to_sparse_coo().coalesce()
    rows, columns = entries.indices().cpu().numpy()
    return sparse_product(rows, columns, entries.values().cpu().numpy(), a.shape[0], b)


# --- Fourier transforms -----------------------------------------------------------------------------------------------

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
# --- convolutions and average pooling ---------------------------------------------------------------------------------


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
    if isinstance(image, Linear) or isinstance(kernel, Linear):
        a, b, c = (_each(v, len(step.shape) - 2) for v in (stride, padding, dilation))
        result: Any = _by_engine(image, kernel, step.shape[2:], a, b, c, transposed, groups)
    else:
        device = device_of((image, kernel))
        settings = (stride, padding, dilation, transposed, output_padding, groups)
        result = coefficient(step.function(tensor(image, device), tensor(kernel, device), None, *settings))
    if bias is None:
        return result
    bk = next(x.bk for x in (result, bias) if isinstance(x, Linear))
    return plus(result, reshaped(bk, bias, (1, math.prod(shape_of(bias)), *[1] * (len(step.shape) - 2))))


def _by_engine(
    image: Any,
    kernel: Any,
    space: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Linear:
    linear_factor(image, kernel)
    if transposed:
        return convolve_by_image(image, kernel, space, stride, padding, dilation, groups)
    found = convolve(image, kernel, stride, [(p, p) for p in padding], [1] * len(space), dilation, groups)
    for axis, n in enumerate(space, 2):  # the transpose of a transposed one with output padding may reach further
        found = found if found.shape[axis] == n else cut(found, axis, 0, n)
    return found


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
    taps = shape_of(kernel)[2:]
    stride, padding, dilation = (_each(v, len(taps)) for v in (stride, padding, dilation))

    def by_image() -> Linear:
        return _by_engine(gradient, kernel, shape_of(image)[2:], stride, padding, dilation, not transposed, groups)

    def by_kernel() -> Any:
        if groups > 1:
            return NoRule()
        a, b = (gradient, image) if transposed else (image, gradient)
        found = convolve_by_kernel(a, b, taps, stride, padding, dilation)
        return transpose(found, [1, 0, *range(2, found.ndim)])

    def by_bias() -> Linear:
        return reduce_sum(gradient, [a for a in range(gradient.ndim) if a != 1])

    def constant(number: int) -> Any:
        settings = (bias_sizes, stride, padding, dilation, transposed, output_padding, groups)
        return by_shapes(step, (gradient, image, kernel, *settings, [k == number for k in range(3)]))[number]

    def found(number: int, rule: Callable[[], Any], factors: Sequence[Any]) -> Any:
        count = sum(isinstance(x, Linear) for x in factors)
        return constant(number) if count == 0 else rule() if count == 1 else NotLinear("both factors depend on it")

    rules = ((by_image, (gradient, kernel)), (by_kernel, (gradient, image)), (by_bias, (gradient,)))
    return [found(k, *rules[k]) if wanted else None for k, wanted in enumerate(output_mask)]


def _each(value: Any, d: int) -> list[int]:
    values = [int(v) for v in value] if isinstance(value, Sequence) else [int(value)]
    return values * d if len(values) == 1 else values


def _windows(space: Sequence[int], counts: Sequence[int], window: Any, stride: Any, padding: Any) -> Windows:
    d = len(space)
    return Windows(space, _each(window, d), _each(stride or window, d), _each(padding, d), counts)


def _shares(function: Any, windows: Windows, lead: int, settings: Sequence[Any]) -> np.ndarray:
    """What torch divides the sum over each window by, as a factor."""
    ones = torch.ones((1,) * lead + tuple(windows.space), dtype=torch.float64, device="cpu")
    means = function(ones, windows.sizes, windows.strides, windows.before, *settings).numpy()
    return np.asarray(means / windows.elements())


def _average(d: int) -> Callable[..., Any]:

    def rule(step: Step, x: Linear, window: Any, stride: Any = (), padding: Any = (0,), *settings: Any) -> Any:
        windows = _windows(x.shape[-d:], step.shape[-d:], window, stride, padding)
        sums = windows.sums(x)
        return scale(sums, np.broadcast_to(_shares(step.function, windows, x.ndim - d, settings), sums.shape))

    return rule


def _average_backward(d: int) -> Callable[..., Any]:
    forward = {2: torch.ops.aten.avg_pool2d.default, 3: torch.ops.aten.avg_pool3d.default}[d]

    @by_first
    def rule(step: Step, x: Linear, image: Any, window: Any, stride: Any, padding: Any, *settings: Any) -> Any:
        windows = _windows(step.shape[-d:], x.shape[-d:], window, stride, padding)
        return windows.sums_transposed(scale(x, _shares(forward, windows, x.ndim - d, settings)))

    return rule


# --- interpolation on grids: a matrix along each axis -----------------------------------------------------------------


def _separable(d: int, has_scales: bool = True, width: int = 1) -> Callable[..., Any]:
    """Interpolation in d dimensions: along one axis after the other, of images `width` wide along the others, or 1 wide
    where the result is."""

    def rule(step: Step, x: Linear, size: Sequence[int], *settings: Any) -> Any:
        flags, scales = (settings[:1], settings[1:]) if has_scales else (settings, ())

        def images(k: int, n: int, m: int) -> np.ndarray:
            others = [1 if n == 1 else width for n in size]
            units = torch.eye(n, dtype=torch.float64 if x.dtype.itemsize > 4 else torch.float32, device="cpu")
            units = units.reshape(n, 1, *[n if a == k else 1 for a in range(d)])
            units = units.expand(n, 1, *[n if a == k else others[a] for a in range(d)]).contiguous()
            own = [scale if a == k else None for a, scale in enumerate(scales)]
            found = step.function(units, [m if a == k else others[a] for a in range(d)], *flags, *own)
            return found.numpy()[(..., *[slice(None) if a == k else 0 for a in range(d)])]

        return along_axes(x, range(x.ndim - d, x.ndim), [int(m) for m in size], images)

    return rule


PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": _matrices,
    "mv": _matrices,
    "_sparse_mm": _matrices,
    "bmm": _batches,
    "dot": _dot,
    "vdot": lambda step, a, b: _dot(step, conjugate(a) if isinstance(a, Linear) else a.conj(), b),
    "addmm": _added(_matrices),
    "_sparse_addmm": _added(_matrices),
    "addmv": _added(_matrices),
    "baddbmm": _added(_batches),
    "addbmm": _added(_sum_of_batches),
    "addr": _added(_outer),
    **FOURIER,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "avg_pool1d": _average(1),
    "avg_pool2d": _average(2),
    "avg_pool3d": _average(3),
    "avg_pool2d_backward": _average_backward(2),
    "avg_pool3d_backward": _average_backward(3),
    "_adaptive_avg_pool2d": _separable(2, has_scales=False),
    "_adaptive_avg_pool3d": _separable(3, has_scales=False),
    "upsample_linear1d": _separable(1),
    "upsample_bilinear2d": _separable(2),
    "upsample_bicubic2d": _separable(2),
    "upsample_trilinear3d": _separable(3),
    "_upsample_bilinear2d_aa": _separable(2, width=2),  # torch has other weights for a result of width 1
    "_upsample_bicubic2d_aa": _separable(2, width=2),
}
