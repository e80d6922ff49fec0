"""Products with dense known matrices (transforms, inverses), without the entries that rounding alone leaves.

An entry that is a sum of products is known to `eps` times the sum of their absolute values: what is not larger than
that is no entry. So a small coefficient stays, however large others are:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity, scale
>>> u, F = identity(get_backend("numpy"), (3,), float), np.fft.fft(np.eye(3))
>>> v = dense_product(scale(u, np.array([1.0, 1e-30, 1e30])), F, ([0], [1]))
>>> sum(term.size for term in dense_product(v, F.conj() / 3, ([0], [1])).terms)  # no product with 1e30 is a rest
3
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import coefficients as co
from ..coefficients import Coefficient
from ..linear import Linear, reshape
from ..merging import merge_entries
from ..structural import transpose
from ..terms import Entries
from .contraction import Axes, contract

_UNITS = 4  # of rounding, in each entry of a transform and each product


def dense_product(
    x: Linear, other: Coefficient, contracting: Axes, batch: Axes = ((), ()), x_first: bool = True
) -> Linear:
    """`contract`, without what rounding leaves where all coefficients are known.

    Raises:
        UnsupportedOperation: the result depends on too many elements of the input.
    """
    product = contract(x, other, contracting, batch, x_first)
    if not (co.known(other) and is_known(x)):
        return product
    return without_rests(product, contract(absolute(x), np.abs(other), contracting, batch, x_first))


def dense_along(x: Linear, axes: Sequence[int], matrix: np.ndarray, sizes: Sequence[int] | None = None) -> Linear:
    """A matrix along some axes, as Fourier transforms are.

    Args:
        x: the array.
        axes: along which the matrix acts, raveled in this order.
        matrix: `(out, in)`.
        sizes: lengths of these axes in the result; the same if not given.

    Raises:
        UnsupportedOperation: the result has too many entries.
    """
    axes = [a % x.ndim for a in axes]
    lengths = [x.shape[a] for a in axes]
    sizes = lengths if sizes is None else list(sizes)
    kernel = co.reshape(x.bk, matrix, (math.prod(sizes), *lengths))
    result = dense_product(x, kernel, (axes, range(1, len(axes) + 1)))
    free = [a for a in range(x.ndim) if a not in axes]
    result = reshape(result, [*(x.shape[a] for a in free), *sizes])
    source = [*free, *axes]
    return transpose(result, [source.index(a) for a in range(x.ndim)])


def absolute(x: Linear) -> Linear:
    """The same entries without sign or phase, and no bias."""
    terms = [
        term._replace(factor=abs(term.factor), values=None if term.values is None else np.abs(term.values))
        for term in x.terms
    ]
    return x.changed(terms, None, dtype=np.zeros((), x.dtype).real.dtype)


def without_rests(x: Linear, sizes: Linear) -> Linear:
    """`x` without entries that are not larger than the rounding of sums whose terms add up to `sizes`."""
    if not (x.terms and sizes.terms and is_known(x)):
        return x
    found, size = (merge_entries(each, each.terms) for each in (x, sizes))
    width = int(max(found.columns.max(initial=0), size.columns.max(initial=0))) + 1
    keys, known = (each.rows.astype(np.int64) * width + each.columns for each in (found, size))  # in rising order
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    unit = _UNITS * np.finfo(x.dtype).eps
    values, bound = _values(found), unit * np.where(known[place] == keys, _values(size)[place], 0)
    kept = np.flatnonzero(~(np.abs(values) <= bound))  # NaN stays
    if len(kept) == len(values):
        return x
    return x.changed([Entries(found.rows[kept], found.columns[kept], 1, values[kept])], x.bias)


def is_known(x: Linear) -> bool:
    """Are all its entries?"""
    return all(term.values is None or co.known(term.values) for term in x.terms)


def _values(entries: Entries) -> np.ndarray:
    values = np.ones(entries.size) if entries.values is None else np.asarray(entries.values)
    return np.broadcast_to(values * entries.factor, entries.rows.shape)
