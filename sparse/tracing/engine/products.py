"""Products of two operands of which one depends on the input: of elements, along axes, sparse, Einstein's sums.

The diagonal of a matrix u, and a product with it in each row:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (2, 2), float)
>>> parsed("ii", [2])
(['ii'], '')
>>> einsum(u, "ii", None, "", "i").terms
(Gathered(columns=array([0, 3], dtype=int32), factor=1, values=None),)
>>> [term.factor for term in einsum(u, "ij", np.array([5.0, 7.0]), "j", "i").terms]
[5.0, 7.0]
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import numpy as np

from . import coefficients as co
from .arithmetic import add, divide, negate, reduce_sum, scale
from .coefficients import Coefficient
from .contraction import Axes, contract
from .linear import Linear, linear_among, rows_of
from .operands import NotLinear, Operand, reshaped, shape_of, spread, taken
from .positions import scatter_add, take
from .structural import broadcast_to, concatenate, cut, transpose


def linear_factor(*factors: Operand) -> Linear:
    """The factor that depends on the input."""
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


# --- Einstein's sums --------------------------------------------------------------------------------------------------


def parsed(subscripts: str, dims: Sequence[int]) -> tuple[list[str], str]:
    """Letters of each operand, which has `dims` axes, and of the result of `np.einsum`, also in place of the dots."""
    subscripts = subscripts.replace(" ", "")
    left, arrow, result = subscripts.partition("->")
    parts = left.split(",")
    free = [c for c in string.ascii_letters if c not in subscripts]
    lengths = [n - len(p) + 3 if "..." in p else 0 for p, n in zip(parts, dims)]
    dots = "".join(free[: max(lengths, default=0)])
    parts = [p.replace("...", dots[len(dots) - m :] if m else "") for p, m in zip(parts, lengths)]
    if not arrow:
        joint = "".join(parts)
        result = ("..." if dots else "") + "".join(
            c for c in sorted(set(joint)) if joint.count(c) == 1 and c not in dots
        )
    return parts, result.replace("...", dots)


def sizes_of(parts: Sequence[str], shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """The length of each letter; axes of length 1 repeat."""
    sizes: dict[str, int] = {}
    for letters, shape in zip(parts, shapes):
        for letter, n in zip(letters, shape):
            sizes[letter] = max(sizes.get(letter, 1), n) if n != 1 else sizes.get(letter, 1)
    return sizes


def einsum(x: Linear, own: str, other: Coefficient | None, letters: str, result: str) -> Linear:
    """The sum of products for the letters `own` of x, `letters` of the other operand, if any, and the result."""
    shapes = [x.shape] if other is None else [x.shape, co.shape_of(other)]
    sizes = sizes_of([own, letters], shapes)
    x, own = _on_diagonal(x, own, sizes)
    if other is not None:
        other, letters = _each_once(x, other, letters, sizes)
    alone = [k for k, c in enumerate(own) if c not in letters and c not in result]
    x = reduce_sum(x, alone) if alone else x
    own = "".join(c for c in own if c in letters or c in result)
    if other is not None:
        both = [c for c in own if c in letters]
        batch, summed = [c for c in both if c in result], [c for c in both if c not in result]
        x = contract(
            x,
            other,
            ([own.index(c) for c in summed], [letters.index(c) for c in summed]),
            ([own.index(c) for c in batch], [letters.index(c) for c in batch]),
        )
        own = "".join([*batch, *(c for c in own if c not in both), *(c for c in letters if c not in both)])
    return transpose(x, [own.index(c) for c in result])


def _on_diagonal(x: Linear, letters: str, sizes: dict[str, int]) -> tuple[Linear, str]:
    """With each letter once: axes with the same one are a diagonal."""
    x = broadcast_to(x, [sizes[c] for c in letters])
    unique = "".join(dict.fromkeys(letters))
    if unique == letters:
        return x, letters
    return take(x, np.einsum(f"{letters}->{unique}", rows_of(x.shape))), unique


def _each_once(x: Linear, other: Coefficient, letters: str, sizes: dict[str, int]) -> tuple[Coefficient, str]:
    other = co.broadcast_to(x.bk, other, [sizes[c] for c in letters])
    unique = "".join(dict.fromkeys(letters))
    if unique == letters:
        return other, letters
    where = np.einsum(f"{letters}->{unique}", rows_of(co.shape_of(other)))
    return co.take(x.bk, co.reshape(x.bk, other, (-1,)), where), unique
