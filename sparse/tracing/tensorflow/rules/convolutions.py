"""Rules for convolutions, their derivatives, and average pooling, in both layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...engine.arithmetic import scale
from ...engine.linear import Linear, linear_among
from ...engine.operands import flipped, permuted, reshaped, shape_of
from ...engine.products.convolution import convolve
from ...engine.reductions import window_sum
from ...engine.refusals import NotLinear, integers
from ...engine.structural import transpose
from .structure import linear_operand

Pairs = list[tuple[int, int]]


class _Layout(NamedTuple):
    """Where the axes are.

    Attributes:
        first: do the channels come before space?
        space: number of axes of space.
    """

    first: bool
    space: int

    def spatial(self, lengths: Sequence[int]) -> list[int]:
        """Those of space."""
        return [int(n) for n in (lengths[2:] if self.first else lengths[1:-1])]

    def to_first(self, example: Linear, x: Any) -> Any:
        """As `(batch, channel, space)`."""
        return x if self.first else permuted(example.bk, x, [0, self.space + 1, *range(1, self.space + 1)])

    def back(self, x: Linear) -> Linear:
        """From `(batch, channel, space)`."""
        return x if self.first else transpose(x, [0, *range(2, self.space + 2), 1])


def _layout(op: tf.Operation, d: int) -> _Layout:
    return _Layout(op.get_attr("data_format").startswith(b"NC"), d)


def _padding(
    op: tf.Operation, layout: _Layout, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> Pairs:
    """Zeros before and after; `window` is how far it reaches."""
    kind = op.get_attr("padding")
    if kind == b"VALID":
        return [(0, 0)] * layout.space
    if kind == b"EXPLICIT":
        flat = list(op.get_attr("explicit_paddings"))
        pairs = [(int(a), int(b)) for a, b in zip(flat[::2], flat[1::2])]
        return pairs[2:] if layout.first else pairs[1:-1]
    found = []
    for n, k, s in zip(sizes, window, strides):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        found.append((total // 2, total - total // 2))
    return found


class _Settings(NamedTuple):
    """Of one convolution: its layout, and numbers along each axis of space."""

    layout: _Layout
    strides: list[int]
    dilations: list[int]
    padding: Pairs


def _settings(op: tf.Operation, d: int, image: Sequence[int], taps: Sequence[int]) -> _Settings:
    layout = _layout(op, d)
    strides, dilations = (layout.spatial(op.get_attr(name)) for name in ("strides", "dilations"))
    reach = [(k - 1) * e + 1 for k, e in zip(taps, dilations)]
    return _Settings(layout, strides, dilations, _padding(op, layout, layout.spatial(image), reach, strides))


def _both(a: Any, b: Any) -> Linear:
    """
    Raises:
        NonlinearError: both depend on the input.
    """
    if isinstance(a, Linear) and isinstance(b, Linear):
        raise NotLinear("both factors depend on it")
    return linear_among([a, b], "convolution")


def _direct(d: int, depthwise: bool = False) -> Callable[..., Any]:
    def rule(op: tf.Operation, image: Any, kernel: Any) -> Any:
        example = _both(image, kernel)
        s = _settings(op, d, shape_of(image), shape_of(kernel)[:d])
        image = s.layout.to_first(example, image)
        kernel, groups = _kernel(example, kernel, d, shape_of(image)[1], depthwise)
        found = convolve(image, kernel, s.strides, s.padding, [1] * d, s.dilations, groups)
        return s.layout.back(found)

    return rule


def _kernel(example: Linear, kernel: Any, d: int, channels: int, depthwise: bool) -> tuple[Any, int]:
    """As `(out, in of a group, space)`, and the number of groups."""
    space, (n_in, n_out) = shape_of(kernel)[:d], shape_of(kernel)[d:]
    if depthwise:
        kernel, groups = reshaped(example.bk, kernel, (*space, 1, n_in * n_out)), n_in
    else:
        groups = channels // max(n_in, 1)
    return permuted(example.bk, kernel, [d + 1, d, *range(d)]), groups


def _by_image(d: int, depthwise: bool = False) -> Callable[..., Any]:
    """The derivative by the image, which is the transposed convolution."""

    def rule(op: tf.Operation, sizes: Any, kernel: Any, gradient: Any) -> Any:
        example = _both(kernel, gradient)
        shape = integers("shape", sizes)
        taps = shape_of(kernel)[:d]
        s = _settings(op, d, shape, taps)
        gradient = s.layout.to_first(example, gradient)
        channels = shape[1] if s.layout.first else shape[-1]
        kernel, groups = _kernel(example, kernel, d, channels, depthwise)
        kernel = _flipped(example, kernel, groups)
        widths = []
        space = zip(s.layout.spatial(shape), shape_of(gradient)[2:], taps, s.strides, s.dilations, s.padding)
        for n, m, k, stride, dilation, (lo, _) in space:
            reach = (k - 1) * dilation
            before = reach - lo
            widths.append((before, n + reach - ((m - 1) * stride + 1) - before))
        found = convolve(gradient, kernel, [1] * d, widths, s.strides, s.dilations, groups)
        return s.layout.back(found)

    return rule


def _flipped(example: Linear, kernel: Any, groups: int) -> Any:
    """`(out, in of a group, space)` as the kernel of the transposed convolution: `(in, out of a group, space)`."""
    n_out, n_in, *space = shape_of(kernel)
    d = len(space)
    kernel = reshaped(example.bk, kernel, (groups, n_out // groups, n_in, *space))
    kernel = permuted(example.bk, kernel, [0, 2, 1, *range(3, d + 3)])
    axes = list(range(3, d + 3))
    kernel = flipped(example.bk, kernel, axes)
    return reshaped(example.bk, kernel, (groups * n_in, n_out // groups, *space))


def _by_kernel(d: int) -> Callable[..., Any]:
    """The derivative by the kernel: a convolution of the image with the gradient."""

    def rule(op: tf.Operation, image: Any, sizes: Any, gradient: Any) -> Any:
        example = _both(image, gradient)
        shape = integers("shape", sizes)
        s = _settings(op, d, shape_of(image), shape[:d])
        image, gradient = (s.layout.to_first(example, x) for x in (image, gradient))
        groups = shape_of(image)[1] // max(shape[d], 1)
        swap = [1, 0, *range(2, d + 2)]
        image, gradient = (permuted(example.bk, x, swap) for x in (image, gradient))  # (channel, batch, space)
        if groups > 1:
            raise NotLinear("it has groups, for which there is no rule")
        widths = []
        space = zip(shape_of(image)[2:], shape_of(gradient)[2:], shape[:d], s.strides, s.dilations, s.padding)
        for n, m, k, stride, dilation, (lo, _) in space:
            widths.append((lo, (m - 1) * stride + (k - 1) * dilation + 1 - n - lo))
        found = convolve(image, gradient, s.dilations, widths, [1] * d, s.strides)
        return transpose(found, [*range(2, d + 2), 0, 1])

    return rule


# --- pooling --------------------------------------------------------------------------------------------------------


def _pooling(op: tf.Operation, d: int, image: Sequence[int]) -> tuple[_Layout, list[int], list[int], Pairs, np.ndarray]:
    """Layout, window, strides, padding; and how many elements lie in each window, `(1, 1, space)`."""
    layout = _layout(op, d)
    window, strides = (layout.spatial(op.get_attr(name)) for name in ("ksize", "strides"))
    sizes = layout.spatial(image)
    padding = _padding(op, layout, sizes, window, strides)
    counts = np.ones((1, 1, *[1] * d))
    for axis, (n, k, s, (lo, hi)) in enumerate(zip(sizes, window, strides, padding)):
        start = np.arange((n + lo + hi - k) // s + 1) * s - lo
        inside = np.minimum(start + k, n) - np.maximum(start, 0)
        counts = counts * inside.reshape([-1 if a == axis + 2 else 1 for a in range(d + 2)])
    return layout, window, strides, padding, counts


def _average(d: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear) -> Any:
        layout, window, strides, padding, counts = _pooling(op, d, x.shape)
        sums = window_sum(layout.to_first(x, x), [1, 1, *window], [1, 1, *strides], [(0, 0), (0, 0), *padding])
        return layout.back(scale(sums, (1 / counts).astype(x.dtype)))

    return rule


def _average_gradient(d: int) -> Callable[..., Any]:
    """Each element of a window gets its part."""

    def rule(op: tf.Operation, sizes: Any, gradient: Any) -> Any:
        shape = integers("shape", sizes)
        gradient = linear_operand(gradient, sizes)
        layout, window, strides, padding, counts = _pooling(op, d, shape)
        x = scale(layout.to_first(gradient, gradient), (1 / counts).astype(gradient.dtype))
        widths = []
        for n, m, k, s, (lo, _) in zip(layout.spatial(shape), x.shape[2:], window, strides, padding):
            before = k - 1 - lo
            widths.append((before, n + k - 1 - ((m - 1) * s + 1) - before))
        ones = [1] * (d + 2)
        found = window_sum(x, [1, 1, *window], ones, [(0, 0), (0, 0), *widths], [1, 1, *strides])
        return layout.back(found)

    return rule


CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "Conv2D": _direct(2),
    "Conv3D": _direct(3),
    "DepthwiseConv2dNative": _direct(2, depthwise=True),
    "Conv2DBackpropInput": _by_image(2),
    "Conv3DBackpropInputV2": _by_image(3),
    "DepthwiseConv2dNativeBackpropInput": _by_image(2, depthwise=True),
    "Conv2DBackpropFilter": _by_kernel(2),
    "Conv3DBackpropFilterV2": _by_kernel(3),
    "AvgPool": _average(2),
    "AvgPool3D": _average(3),
    "AvgPoolGrad": _average_gradient(2),
    "AvgPool3DGrad": _average_gradient(3),
}
