"""A permuted operator: the unknowns in another order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array
from ...sparse import Composed, Operator, storable


@storable("reordered")
@dataclass(eq=False, repr=False)
class Reordered(Composed):
    """`inner` between two permutations: `y[i] = (inner x[before])[after[i]]`; and the inverses of these."""

    parts = ("inner", "before", "before_back", "after", "after_back")

    inner: Operator
    before: Array
    before_back: Array
    after: Array
    after_back: Array

    def transpose(self) -> Reordered:
        return Reordered(self.inner.transpose(), self.after_back, self.after, self.before_back, self.before)

    def apply(self, x: Array) -> Array:
        bk = self.bk
        return bk.take_in_bounds(
            self.inner.apply(bk.take_in_bounds(x, self.array("before"), 1)), self.array("after"), 1
        )


def reordered(inner: Operator, order: np.ndarray) -> Reordered:
    """Permuted operator: `inner` takes unknown `order[k]` as its number k; int32."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    own, back = (inner.bk.asarray(index) if not inner.bk.compiled() else index for index in (order, places))
    return Reordered(inner, own, back, back, own)
