"""A permuted operator, with its permutation known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Composed, Operator, storable
from ....sparse.formats.entries.scipy_form import csr_array
from .formats import suited
from .target import Target


@storable("in another order")
@dataclass(eq=False, repr=False)
class Permuted(Composed):
    """`Q^T inner Q` with the permutation matrix Q that has a one in row k and column `order[k]`.

    The order is in the places of the entries, which nothing traces: who gets M as an argument of a compiled function
    can still tell which unknown is which.
    """

    parts = ("inner", "there", "back")

    inner: Operator
    there: Operator
    back: Operator

    @property
    def order(self) -> np.ndarray:
        there: Any = self.there
        return np.asarray(there.structure.entries().cols)

    def __post_init__(self) -> None:
        if not self.inner.shape == self.there.shape == self.back.shape:
            raise ValueError(f"An order of {self.there.shape[0]} unknowns does not fit to {self.inner!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.back.apply(self.inner.apply(self.there.apply(x)))

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved: Any = super().on_backend(bk, like)
        return moved and replace(moved, there=suited(moved.there, bk, like), back=suited(moved.back, bk, like))

    def transpose(self) -> Permuted:
        return Permuted(self.inner.transpose(), self.there, self.back)


def permuted(inner: Operator, order: np.ndarray, target: Target) -> Permuted:
    """Permuted operator: `inner` takes unknown `order[k]` as its number k."""
    n, places = len(order), np.argsort(order).astype(order.dtype)
    rows = np.arange(n + 1, dtype=np.int32)
    there, back = (target.matrix(csr_array(np.ones(n), cols, rows, (n, n))) for cols in (order, places))
    return Permuted(inner, there, back)
