"""The operator of least squares: A^H A + damp^2 I, by products with A and its adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array
from ..operator import Operator
from .bridge import rows_as_scipy


class NormalOperator(Operator):
    """`A^H A + damp^2 I` for a rectangular or square A `(m, n)`: Hermitian, `(n, n)`, semi-definite; never formed.

    Cost: no entries of its own; 1 product with A and 1 with its adjoint.

    Attributes:
        inner: A.
        damp: a real number.

    Raises:
        UnsupportedOperation, TypeError: A has no transposed product.
    """

    products = 2

    def __init__(self, inner: Operator, damp: float = 0.0) -> None:
        self.inner, self.damp, self.bk = inner, float(damp), inner.bk
        self._adjoint: Operator | None = inner.H
        self.shape, self.dtype, self.systems = (inner.shape[1],) * 2, inner.dtype, inner.systems
        self.is_container = inner.is_container  # type: ignore[misc]
        self.tracked = inner.tracked
        self.bk.register(NormalOperator, lambda a: ((a.inner,), a.damp), lambda damp, inner: _restore(damp, *inner))

    @property
    def adjoint_inner(self) -> Operator:
        """A^H, made once."""
        if self._adjoint is None:
            self._adjoint = self.inner.H
        return self._adjoint

    def as_container(self) -> Operator:
        return NormalOperator(self.inner.as_container(), self.damp)

    def apply(self, x: Array) -> Array:
        image = self.adjoint_inner.apply(self.inner.apply(x))
        if not self.damp:
            return image
        damp = self.bk.asarray(np.asarray(self.damp, self.dtype))
        return image + damp * (damp * x)

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    @property
    def together(self) -> int | None:
        return self.inner.together

    def astype(self, dtype: np.dtype) -> NormalOperator:
        return NormalOperator(self.inner.astype(dtype), self.damp)

    def on_backend(self, bk: Any, like: Array | None) -> Operator | None:
        moved = self.inner.on_backend(bk, like)
        return None if moved is None else NormalOperator(moved, self.damp)

    def transpose(self) -> Operator:
        return self.conj()

    def conj(self) -> Operator:
        return NormalOperator(self.inner.conj(), self.damp) if self.dtype.kind == "c" else self

    def dense(self) -> Array:
        return self._columns()

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.dense())
        return diagonal[None] if self.systems is None else diagonal

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        arrays, rebuild = self.inner.for_host()
        return arrays, lambda values: NormalOperator(rebuild(values), self.damp)

    def per_system(self, i: int) -> Any:
        return rows_as_scipy(self, i)


def _restore(damp: float, inner: Any) -> NormalOperator:
    """Rebuild without a look at `inner`: transformations put placeholders into it, which have no adjoint."""
    operator = object.__new__(NormalOperator)
    operator.inner, operator.damp, operator._adjoint = inner, damp, None
    if isinstance(inner, Operator):
        operator.bk, operator.dtype, operator.systems = inner.bk, inner.dtype, inner.systems
        operator.shape = (inner.shape[1],) * 2
    return operator
