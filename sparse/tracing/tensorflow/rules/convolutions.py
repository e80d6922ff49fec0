"""Rules for convolutions, their derivatives, and average pooling, in both layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ...engine.arithmetic import scale
from ...engine.linear import Linear
from ...engine.operands import permuted, reshaped, shape_of
from ...engine.operations.convolution import Windows, convolve_by_image, convolve_by_kernel
from ...engine.operations.products import linear_factor
from ...engine.products.convolution import convolve
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


def _direct(d: int, depthwise: bool = False) -> Callable[..., Any]:
    def rule(op: tf.Operation, image: Any, kernel: Any) -> Any:
        example = linear_factor(image, kernel)
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
        example = linear_factor(kernel, gradient)
        shape = integers("shape", sizes)
        taps = shape_of(kernel)[:d]
        s = _settings(op, d, shape, taps)
        gradient = s.layout.to_first(example, gradient)
        channels = shape[1] if s.layout.first else shape[-1]
        kernel, groups = _kernel(example, kernel, d, channels, depthwise)
        space, before = s.layout.spatial(shape), [lo for lo, _ in s.padding]
        found = convolve_by_image(gradient, kernel, space, s.strides, before, s.dilations, groups)
        return s.layout.back(found)

    return rule


def _by_kernel(d: int) -> Callable[..., Any]:
    """The derivative by the kernel: a convolution of the image with the gradient."""

    def rule(op: tf.Operation, image: Any, sizes: Any, gradient: Any) -> Any:
        example = linear_factor(image, gradient)
        shape = integers("shape", sizes)
        s = _settings(op, d, shape_of(image), shape[:d])
        image, gradient = (s.layout.to_first(example, x) for x in (image, gradient))
        if shape_of(image)[1] != shape[d]:
            raise NotLinear("it has groups, for which there is no rule")
        before = [lo for lo, _ in s.padding]
        found = convolve_by_kernel(image, gradient, shape[:d], s.strides, before, s.dilations)
        return transpose(found, [*range(2, d + 2), 0, 1])

    return rule


# --- pooling --------------------------------------------------------------------------------------------------------


def _pooling(op: tf.Operation, d: int, image: Sequence[int]) -> tuple[_Layout, Windows]:
    layout = _layout(op, d)
    sizes, strides, space = (layout.spatial(n) for n in (op.get_attr("ksize"), op.get_attr("strides"), image))
    padding = _padding(op, layout, space, sizes, strides)
    counts = [(n + lo + hi - k) // s + 1 for n, k, s, (lo, hi) in zip(space, sizes, strides, padding)]
    return layout, Windows(space, sizes, strides, [lo for lo, _ in padding], counts)


def _average(d: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear) -> Any:
        layout, windows = _pooling(op, d, x.shape)
        return layout.back(scale(windows.sums(layout.to_first(x, x)), (1 / windows.elements()).astype(x.dtype)))

    return rule


def _average_gradient(d: int) -> Callable[..., Any]:
    """Each element of a window gets its part."""

    def rule(op: tf.Operation, sizes: Any, gradient: Any) -> Any:
        x = linear_operand(gradient, sizes)
        layout, windows = _pooling(op, d, integers("shape", sizes))
        parts = scale(layout.to_first(x, x), (1 / windows.elements()).astype(x.dtype))
        return layout.back(windows.sums_transposed(parts))

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
