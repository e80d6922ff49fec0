"""A factorisation, seen as the operator that it inverts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends import Array
from ..sparse import Operator, UnsupportedOperation


class Factorisation(Operator):
    """Maps b to the solution of A x = b; exists only inside one solve."""

    def __init__(
        self, A: Operator, solve: Callable[[Array], Array], transposed: Callable[[Array], Array] | None = None
    ) -> None:
        self.bk, self.shape, self.dtype, self.systems = A.bk, A.shape, A.dtype, A.systems
        self._solve, self._transposed, self._of = solve, transposed, A

    def apply(self, x: Array) -> Array:
        return self._solve(x)

    def transpose(self) -> Operator:
        if self._transposed is None:
            raise UnsupportedOperation("This factorisation does not offer transposed solves.")
        return Factorisation(self._of.transpose(), self._transposed, self._solve)

    def conj(self) -> Operator:
        conj = self.bk.conj
        return Factorisation(self._of.conj(), lambda b: conj(self._solve(conj(b))))

    def dense(self) -> Array:
        return self._columns()

    def diagonals(self) -> Array:
        return self.bk.diagonal(self.dense())[None]

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        raise UnsupportedOperation("A factorisation stays where it was made.")

    def per_system(self, i: int) -> Any:
        raise UnsupportedOperation("A factorisation is not handed to SciPy.")
