"""Einstein's sums of an array that depends on the input and one that does not.

The diagonal of a matrix u, and a product with it in each row:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (2, 2), float)
>>> parsed("ii", [2])
(['ii'], '')
>>> einsum(u, "ii", None, "", "i").terms
(Gathered(columns=array([0, 3], dtype=int32), factor=1, values=None),)
>>> [term.factor for term in einsum(u, "ij", np.array([5.0, 7.0]), "j", "i").terms]
[5.0, 7.0]
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from .. import coefficients as co
from ..coefficients import Coefficient
from ..linear import Linear, rows_of
from ..positions import take
from ..reductions import reduce_sum
from ..structural import broadcast_to, transpose
from .contraction import contract


def parsed(subscripts: str, dims: Sequence[int]) -> tuple[list[str], str]:
    """Letters of each operand and of the result, with letters in place of the dots.

    Args:
        subscripts: as those of `np.einsum`.
        dims: number of axes of each operand.
    """
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
    """The sum of products for the letters `own` of x, `letters` of the other operand, if there is one, and the result.

    Raises:
        UnsupportedOperation: the result depends on too many elements of the input.
    """
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
    """The same of a coefficient."""
    other = co.broadcast_to(x.bk, other, [sizes[c] for c in letters])
    unique = "".join(dict.fromkeys(letters))
    if unique == letters:
        return other, letters
    where = np.einsum(f"{letters}->{unique}", rows_of(co.shape_of(other)))
    return co.take(x.bk, co.reshape(x.bk, other, (-1,)), where), unique
