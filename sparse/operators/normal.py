"""Normal equations: the operator A^H A + damp^2 I, by products with A and its adjoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array
from ..operator import Operator
from .composed import Composed


@dataclass(eq=False, repr=False)
class NormalOperator(Composed):
    """`A^H A + damp^2 I` for a rectangular or square A `(m, n)`: Hermitian, `(n, n)`, semi-definite; never formed.

    Cost: no entries of its own; 1 product with A and 1 with its adjoint.

    Attributes:
        inner: A.
        damp: a real number.

    Raises:
        UnsupportedOperation, TypeError: A has no transposed product.
    """

    products = 2
    only_flat = True

    inner: Operator
    damp: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.damp, _ = float(self.damp), self.adjoint_inner  # fails now if A has none

    def _settle(self) -> None:
        super()._settle()
        self.shape = (self.inner.shape[1],) * 2
        self._adjoint: Operator | None = None

    @property
    def adjoint_inner(self) -> Operator:
        """A^H; made once, but for each trace of a function that is transformed, which no array of it may outlive."""
        if self._adjoint is not None:
            return self._adjoint
        made = self.inner.H
        if not self.bk.compiled():
            self._adjoint = made
        return made

    def apply(self, x: Array) -> Array:
        image = self.adjoint_inner.apply(self.inner.apply(x))
        if not self.damp:
            return image
        damp = self.bk.asarray(np.asarray(self.damp, self.dtype))
        return image + damp * (damp * x)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    def transpose(self) -> Operator:
        return self.conj()

    def conj(self) -> Operator:
        return super().conj() if self.dtype.kind == "c" else self
