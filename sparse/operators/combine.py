"""Operators made of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ..operator import Operator
from .bridge import rows_as_scipy


class OffsetOperator(Operator):
    """`A + c`: a constant added to every entry, without storing them."""

    def __init__(self, inner: Operator, offset: complex) -> None:
        self.inner, self.offset, self.bk = inner, offset, inner.bk
        self.shape, self.dtype, self.systems = inner.shape, inner.dtype, inner.systems
        self.is_container = inner.is_container  # type: ignore[misc]
        self.tracked = inner.tracked
        self.bk.register(
            OffsetOperator, lambda a: ((a.inner,), a.offset), lambda offset, inner: _restore(offset, *inner)
        )

    def as_container(self) -> Operator:
        return OffsetOperator(self.inner.as_container(), self.offset)

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x) + self._scalar() * self.bk.sum(x, 1, keepdims=True)

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.inner.out_shape

    @property
    def together(self) -> int | None:
        return self.inner.together

    def astype(self, dtype: np.dtype) -> OffsetOperator:
        return OffsetOperator(self.inner.astype(dtype), self.offset)

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved = self.inner.on_backend(bk, like)
        return None if moved is None else OffsetOperator(moved, self.offset)

    def _scalar(self) -> Array:
        return self.bk.asarray(np.asarray(self.offset, self.dtype))

    def transpose(self) -> Operator:
        return OffsetOperator(self.inner.transpose(), self.offset)

    def conj(self) -> Operator:
        return OffsetOperator(self.inner.conj(), np.conj(self.offset))

    def dense(self) -> Array:
        return self.inner.dense() + self._scalar()

    def diagonals(self) -> Array:
        return self.inner.diagonals() + self._scalar()

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        arrays, rebuild = self.inner.for_host()
        return arrays, lambda values: OffsetOperator(rebuild(values), self.offset)

    def per_system(self, i: int) -> Any:
        return rows_as_scipy(self, i)


def _restore(offset: complex, inner: Any) -> OffsetOperator:
    operator = object.__new__(OffsetOperator)
    operator.inner, operator.offset = inner, offset
    if isinstance(inner, Operator):  # else a placeholder of a transformation
        operator.bk, operator.shape, operator.dtype, operator.systems = (
            inner.bk,
            inner.shape,
            inner.dtype,
            inner.systems,
        )
    return operator
