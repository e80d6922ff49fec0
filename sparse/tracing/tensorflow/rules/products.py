"""Rules for products, Fourier transforms, convolutions, pooling, and by images of unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from .....backends import Backend
from .....backends.tensorflow.program import evaluate
from ...engine.arithmetic import scale
from ...engine.convolution import Windows, convolve, convolve_by_image, convolve_by_kernel
from ...engine.images import along_axes, by_unit_images, fourier, fourier_of_real, fourier_to_real, seems_linear
from ...engine.linear import Linear
from ...engine.operands import NoRule, NotLinear, integers, permuted, reshaped, shape_of, spread, static
from ...engine.products import cross, einsum, linear_factor, parsed, product, sparse_product
from ...engine.structural import pad, transpose
from ...interpreter import conjugated
from .arithmetic import coefficient
from .structure import linear_operand


def _flag(op: tf.Operation, *names: str) -> bool:
    attributes = op.node_def.attr
    return any(attributes[name].b for name in names if name in attributes)


def _turned(bk: Backend, x: Any, transposed: bool, adjoint: bool) -> Any:
    """With the last two axes exchanged, and conjugated, if asked for."""
    k = len(shape_of(x))
    if transposed or adjoint:
        x = permuted(bk, x, [*range(k - 2), k - 1, k - 2])
    return conjugated(bk, x) if adjoint else x


def _matrices(op: tf.Operation, a: Any, b: Any) -> Any:
    bk = linear_factor(a, b).bk
    a = _turned(bk, a, _flag(op, "transpose_a"), _flag(op, "adj_x"))
    b = _turned(bk, b, _flag(op, "transpose_b"), _flag(op, "adj_y"))
    lead_a, lead_b = shape_of(a)[:-2], shape_of(b)[:-2]
    i, j = len(lead_a), len(lead_b)
    if not lead_b:
        return product(a, b, ((i + 1,), (0,)))
    if not lead_a:
        found = product(a, b, ((1,), (j,)))
        return transpose(found, [*range(1, j + 1), 0, j + 1])
    lead = np.broadcast_shapes(lead_a, lead_b)
    a, b = (spread(bk, x, (*lead, *shape_of(x)[-2:])) for x in (a, b))
    k = len(lead)
    return product(a, b, ((k + 1,), (k,)), (range(k), range(k)))


def _einsum(op: tf.Operation, *operands: Any) -> Any:
    parts, result = parsed(op.get_attr("equation").decode(), [len(shape_of(x)) for x in operands])
    x = linear_factor(*operands)
    if len(operands) == 1:
        return einsum(x, parts[0], None, "", result)
    number = 0 if x is operands[0] else 1
    return einsum(x, parts[number], operands[1 - number], parts[1 - number], result)


# --- others -----------------------------------------------------------------------------------------------------------


def _sparse_product(op: tf.Operation, indices: Any, values: Any, shape: Any, b: Any) -> Any:
    where, (n, m) = static("structure of the sparse matrix", indices), integers("shape", shape)
    bk, (rows, columns) = linear_factor(values, b).bk, where.T
    if _flag(op, "adjoint_a"):
        rows, columns, n, values = columns, rows, m, conjugated(bk, values)
    return sparse_product(rows, columns, values, n, _turned(bk, b, False, _flag(op, "adjoint_b")))


# --- Fourier transforms -----------------------------------------------------------------------------------------------


def _last(x: Linear, count: int) -> list[int]:
    return list(range(x.ndim - count, x.ndim))


def _complex_transform(count: int, forward: bool) -> Callable[..., Any]:
    return lambda op, x: fourier(x, _last(x, count), forward)


def _fitting(x: Linear, lengths: Sequence[int]) -> Linear:
    """The last axes cut, or filled up by zeros, to these lengths."""
    lengths = [*x.shape[: x.ndim - len(lengths)], *lengths]
    return pad(x, [(0, wanted - n, 0) for n, wanted in zip(x.shape, lengths)]) if lengths != list(x.shape) else x


def _from_real(count: int) -> Callable[..., Any]:
    return lambda op, x, lengths: fourier_of_real(_fitting(x, integers("length", lengths)), _last(x, count))


def _to_real(count: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear, lengths: Any) -> Any:
        *sizes, n = integers("length", lengths)
        return fourier_to_real(_fitting(x, [*sizes, n // 2 + 1]), _last(x, count), n)

    return rule


FOURIER: dict[str, Callable[..., Any]] = {  # do not commute with conjugation
    **{name: _complex_transform(k, True) for k, name in ((1, "FFT"), (2, "FFT2D"), (3, "FFT3D"))},
    **{name: _complex_transform(k, False) for k, name in ((1, "IFFT"), (2, "IFFT2D"), (3, "IFFT3D"))},
    **{name: _from_real(k) for k, name in ((1, "RFFT"), (2, "RFFT2D"), (3, "RFFT3D"))},
    **{name: _to_real(k) for k, name in ((1, "IRFFT"), (2, "IRFFT2D"), (3, "IRFFT3D"))},
}
# --- convolutions and average pooling ---------------------------------------------------------------------------------

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


# --- pooling ----------------------------------------------------------------------------------------------------------


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


# --- operations that are linear in one operand, by images of unit vectors ---------------------------------------------
# The images are a dense matrix, so this is for small arrays: interpolation, solves with a known matrix, and
# derivatives.


def by_images(place: int) -> Callable[..., Any]:
    """A rule for an operation that is linear in the operand at this place."""

    def rule(op: tf.Operation, *values: Any) -> Any:
        if [k for k, value in enumerate(values) if isinstance(value, Linear)] != [place]:
            raise NotLinear()
        given = list(values)

        def image(unit: np.ndarray) -> Any:
            given[place] = unit
            return coefficient(evaluate(op, given)[0])

        return by_unit_images(values[place], image)

    return rule


def _separable(op: tf.Operation, x: Any, size: Any) -> Any:
    """Interpolation of images `(batch, rows, columns, channels)`: along one axis after the other."""

    def images(k: int, n: int, m: int) -> np.ndarray:
        units = np.eye(n, dtype=np.float32).reshape((n, n, 1, 1) if k == 0 else (n, 1, n, 1))
        wanted = np.asarray([m, 1] if k == 0 else [1, m], np.int32)
        found: np.ndarray = evaluate(op, [units, wanted], {op.inputs[0].dtype: tf.float32})[0].numpy()
        return found

    return along_axes(linear_operand(x, size), (1, 2), integers("size", size), images)


def without_rule(op: tf.Operation, values: Sequence[Any]) -> Exception:
    """The error for an operation without a rule: it is not linear, or it only might be."""

    def image(value_of: Callable[[Any], Any]) -> np.ndarray:
        found = evaluate(op, [value_of(value) for value in values])[0]
        if tf.is_symbolic_tensor(found) or not (found.dtype.is_floating or found.dtype.is_complex):
            raise TypeError("No floating numbers.")
        numbers: np.ndarray = found.numpy()
        return numbers

    try:
        is_linear = seems_linear(image)
    except Exception:  # whatever an unknown operation does with such operands
        is_linear = all(x.dtype.is_floating or x.dtype.is_complex for x in op.outputs)
    return NoRule() if is_linear else NotLinear()


PRODUCTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    "SparseTensorDenseMatMul": _sparse_product,
    "Cross": lambda op, a, b: cross(a, b, -1),
    **FOURIER,
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
    "ResizeBilinear": _separable,
    "ResizeBicubic": _separable,
    **dict.fromkeys(("ResizeBilinearGrad", "ResizeBicubicGrad", "ResizeNearestNeighborGrad"), by_images(0)),
    **dict.fromkeys(("ScaleAndTranslate", "ScaleAndTranslateGrad", "ResizeArea"), by_images(0)),
    **dict.fromkeys(
        ("MatrixSolve", "MatrixTriangularSolve", "TridiagonalSolve", "BandedTriangularSolve"), by_images(1)
    ),
    "TridiagonalMatMul": by_images(3),
    **dict.fromkeys(("MaxPoolGrad", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPool3DGradGrad"), by_images(2)),
    **dict.fromkeys(("DepthwiseConv2dNativeBackpropFilter",), by_images(2)),
}
