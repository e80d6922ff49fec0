"""Convolutions: one strided slice of the padded image per element of the kernel.

A second difference of 4 elements, with zeros around; each box is a shifted slice, whose rows are those inside:

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (1, 1, 4), float)
>>> v = convolve(u, np.array([[[1.0, -2.0, 1.0]]]), [1], [(1, 1)], [1], [1])
>>> for term in v.terms:
...     print(term.lo, term.shape, term.offset, term.factor)
(0, 0, 1) (1, 1, 3) 0 1.0
(0, 0, 0) (1, 1, 4) 0 -2.0
(0, 0, 0) (1, 1, 3) 1 1.0
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Backend
from . import coefficients as co
from .arithmetic import add, window_sum
from .contraction import contract
from .linear import Linear, joint_fields, reshape
from .operands import Operand, flipped, padded, permuted, reshaped, shape_of
from .products import linear_factor
from .structural import Config, slice_, transpose


def convolve(
    image: Operand,
    kernel: Operand,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    image_dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> Linear:
    """As `conv_general_dilated` of JAX (the kernel is not flipped).

    Args:
        image: `(batch, feature, space...)`.
        kernel: `(out, in, space...)`; one of the two is a Linear, the other a coefficient.
        strides, padding: along each axis of space; padding may be negative.
        image_dilation, kernel_dilation: distance of neighbours, 1: side by side.
        feature_groups: groups of features that do not mix.
        batch_groups: groups of the batch axis, each with its own part of the kernel.

    Returns:
        `(batch, out, space...)`.
    """
    if isinstance(image, Linear) == isinstance(kernel, Linear):
        raise TypeError("convolve needs one Linear and one coefficient.")
    example = image if isinstance(image, Linear) else kernel
    config: Config = [(0, 0, 0), (0, 0, 0)]
    config = [*config, *((lo, hi, d - 1) for (lo, hi), d in zip(padding, image_dilation))]
    image = padded(example.bk, image, config)
    groups = feature_groups * batch_groups
    if batch_groups > 1:
        image = _batch_to_features(example, image, batch_groups)
    shape, taps = shape_of(image), shape_of(kernel)[2:]
    space = [max(0, (n - (k - 1) * d - 1) // s + 1) for n, k, d, s in zip(shape[2:], taps, kernel_dilation, strides)]
    batch, features, out = shape[0], shape[1] // groups, shape_of(kernel)[0]
    result: Linear | None = None
    for tap in itertools.product(*[range(k) for k in taps]) if math.prod(space) else ():
        weights = reshaped(
            example.bk,
            _slice(example, kernel, [(0, n, 1) for n in shape_of(kernel)[:2]] + _at(tap)),
            (groups, out // groups, features),
        )
        if not isinstance(weights, Linear) and co.is_zero(weights):
            continue
        begin = [i * d for i, d in zip(tap, kernel_dilation)]
        window = [(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begin, space, strides)]
        part = _slice(example, image, [(0, batch, 1), (0, shape[1], 1), *window])
        part = reshaped(example.bk, part, (batch, groups, features, *space))
        product = _products(part, weights)
        result = product if result is None else add(result, product)
    fields = joint_fields([image, kernel], example)
    full = (batch, out, *space)
    if result is None:
        return example.changed((), None, shape=full, base=full, **fields)
    order = [1, 0, 2 + len(space), *range(2, 2 + len(space))]  # from (groups, batch, space, out of the group)
    return reshape(transpose(result.changed(result.terms, result.bias, **fields), order), full)


def _products(part: Operand, weights: Operand) -> Linear:
    """`(batch, groups, features, space)` and `(groups, out, features)` -> `(groups, batch, space, out)`."""
    if isinstance(part, Linear):
        return contract(part, weights, ((2,), (2,)), ((1,), (0,)))
    return contract(weights, part, ((2,), (2,)), ((0,), (1,)), x_first=False)


def _batch_to_features(example: Linear, image: Operand, groups: int) -> Operand:
    """Groups of the batch as groups of features, which is what they are to the kernel."""
    batch, features, *space = shape_of(image)
    split = reshaped(example.bk, image, (groups, batch // groups, features, *space))
    axes = [1, 0, *range(2, len(space) + 3)]
    split = permuted(example.bk, split, axes)
    return reshaped(example.bk, split, (batch // groups, groups * features, *space))


def _at(index: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(i, i + 1, 1) for i in index]


def _slice(example: Linear, operand: Operand, slices: Sequence[tuple[int, int, int]]) -> Operand:
    if isinstance(operand, Linear):
        return slice_(operand, *zip(*slices))
    return operand[tuple(slice(*s) for s in slices)]


# --- convolutions and pooling with either operand known ---------------------------------------------------------------
# Images are `(batch, feature, space...)`, kernels `(out, in of a group, space...)`; other layouts are transposed
# before.


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
