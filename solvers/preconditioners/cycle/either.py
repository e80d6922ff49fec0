"""One of two operators, selected by an array when a compiled program runs."""

from __future__ import annotations

from dataclasses import dataclass

from ....backends import Array
from ....sparse import Composed, Operator, storable


@storable("one of two")
@dataclass(eq=False, repr=False)
class Either(Composed):
    """`first` where `chosen`, a real array `(1,)`, is positive, else `second`; only that one is applied."""

    parts = ("first", "second", "chosen")

    first: Operator
    second: Operator
    chosen: Array

    def __post_init__(self) -> None:
        if self.first.shape != self.second.shape or tuple(self.chosen.shape) != (1,):
            shapes = self.first.shape, self.second.shape, tuple(self.chosen.shape)
            raise ValueError(f"Two operators and a choice of the shapes {shapes} do not fit together.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.bk.compile_if_faster(_applied, ())(self, x)  # a solve has many applications, which are traced once

    def transpose(self) -> Either:
        return Either(self.first.transpose(), self.second.transpose(), self.chosen)


def _applied(M: Either, x: Array) -> Array:
    return M.bk.cond(M.array("chosen")[0] > 0, M.first.apply, M.second.apply, x)
