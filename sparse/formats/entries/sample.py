"""Sampled outer products: the derivative of a sparse product with respect to the stored values."""

from __future__ import annotations

from ....backends import Array, Backend
from ....backends.interface.arrays import Integers


def entries_sample(bk: Backend, rows: Integers, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """The sum over the batch of y[b, rows] x[b, cols], in the shape to which both index arrays broadcast.

    With `each` the terms of the sum, one more axis in front.
    """
    if each:
        return bk.take_in_bounds(y, rows, 1) * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return bk.take_in_bounds(y[0], rows) * bk.take_in_bounds(x[0], cols)
    both = bk.take_in_bounds(bk.permute_dims(y, (1, 0)), rows) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols)
    return bk.sum(both, -1)


def ell_sample(bk: Backend, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """`(k, n)`: the sum over the batch of y[b, i] x[b, cols[d, i]]; with `each` its terms, `(batch, k, n)`."""
    if each:
        return y[:, None] * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return y[0] * bk.take_in_bounds(x[0], cols)
    return bk.sum(bk.permute_dims(y, (1, 0)) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols), 2)
