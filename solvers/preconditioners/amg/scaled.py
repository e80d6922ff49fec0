"""An operator between two diagonal matrices."""

from __future__ import annotations

from dataclasses import dataclass

from ....backends import Array
from ....sparse import Composed, Operator, storable


@storable("scaled on both sides")
@dataclass(eq=False, repr=False)
class Scaled(Composed):
    """`left inner right`, with diagonals `(1, n)`, or one per system `(systems, n)`."""

    parts = ("inner", "left", "right")

    inner: Operator
    left: Array
    right: Array

    def apply(self, x: Array) -> Array:
        return self.array("left") * self.inner.apply(self.array("right") * x)

    def transpose(self) -> Scaled:
        return Scaled(self.inner.transpose(), self.right, self.left)
