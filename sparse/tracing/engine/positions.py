"""Elements at positions that are known: gather, scatter and choice.

Positions that are a slice keep boxes boxes; others give one column per element, -1 where there is none:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> from krylix.sparse.tracing.engine.structural import reverse
>>> u = identity(get_backend("numpy"), (4,), float)
>>> take(u, np.array([3, 1])).terms
(Box(lo=(0,), shape=(2,), offset=3, strides=(-2,), factor=1, values=None, mask=None),)
>>> take(u, np.array([3, -1, 0])).terms
(Gathered(columns=array([ 3, -1,  0], dtype=int32), factor=1, values=None),)
>>> for term in select(np.array([True, False, False, True]), [u, reverse(u, [0])]).terms:
...     print(term)
Box(lo=(1,), shape=(2,), offset=1, strides=(1,), factor=1, values=None, mask=None)
Box(lo=(0,), shape=(4,), offset=3, strides=(-1,), factor=1, values=None, mask=array([ True, False, False,  True]))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....backends import Backend
from . import coefficients as co
from .arithmetic import add
from .coefficients import Coefficient
from .limits import check_rows
from .linear import Linear, joint_bias, joint_fields, linear_among, map_bias, normal, reshape, settle
from .structural import broadcast_to, embed, find_slices, pad, slice_rows
from .terms import (
    Box,
    Entries,
    Gathered,
    Term,
    bounding_slices,
    elements,
    full_values,
    restrict_box,
    take_rows,
    to_entries,
)


def _checked(positions: np.ndarray, count: int) -> np.ndarray:
    """Raise IndexError for a position that is neither -1 nor one of `count` elements."""
    positions = np.asarray(positions)
    if positions.size and not (positions.min() >= -1 and positions.max() < count):
        raise IndexError(
            f"Positions from {positions.min()} to {positions.max()} were given for {count} elements; "
            "expected -1 (none) or less than their number."
        )
    return positions


def take(x: Linear, positions: np.ndarray) -> Linear:
    """`x.ravel()[positions]`; an array of their shape, zero where the position is -1."""
    x, positions = normal(x), _checked(positions, x.size)
    if any(isinstance(term, Box) for term in x.terms):
        found = find_slices(positions, x.shape)
        if found is not None:
            return slice_rows(x, found, positions.shape)
    bias = map_bias(x, lambda b: co.take(x.bk, co.reshape(x.bk, b, (-1,)), positions))
    terms = [take_rows(x.bk, term, x.base, positions) for term in x.terms] if positions.size else []
    return x.changed(terms, bias, shape=positions.shape, base=positions.shape)


def assemble(operands: Sequence[Linear | Coefficient], positions: np.ndarray) -> Linear:
    """Elements of all operands, raveled and concatenated, at `positions`; zero where the position is -1."""
    example = linear_among(operands, "assemble")
    shapes = [operand.shape if isinstance(operand, Linear) else co.shape_of(operand) for operand in operands]
    positions = _checked(positions, sum(math.prod(shape) for shape in shapes))
    terms: list[Term] = []
    first = 0
    for operand, size in zip(operands, (math.prod(shape) for shape in shapes)):
        if isinstance(operand, Linear) and operand.terms:
            own = np.where((positions >= first) & (positions < first + size), positions - first, -1)
            terms.extend(_take_part(operand.changed(operand.terms, None), own).terms)
        first += size
    bias = joint_bias(operands)
    if bias is not None:
        flat = co.concatenate(example.bk, [co.reshape(example.bk, c, (-1,)) for c in bias])
        bias = co.take(example.bk, flat, positions)
    shape = positions.shape
    return settle(example.changed(terms, bias, shape=shape, base=shape, **joint_fields(operands, example)))


def replace_elements(
    bk: Backend, old: Linear | Coefficient, positions: np.ndarray, new: Linear | Coefficient
) -> Linear | Coefficient:
    """`old` with the elements at flat positions replaced; of those that are given twice the last one holds."""
    shape, flat = old.shape if isinstance(old, Linear) else co.shape_of(old), positions.reshape(-1)
    sources = np.arange(math.prod(shape))
    sources[flat] = len(sources) + np.arange(len(flat))
    if isinstance(old, Linear) or isinstance(new, Linear):
        return assemble([old, new], sources.reshape(shape))
    both = co.concatenate(bk, [co.reshape(bk, part, (-1,)) for part in (old, new)])
    return co.reshape(bk, co.take(bk, both, sources), shape)


def _take_part(x: Linear, positions: np.ndarray) -> Linear:
    """`take` without bias, where the positions that are not -1 may be slices, or those of the elements themselves."""
    member = positions >= 0
    bounds = bounding_slices(member)
    if bounds is None:
        return x.changed((), None, shape=positions.shape, base=positions.shape)
    if member[bounds].all():
        config = [(s.start, n - s.stop, 0) for s, n in zip(bounds, positions.shape)]
        return pad(take(x, positions[bounds]), config)
    if x.size == positions.size:
        own = np.arange(x.size).reshape(positions.shape)
        if np.array_equal(positions, np.where(member, own, -1)):
            return _restrict(reshape(x, positions.shape), member)
    return take(x, positions)


def _restrict(x: Linear, mask: np.ndarray) -> Linear:
    """Zero where the known mask does not hold; the bias is left out."""
    x = normal(x)
    terms: list[Term] = []
    boxes: dict[tuple[object, ...], Box | None] = {}
    for term in x.terms:
        if isinstance(term, Box):
            if term.values is None and term.mask is None:  # terms of a stencil often share their rows, and so the mask
                key = (term.lo, term.shape)
                if key not in boxes:
                    boxes[key] = restrict_box(term._replace(offset=0, strides=(0,) * len(term.lo)), mask)
                part = _same_rows(term, boxes[key])
            else:
                part = restrict_box(term, mask)
            terms.extend([] if part is None else [part])
        elif isinstance(term, Gathered):
            terms.append(term._replace(columns=np.where(mask, term.columns, np.int32(-1))))
        else:
            kept = np.flatnonzero(mask.reshape(-1)[term.rows])
            terms.append(Entries(term.rows[kept], term.columns[kept], term.factor, elements(x.bk, term.values, kept)))
    return x.changed(terms, None)


def _same_rows(box: Box, part: Box | None) -> Box | None:
    """The rows of a box that `part` has."""
    if part is None:
        return None
    offset = box.offset + sum(s * (b - a) for s, a, b in zip(box.strides, box.lo, part.lo))
    return box._replace(lo=part.lo, shape=part.shape, offset=offset, mask=part.mask)


def scatter_add(target: Linear | Coefficient, positions: np.ndarray, updates: Linear | Coefficient) -> Linear:
    """`target` with `updates` added at flat positions, of the updates' shape; duplicates add up, -1 is dropped."""
    example = linear_among([target, updates], "scatter_add")
    shape = target.shape if isinstance(target, Linear) else co.shape_of(target)
    positions = _checked(positions, math.prod(shape))
    if isinstance(updates, Linear):
        return add(_scattered(updates, positions, shape), target)
    if co.is_zero(updates):
        return add(example, np.zeros((), co.dtype_of(example.bk, updates)))
    return add(example, _scattered_values(example.bk, updates, positions, shape))


def _scattered(x: Linear, positions: np.ndarray, shape: Sequence[int]) -> Linear:
    shape = tuple(shape)
    check_rows(shape, "The target of a scatter")
    x = normal(x)
    found = find_slices(positions, shape)
    embedded = None if found is None else embed(x, found, shape)
    if embedded is not None:
        return embedded
    bias = map_bias(x, lambda b: _scattered_values(x.bk, b, positions, shape))
    targets = positions.reshape(-1).astype(np.int32)
    complete = bool((targets >= 0).all())
    terms = []
    for term in x.terms:
        entries = to_entries(x.bk, term, x.base)
        rows = targets[entries.rows]
        if not complete:
            kept = np.flatnonzero(rows >= 0)
            rows = rows[kept]
            entries = Entries(rows, entries.columns[kept], entries.factor, elements(x.bk, entries.values, kept))
        terms.append(entries._replace(rows=rows))
    return settle(x.changed(terms, bias, shape=shape, base=shape))


def _scattered_values(bk: Backend, c: Coefficient, positions: np.ndarray, shape: Sequence[int]) -> Coefficient:
    flat = positions.reshape(-1)
    kept = np.flatnonzero(flat >= 0)
    values = co.take(bk, co.reshape(bk, co.broadcast_to(bk, c, positions.shape), (-1,)), kept)
    return co.reshape(bk, co.segment_sum(bk, values, flat[kept], math.prod(shape)), shape)


def select(which: Coefficient, cases: Sequence[Linear | Coefficient]) -> Linear:
    """Element by element `cases[which]`; a bool takes the first case where it is False.

    Where `which` is not known, the pattern is that of all cases together, and the entries of those that are not taken
    are zero.

    Args:
        which: bool or integer array or number, known or traced; without axes, it chooses for all elements.
        cases: arrays of one shape, at least one Linear.
    """
    example = linear_among(cases, "select")
    shape = example.shape
    terms: list[Term] = []
    masks = [_is_case(example.bk, which, k) for k in range(len(cases))]
    if not co.known(which):
        which = co.broadcast_to(example.bk, which, shape)
    parts = []
    for mask, case in zip(masks, cases):
        if not isinstance(case, Linear):
            continue
        case = broadcast_to(case, shape)
        if co.known(mask):
            parts.append(_restrict(case, np.broadcast_to(mask, shape)))
        else:
            parts.append(_switched(case, mask))
    bias = joint_bias(cases)
    if bias is not None:
        bias = _chosen(example.bk, masks, bias, shape)
    for part in parts:
        terms.extend(part.terms)
    return settle(example.changed(terms, bias, shape=shape, base=shape, **joint_fields(cases, example)))


def _is_case(bk: Backend, which: Coefficient, k: int) -> Coefficient:
    if co.dtype_of(bk, which).kind == "b":
        return which if k == 1 else (np.logical_not(which) if co.known(which) else ~which)
    return np.asarray(which) == k if co.known(which) else which == k


def _chosen(
    bk: Backend, masks: Sequence[Coefficient], cases: Sequence[Coefficient], shape: Sequence[int]
) -> Coefficient:
    found = co.broadcast_to(bk, cases[0], shape)
    for mask, case in zip(masks[1:], cases[1:]):
        found = co.where(bk, co.broadcast_to(bk, mask, shape), co.broadcast_to(bk, case, shape), found)
    return found


def _switched(x: Linear, mask: Coefficient) -> Linear:
    """All entries of a row zero where the traced mask does not hold; NaN there goes too."""
    x = normal(x)
    mask = co.broadcast_to(x.bk, mask, x.shape)
    flat = None
    terms: list[Term] = []
    for term in x.terms:
        if isinstance(term, Entries):
            flat = co.reshape(x.bk, mask, (-1,)) if flat is None else flat
            own = co.take(x.bk, flat, term.rows)
        else:
            own = mask if isinstance(term, Gathered) else mask[term.slices]
        values = co.where(x.bk, own, full_values(x.bk, term, co.shape_of(own), x.dtype), 0)
        terms.append(term._replace(factor=1, values=values))
    return x.changed(terms, None)
