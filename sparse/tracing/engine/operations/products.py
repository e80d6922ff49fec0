"""Products of two operands of which one depends on the input: of elements, along axes, with sparse matrices."""

from __future__ import annotations

import math

import numpy as np

from ..arithmetic import add, divide, negate, scale
from ..linear import Linear, linear_among
from ..operands import Operand, reshaped, shape_of, spread, taken
from ..positions import scatter_add
from ..products.contraction import Axes, contract
from ..refusals import NotLinear
from ..structural import concatenate
from .replace import cut


def linear_factor(*factors: Operand) -> Linear:
    """The factor that depends on the input.

    Raises:
        NotLinear: several do.
    """
    if sum(isinstance(factor, Linear) for factor in factors) > 1:
        raise NotLinear("both factors depend on it")
    return linear_among(factors, "A product")


def multiply(a: Operand, b: Operand) -> Linear:
    """a * b with NumPy's broadcasting."""
    x = linear_factor(a, b)
    return scale(x, b if x is a else a)


def quotient(a: Operand, b: Operand) -> Linear:
    """a / b with NumPy's broadcasting."""
    if isinstance(b, Linear):
        raise NotLinear("the divisor depends on it")
    return divide(a, b)


def product(a: Operand, b: Operand, contracting: Axes, batch: Axes = ((), ())) -> Linear:
    """`dot_general` of JAX: axes of a and of b that are summed over, and that stay, in pairs."""
    x = linear_factor(a, b)
    if x is a:
        return contract(x, b, contracting, batch)
    return contract(x, a, contracting[::-1], batch[::-1], x_first=False)


def cross(a: Operand, b: Operand, axis: int) -> Linear:
    """Of vectors of three elements along an axis."""
    bk, shape = linear_factor(a, b).bk, np.broadcast_shapes(shape_of(a), shape_of(b))
    parts = [[cut(spread(bk, x, shape), axis % len(shape), k, k + 1) for k in range(3)] for x in (a, b)]

    def times(i: int, j: int) -> Linear:
        return multiply(parts[0][i], parts[1][j])

    pairs = [((k + 1) % 3, (k + 2) % 3) for k in range(3)]
    return concatenate([add(times(i, j), negate(times(j, i))) for i, j in pairs], axis % len(shape))


def sparse_product(rows: np.ndarray, columns: np.ndarray, values: Operand, count: int, x: Operand) -> Linear:
    """A sparse matrix of `count` rows, by its entries, times an array: rows of it, multiplied and added up."""
    bk, inner = linear_factor(values, x).bk, np.arange(math.prod(shape_of(x)[1:]))
    sources, targets = (i.astype(np.int64)[:, None] * len(inner) + inner for i in (columns, rows))
    products = multiply(reshaped(bk, values, (len(rows), 1)), taken(bk, x, sources))
    zeros = np.broadcast_to(np.zeros((), products.dtype), (count, *shape_of(x)[1:]))
    return scatter_add(zeros, targets, products)
