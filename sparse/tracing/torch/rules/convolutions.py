"""Rules for convolutions and average pooling, and for their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...engine.arithmetic import scale
from ...engine.linear import Linear
from ...engine.operands import reshaped, shape_of
from ...engine.operations.convolution import Windows, convolve_by_image, convolve_by_kernel
from ...engine.operations.products import linear_factor
from ...engine.operations.replace import cut
from ...engine.products.convolution import convolve
from ...engine.reductions import reduce_sum
from ...engine.refusals import NoRule, NotLinear
from ...engine.structural import transpose
from ..steps import Step
from .arithmetic import plus
from .tensors import by_first, by_shapes, coefficient, device_of, tensor


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
    """The derivatives by the image, the kernel and the bias."""
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
    """Means over windows in d dimensions."""

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


CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
    "convolution_backward": _convolution_backward,
    "avg_pool1d": _average(1),
    "avg_pool2d": _average(2),
    "avg_pool3d": _average(3),
    "avg_pool2d_backward": _average_backward(2),
    "avg_pool3d_backward": _average_backward(3),
}
