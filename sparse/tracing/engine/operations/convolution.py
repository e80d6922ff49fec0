"""The geometry of convolutions and pooling: the transposes of what `convolve` and `window_sum` do.

Images are `(batch, feature, space...)`, kernels `(out, in of a group, space...)`; other layouts are transposed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .....backends import Backend
from ..linear import Linear
from ..operands import Operand, flipped, permuted, reshaped, shape_of
from ..products.convolution import convolve
from ..reductions import window_sum
from .products import linear_factor


def convolve_by_image(
    gradient: Operand,
    kernel: Operand,
    space: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
) -> Linear:
    """The transpose of a convolution as a function of the image.

    Args:
        gradient: what the convolution returned.
        kernel: of the convolution.
        space: lengths of the image.
        strides, before, dilations: of the convolution; `before` are the zeros in front of the image.
        groups: of features.
    """
    kernel = _turned(linear_factor(gradient, kernel).bk, kernel, groups)
    widths = []
    for n, m, k, s, lo, d in zip(space, shape_of(gradient)[2:], shape_of(kernel)[2:], strides, before, dilations):
        reach = (k - 1) * d
        widths.append((reach - lo, n + lo - ((m - 1) * s + 1)))
    return convolve(gradient, kernel, [1] * len(space), widths, strides, dilations, groups)


def _turned(bk: Backend, kernel: Operand, groups: int) -> Operand:
    """Input and output exchanged in each group, space in reverse order."""
    n_out, n_in, *space = shape_of(kernel)
    axes = list(range(3, 3 + len(space)))
    kernel = reshaped(bk, kernel, (groups, n_out // groups, n_in, *space))
    kernel = flipped(bk, permuted(bk, kernel, [0, 2, 1, *axes]), axes)
    return reshaped(bk, kernel, (groups * n_in, n_out // groups, *space))


def convolve_by_kernel(
    image: Operand,
    gradient: Operand,
    taps: Sequence[int],
    strides: Sequence[int],
    before: Sequence[int],
    dilations: Sequence[int],
) -> Linear:
    """The transpose of a convolution without groups as a function of the kernel: `(in, out, taps...)`."""
    bk, d = linear_factor(image, gradient).bk, len(taps)
    image, gradient = (permuted(bk, x, [1, 0, *range(2, d + 2)]) for x in (image, gradient))
    widths = []
    for n, m, k, s, lo, e in zip(shape_of(image)[2:], shape_of(gradient)[2:], taps, strides, before, dilations):
        widths.append((lo, (m - 1) * s + (k - 1) * e + 1 - n - lo))
    return convolve(image, gradient, dilations, widths, [1] * d, strides)


class Windows(NamedTuple):
    """Windows that move over the last axes of an array.

    Attributes:
        space: lengths of these axes.
        sizes, strides: of the windows.
        before: how far the first window begins in front of the array.
        counts: windows along each axis.
    """

    space: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[int]
    before: Sequence[int]
    counts: Sequence[int]

    def elements(self) -> np.ndarray:
        """How many elements of the array lie in each window."""
        found, d = np.ones((1,) * len(self.space)), len(self.space)
        for axis, (n, k, s, lo, m) in enumerate(zip(*self)):
            start = np.arange(m) * s - lo
            inside = np.minimum(start + k, n) - np.maximum(start, 0)
            found = found * inside.reshape([-1 if a == axis else 1 for a in range(d)])
        return found

    def sums(self, x: Linear) -> Linear:
        """Over each window."""
        ends = [(m - 1) * s + k - n - lo for n, k, s, lo, m in zip(*self)]
        lead = x.ndim - len(self.space)
        padding = [(0, 0)] * lead + list(zip(self.before, ends))
        return window_sum(x, [1] * lead + list(self.sizes), [1] * lead + list(self.strides), padding)

    def sums_transposed(self, x: Linear) -> Linear:
        """Each window's value added to its elements."""
        lead = x.ndim - len(self.space)
        padding = [(0, 0)] * lead
        for n, k, s, lo, m in zip(*self):
            padding.append((k - 1 - lo, n + lo - ((m - 1) * s + 1)))
        return window_sum(x, [1] * lead + list(self.sizes), [1] * x.ndim, padding, [1] * lead + list(self.strides))
