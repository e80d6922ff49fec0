"""An array that depends linearly (or affinely) on the input of a traced function.

The input itself is one box: row i, for all i of its shape, has the column `offset + sum(strides * i)`.

>>> from krylix.backends import get_backend
>>> u = identity(get_backend("numpy"), (2, 3), float)
>>> u.terms
(Box(lo=(0, 0), shape=(2, 3), offset=0, strides=(3, 1), factor=1, values=None, mask=None),)
>>> reshape(u, (6,)).terms
(Box(lo=(0,), shape=(6,), offset=0, strides=(1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import row_strides
from . import coefficients as co
from .box import reshape_box
from .coefficients import Coefficient
from .limits import check_rows
from .terms import Box, Gathered, Term, has_axes, to_gathered


@dataclass(frozen=True, slots=True)
class Linear:
    """`sum of terms applied to the input + bias`.

    Attributes:
        bk: backend of coefficients that are not known.
        shape: shape of the array.
        base: the shape in which the terms count their rows, with as many elements. A reshape that boxes cannot follow
            (the final `ravel` of a stencil's interior) is only recorded in `shape`; `normal` carries it out.
        dtype: of the array.
        terms: see terms.py.
        bias: coefficient of `shape`, or None for zero.
        real_input: are all inputs that it depends on real?
        settled: number of terms that were left when they were merged last.
    """

    bk: Backend
    shape: tuple[int, ...]
    base: tuple[int, ...]
    dtype: np.dtype
    terms: tuple[Term, ...]
    bias: Coefficient | None = None
    real_input: bool = True
    settled: int = 0

    @property
    def is_zero(self) -> bool:
        """Does it not depend on the input after all? Then `plain()` is all of it.

        Terms with a factor of 0 are kept, so that the structure does not depend on the values of coefficients.
        """
        return all(term.factor == 0 for term in self.terms)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def plain(self) -> Coefficient:
        """The value for an input of zeros: the bias, or zeros (a view of one number)."""
        if self.bias is not None:
            return self.bias
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def changed(self, terms: Iterable[Term], bias: Coefficient | None, **fields: Any) -> Linear:
        """With other terms and bias, and shape, base or dtype if given; a bias that is known to be zero is dropped."""
        new = replace(self, terms=tuple(terms), bias=None if co.is_zero(bias) else bias, **fields)
        return replace(new, terms=()) if 0 in new.shape else new


def identity(bk: Backend, shape: Sequence[int], dtype: Any, first_column: int = 0) -> Linear:
    """The input itself: its elements are the columns from `first_column` on.

    Raises:
        UnsupportedOperation: a column would not fit into int32.
    """
    shape = tuple(int(n) for n in shape)
    check_rows((first_column + math.prod(shape),), "The input")
    box = Box((0,) * len(shape), shape, int(first_column), row_strides(shape))
    dtype = np.dtype(dtype)
    return Linear(bk, shape, shape, dtype, () if 0 in shape else (box,), None, dtype.kind != "c")


def reshape(x: Linear, shape: Sequence[int]) -> Linear:
    """The same elements in row-major order."""
    shape = tuple(int(n) for n in shape)
    bias = None if x.bias is None else co.reshape(x.bk, x.bias, shape)
    if shape == x.shape:
        return x
    terms = _reshaped(x, shape)
    if terms is None:
        return x.changed(x.terms, bias, shape=shape)
    return x.changed(terms, bias, shape=shape, base=shape)


def _reshaped(x: Linear, shape: tuple[int, ...]) -> list[Term] | None:
    """The terms in another base shape; None where a box does not stay one."""
    found: list[Term] = []
    for term in x.terms:
        if isinstance(term, Box):
            box = reshape_box(x.bk, term, x.base, shape)
            if box is None:
                return None
            found.append(box)
        elif isinstance(term, Gathered):
            found.append(_reshape_gathered(x.bk, term, shape))
        else:
            found.append(term)
    return found


def _reshape_gathered(bk: Backend, term: Gathered, shape: Sequence[int]) -> Gathered:
    values = co.reshape(bk, term.values, shape) if has_axes(term.values) else term.values
    return Gathered(term.columns.reshape(tuple(shape)), term.factor, values)


def with_base(x: Linear, base: tuple[int, ...]) -> Linear | None:
    """With the terms in another base shape; None where a box does not stay one."""
    if x.base == base:
        return x
    terms = _reshaped(x, base)
    return None if terms is None else replace(x, base=base, terms=tuple(terms))


def normal(x: Linear) -> Linear:
    """With base and shape the same: boxes that are none in that shape are gathered."""
    if x.base == x.shape:
        return x
    terms: list[Term] = []
    for term in x.terms:
        if isinstance(term, Box):
            box = reshape_box(x.bk, term, x.base, x.shape)
            terms.append(box or _reshape_gathered(x.bk, to_gathered(x.bk, term, x.base), x.shape))
        else:
            terms.append(_reshape_gathered(x.bk, term, x.shape) if isinstance(term, Gathered) else term)
    return replace(x, base=x.shape, terms=tuple(terms))


def aligned(a: Linear, b: Linear) -> tuple[Linear, Linear]:
    """Two arrays of one shape with one base."""
    if a.base == b.base:
        return a, b
    other = with_base(b, a.base)
    if other is not None:
        return a, other
    other = with_base(a, b.base)
    return (other, b) if other is not None else (normal(a), normal(b))


def map_bias(x: Linear, function: Callable[[Coefficient], Coefficient]) -> Coefficient | None:
    """The function of the bias, where there is one."""
    return None if x.bias is None else function(x.bias)


def rows_of(shape: Sequence[int]) -> np.ndarray:
    """The flat position of each element, int32.

    Raises:
        UnsupportedOperation: they do not fit.
    """
    check_rows(shape, "A traced array")
    return np.arange(math.prod(shape), dtype=np.int32).reshape(tuple(shape))


def linear_among(parts: Sequence[Linear | Coefficient], operation: str) -> Linear:
    """The first part that depends on the input.

    Raises:
        TypeError: there is none.
    """
    for part in parts:
        if isinstance(part, Linear):
            return part
    raise TypeError(f"{operation} got coefficients only; at least one part must be a Linear.")


def joint_fields(parts: Sequence[Linear | Coefficient], example: Linear) -> dict[str, object]:
    """dtype and `real_input` of what is made of all parts."""
    dtypes = [p.dtype if isinstance(p, Linear) else co.dtype_of(example.bk, p) for p in parts]
    return {
        "dtype": np.result_type(*dtypes),
        "real_input": all(p.real_input for p in parts if isinstance(p, Linear)),
    }


def joint_bias(parts: Sequence[Linear | Coefficient]) -> list[Coefficient] | None:
    """The parts without what depends on the input; None if they are all zero."""
    values = [p.bias if isinstance(p, Linear) else p for p in parts]
    if all(co.is_zero(value) for value in values):
        return None
    return [p.plain() if isinstance(p, Linear) else p for p in parts]
