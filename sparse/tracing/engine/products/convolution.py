"""Convolutions: one strided slice of the padded image per element of the kernel.

A second difference of 4 elements, with zeros around; each box is a shifted slice, whose rows are those inside:

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
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

from .. import coefficients as co
from ..arithmetic import add
from ..linear import Linear, joint_fields, reshape
from ..operands import Operand, padded, permuted, reshaped, shape_of
from ..structural import Config, slice_, transpose
from .contraction import contract


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

    Raises:
        TypeError: neither or both depend on the input.
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
