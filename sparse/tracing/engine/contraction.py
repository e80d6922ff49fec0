"""Products with arrays: `dot_general` with one operand that depends on the input, and dense transforms.

`m @ u` for a small matrix m is one box per entry that is not zero, each of one row here; row, column and entry are

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (2,), float)
>>> v = contract(u, np.array([[3.0, 4.0], [0.0, 5.0]]), ((0,), (1,)), x_first=False)
>>> for term in v.terms:
...     print(term.lo, term.shape, term.offset, term.factor)
(0,) (1,) 0 3.0
(0,) (1,) 1 4.0
(1,) (1,) 1 5.0

An entry that is a sum of products is known to `eps` times the sum of their absolute values: what is not larger than
that is no entry. So a small coefficient stays, however large others are:

>>> from krylix.sparse.tracing.engine.arithmetic import scale
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u, F = identity(get_backend("numpy"), (3,), float), np.fft.fft(np.eye(3))
>>> v = dense_product(scale(u, np.array([1.0, 1e-30, 1e30])), F, ([0], [1]))
>>> sum(term.size for term in dense_product(v, F.conj() / 3, ([0], [1])).terms)  # no product with 1e30 is a rest
3
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Backend
from . import coefficients as co
from .arithmetic import scale
from .coefficients import Coefficient
from .limits import check_entries, check_rows
from .linear import Linear, joint_fields, map_bias, merge_entries, normal, reshape, settle
from .structural import pad, slice_, transpose
from .terms import Entries, Gathered, Term, elements, grouped, to_entries

_FEW = 64  # products of an element of the sum and one of the result that become terms of their own

Axes = tuple[Sequence[int], Sequence[int]]


class _Sizes(NamedTuple):
    """Lengths of the axes: shared by both operands, only in x, only in the other, summed over."""

    batch: tuple[int, ...]
    free: tuple[int, ...]
    other: tuple[int, ...]
    summed: tuple[int, ...]


def contract(x: Linear, other: Coefficient, contracting: Axes, batch: Axes = ((), ()), x_first: bool = True) -> Linear:
    """Sum of products over axes, as `dot_general` of JAX.

    Args:
        x: the operand that depends on the input.
        other: a coefficient; where it is known, its zeros leave no entries.
        contracting: `(axes of x, axes of other)` that are summed over, in pairs.
        batch: `(axes of x, axes of other)` that stay, in pairs.
        x_first: is x the first of the two? The result has the batch axes, then the free axes of the first operand,
            then those of the second.
    """
    other_shape = co.shape_of(other)
    x_free = [a for a in range(x.ndim) if a not in (*contracting[0], *batch[0])]
    other_free = [a for a in range(len(other_shape)) if a not in (*contracting[1], *batch[1])]
    sizes = _Sizes(
        tuple(x.shape[a] for a in batch[0]),
        tuple(x.shape[a] for a in x_free),
        tuple(other_shape[a] for a in other_free),
        tuple(x.shape[a] for a in contracting[0]),
    )
    fields = joint_fields([x, other], x)
    x = transpose(x, [*batch[0], *x_free, *contracting[0]])
    other = co.transpose(x.bk, other, [*batch[1], *other_free, *contracting[1]])
    terms_only = x.changed(x.terms, None, **fields)
    pairs = _pairs(other, sizes)
    if pairs is None:
        result = _by_entries(terms_only, other, sizes)
    else:
        result = _by_terms(terms_only, other, sizes, pairs)
    bias = map_bias(x, lambda b: _product(x.bk, b, other, sizes))
    result = result.changed(result.terms, bias)
    if x_first:
        return result
    nb, nf = len(sizes.batch), len(sizes.free)
    return transpose(result, [*range(nb), *range(nb + nf, result.ndim), *range(nb, nb + nf)])


def _pairs(other: Coefficient, sizes: _Sizes) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """All (element of the result, element of the sum) with a product, None where they are many."""
    if co.known(other):
        batch_axes = tuple(range(len(sizes.batch)))
        if other.size > 4096 * max(1, math.prod(sizes.batch)):
            return None
        present = np.argwhere((np.asarray(other) != 0).any(axis=batch_axes))
        pairs = [tuple(int(i) for i in index) for index in present] if len(present) <= _FEW else None
    else:
        shape = (*sizes.other, *sizes.summed)
        pairs = list(itertools.product(*[range(n) for n in shape])) if math.prod(shape) <= _FEW else None
    k = len(sizes.other)
    return None if pairs is None else [(index[:k], index[k:]) for index in pairs]


def _by_terms(
    x: Linear, other: Coefficient, sizes: _Sizes, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Linear:
    """Boxes stay boxes: one product per pair."""
    bk, kept = x.bk, (*sizes.batch, *sizes.free)
    shape = (*kept, *sizes.other)
    ones = (1,) * len(sizes.other)
    slices: dict[tuple[int, ...], Linear] = {}
    terms: list[Term] = []
    for place, index in pairs:
        if index not in slices:
            starts = (*(0 for _ in kept), *index)
            limits = (*kept, *(i + 1 for i in index))
            slices[index] = reshape(slice_(x, starts, limits), (*kept, *ones))
        factor = other[(*(slice(None) for _ in sizes.batch), *place, *index)]
        if sizes.batch:
            lengths = (*sizes.batch, *(1 for _ in sizes.free), *ones)
            factor = co.reshape(bk, factor, lengths)
        product = scale(slices[index], factor)
        config = [(0, 0, 0)] * len(kept) + [(i, n - i - 1, 0) for i, n in zip(place, sizes.other)]
        terms.extend(pad(product, config).terms)
    return settle(x.changed(terms, None, shape=shape, base=shape))


def _by_entries(x: Linear, other: Coefficient, sizes: _Sizes) -> Linear:
    """Each entry of x times every element of `other` that it meets."""
    x = normal(x)
    shape = (*sizes.batch, *sizes.free, *sizes.other)
    check_rows(shape, "The result of a product")
    free, length, summed = math.prod(sizes.free), math.prod(sizes.other), math.prod(sizes.summed)
    flat = co.reshape(x.bk, other, (-1,))
    partners = _Partners(flat, length, summed)
    if partners.groups is None:  # the same number of partners for all
        count = sum(term.size for term in x.terms if not isinstance(term, Gathered))
        check_entries(count * length, "A product of arrays")
    terms: list[Term] = []
    for term in x.terms:
        entries = to_entries(x.bk, term, x.base)
        kept, index = np.divmod(entries.rows.astype(np.int64), summed)
        which, element = partners.members(kept // max(free, 1), index)
        rows = kept[which] * length + (element // summed) % length
        weights = co.take(x.bk, flat, element)
        values = elements(x.bk, entries.values, which)
        values = weights if values is None else co.multiply(x.bk, values, weights)
        terms.append(Entries(rows.astype(np.int32), entries.columns[which], entries.factor, values))
    return settle(x.changed(terms, None, shape=shape, base=shape))


class _Partners:
    """The elements of a flat array `(batch, length, summed)` by batch and position in the sum, without known zeros."""

    def __init__(self, flat: Coefficient, length: int, summed: int) -> None:
        self.length, self.summed = length, summed
        self.groups = None
        if co.known(flat) and not np.all(flat):
            present = np.flatnonzero(flat)
            count = flat.size // max(length, 1)
            by_group = grouped(self._group(present), count)
            self.groups = by_group._replace(order=present[by_group.order])

    def _group(self, element: np.ndarray) -> np.ndarray:
        return element // (self.length * self.summed) * self.summed + element % self.summed

    def members(self, batch: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs `(i, element with batch[i] and index[i])`."""
        if self.groups is not None:
            return self.groups.members(batch * self.summed + index, "A product of arrays")
        check_entries(len(batch) * self.length, "A product of arrays")
        first = batch * (self.length * self.summed) + index
        element = first[:, None] + np.arange(self.length) * self.summed
        return np.repeat(np.arange(len(batch)), self.length), element.reshape(-1)


def _product(bk: Backend, bias: Coefficient, other: Coefficient, sizes: _Sizes) -> Coefficient:
    """The same product of the bias, as batched matrices."""
    b, f, g, c = (math.prod(part) for part in sizes)
    left, right = co.reshape(bk, bias, (b, f, c)), co.reshape(bk, other, (b, g, c))
    right = co.transpose(bk, right, (0, 2, 1))
    if co.known(left) and co.known(right):
        product = np.matmul(left, right)
    else:
        dtype = np.result_type(co.dtype_of(bk, left), co.dtype_of(bk, right))
        like = right if co.known(left) else left
        product = co.as_array(bk, left, dtype, like) @ co.as_array(bk, right, dtype, like)
    return co.reshape(bk, product, (*sizes.batch, *sizes.free, *sizes.other))


# --- products with dense known matrices, without the entries that rounding alone leaves -------------------------------

_UNITS = 4  # of rounding, in each entry of a transform and each product


def dense_product(
    x: Linear, other: Coefficient, contracting: Axes, batch: Axes = ((), ()), x_first: bool = True
) -> Linear:
    """`contract`, without what rounding leaves where all coefficients are known."""
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
