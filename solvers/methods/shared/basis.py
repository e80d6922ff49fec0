"""Krylov bases: stacks of several vectors per system.

A stack is `(batch, k, n)`; in the state of a method it is flat, `(batch, k n)`, as the driver freezes rows. Which of
the k vectors are in use is known to eager libraries only, so a stack has room for all of them from the start.
"""

from __future__ import annotations

import numpy as np

from ....backends import Array, Backend


def components(bk: Backend, stack: Array, v: Array) -> Array:
    """`(batch, k)`: the dot product of each vector of the stack with v."""
    return bk.conj(bk.product(stack, bk.conj(v)))


def combination(bk: Backend, stack: Array, c: Array) -> Array:
    """`(batch, n)`: the sum of the vectors of the stack with the factors c `(batch, k)`."""
    return bk.product(bk.matrix_transpose(stack), c)


def positions(bk: Backend, count: int, index: Array) -> Array:
    """0, 1, ..., count - 1 as `(1, count)`, to compare with `index` `(batch, 1)`."""
    return bk.asarray(np.arange(count, dtype=bk.dtype(index))[None], like=index)


def identity(bk: Backend, count: int, like: Array) -> Array:
    """A flat stack of the unit vectors for each system, in the dtype of `like`."""
    eye = bk.asarray(np.eye(count, dtype=bk.dtype(like)).reshape(1, -1), like=like)
    return bk.copy(bk.broadcast_to(eye, (int(like.shape[0]), count * count)))


def first_of_each(bk: Backend, stack: Array, c: Array, counts: Array) -> Array:
    """`combination` of the first `counts` `(batch, 1)` vectors of each system; c is zero beyond.

    Where the counts are known, each system's sum has as many terms as it has alone: BLAS adds more in another order.
    """
    known = bk.concrete_value(lambda: counts)
    if known is None or not known.size:
        return combination(bk, stack, c)
    last, *others = (int(k) for k in np.unique(known)[::-1])
    total = combination(bk, stack[:, :last], c[:, :last])
    for k in others:
        total = bk.where(counts == k, combination(bk, stack[:, :k], c[:, :k]), total)
    return total


def span(bk: Backend, index: Array, live: Array, count: int) -> tuple[int, int]:
    """Range of `index` `(batch, 1)` over `live` systems, if known, else 0 and `count`."""
    known = bk.concrete_value(lambda: bk.where(live, index, 0 * index - 1))
    found = None if known is None else known[known >= 0]
    return (0, count) if found is None or not found.size else (int(found.min()), int(found.max()))
