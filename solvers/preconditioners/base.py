"""The preconditioner: an operator with a name and facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...backends import Array
from ...sparse import Composed, Operator


@dataclass(eq=False, repr=False)
class Preconditioner(Composed):
    """M, an approximation of the inverse of A, applied as `M @ r`.

    Attributes:
        inner: M as an operator, such as a matrix, a function, or a `Composed` that states `apply` and `transpose`.
        kind: how it was made.
        hermitian: is M symmetric (Hermitian)? None: not known. CG and MINRES refuse one that is known not to be.
        memory: numbers stored.
    """

    inner: Operator
    kind: str
    hermitian: bool | None = None
    memory: int | None = None

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())

    def dense(self) -> Array:
        return self.inner.dense()

    def diagonals(self) -> Array:
        return self.inner.diagonals()

    def per_system(self, i: int) -> Any:
        return self.inner.per_system(i)

    def known(self) -> Any:
        return self.inner.known()

    def __repr__(self) -> str:
        n = self.shape[0]
        cost = f", {self.memory / max(n, 1):.3g} numbers per unknown" if self.memory is not None else ""
        return f"<{self.kind} preconditioner for {n} unknowns, {self.dtype}, {self.bk.name}{cost}>"
