"""Operators that compute in another precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...backends import Array
from ..operator import Operator
from .combine import OffsetOperator
from .composed import Composed
from .function import DerivedFunction, FunctionOperator


def in_precision(operator: Operator, dtype: np.dtype) -> Operator:
    """The operator on vectors of `dtype`: with its entries cast, or else, for functions, its arguments and results."""
    if operator.dtype == dtype:
        return operator
    cast = operator.astype(dtype)
    if cast.dtype == dtype:
        return cast
    if operator.offset:
        return OffsetOperator(in_precision(operator.without_offset, dtype), operator.offset)
    return CastOperator(operator, dtype)


@dataclass(eq=False, repr=False)
class CastOperator(Composed):
    """`inner` on vectors of another precision.

    A function is called with arrays of that precision and its result is cast. Where it refuses them, as it closes over
    arrays of its own precision that its library does not mix with others, the arguments are cast too.
    """

    inner: Operator
    dtype: np.dtype

    def _settle(self) -> None:
        dtype = self.dtype
        super()._settle()
        self.dtype, self._mixes = dtype, True

    @cached_property
    def _direct(self) -> Operator | None:
        return self._made()

    def _made(self) -> Operator | None:
        return _of_function(getattr(self.inner, "inner", self.inner), self.dtype)

    def apply(self, x: Array) -> Array:
        # what is traced belongs to the loop that is being traced
        direct = None if not self._mixes else self._made() if self.bk.compiled(x) else self._direct
        if direct is not None:
            try:
                return direct.apply(x)
            except Exception:  # a function at fault in any precision raises again below
                self._mixes = False
        return self.bk.astype(self.inner.apply(self.bk.astype(x, self.inner.dtype)), self.dtype)

    def transpose(self) -> Operator:
        return CastOperator(self.inner.transpose(), self.dtype)

    def astype(self, dtype: np.dtype) -> Operator:
        return in_precision(self.inner, dtype)

    def dense(self) -> Array:
        return self.bk.astype(self.inner.dense(), self.dtype)

    def diagonals(self) -> Array:
        return self.bk.astype(self.inner.diagonals(), self.dtype)


def _of_function(operator: Operator, dtype: np.dtype) -> Operator | None:
    """A function's operator that calls it with arrays of `dtype`; None for others."""
    if isinstance(operator, DerivedFunction):
        function = _of_function(operator.function, dtype)
        if not isinstance(function, FunctionOperator):
            return None
        return DerivedFunction(function, transposed=operator.transposed, conjugated=operator.conjugated)
    if not isinstance(operator, FunctionOperator) or getattr(operator.function, "one_dtype", False):
        return None
    bk, f = operator.bk, operator
    constant = None if f.constant is None else bk.astype(f.constant, dtype)
    return FunctionOperator(bk, f.function, f.layout, dtype, f.args, f.name, f.like, constant, f.image)
