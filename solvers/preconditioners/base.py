"""The preconditioner: an operator with a name and facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator


class Preconditioner(Operator):
    """M, an approximation of the inverse of A, applied as `M @ r`.

    Attributes:
        kind: how it was made.
        hermitian: is M symmetric (Hermitian)? None: not known. CG and MINRES refuse one that is known not to be.
        memory: numbers stored.
    """

    def __init__(self, inner: Operator, kind: str, hermitian: bool | None = None, memory: int | None = None) -> None:
        self.inner, self.kind, self.hermitian, self.memory = inner, kind, hermitian, memory
        self.bk, self.shape, self.dtype, self.systems = inner.bk, inner.shape, inner.dtype, inner.systems
        self.is_container = inner.is_container  # type: ignore[misc]
        self.bk.register(Preconditioner, lambda m: ((m.inner,), (m.kind, m.hermitian, m.memory)), _restore)

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.inner.out_shape

    def astype(self, dtype: np.dtype) -> Preconditioner:
        return Preconditioner(self.inner.astype(dtype), self.kind, self.hermitian, self.memory)

    def on_backend(self, bk: Backend, like: Array | None) -> Preconditioner | None:
        moved = self.inner.on_backend(bk, like)
        return None if moved is None else Preconditioner(moved, self.kind, self.hermitian, self.memory)

    def as_container(self) -> Preconditioner:
        return Preconditioner(self.inner.as_container(), self.kind, self.hermitian, self.memory)

    @property
    def together(self) -> int | None:
        return self.inner.together

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Preconditioner:
        return Preconditioner(self.inner.transpose(), self.kind, self.hermitian, self.memory)

    def conj(self) -> Preconditioner:
        return Preconditioner(self.inner.conj(), self.kind, self.hermitian, self.memory)

    def dense(self) -> Array:
        return self.inner.dense()

    def diagonals(self) -> Array:
        return self.inner.diagonals()

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        arrays, rebuild = self.inner.for_host()
        return arrays, lambda values: Preconditioner(rebuild(values), self.kind, self.hermitian, self.memory)

    def per_system(self, i: int) -> Any:
        return self.inner.per_system(i)

    def known(self) -> Any:
        return self.inner.known()

    def __repr__(self) -> str:
        n = self.shape[0]
        cost = f", {self.memory / max(n, 1):.3g} numbers per unknown" if self.memory is not None else ""
        return f"<{self.kind} preconditioner for {n} unknowns, {self.dtype}, {self.bk.name}{cost}>"


def _restore(static: Any, inner: Sequence[Any]) -> Preconditioner:
    if isinstance(inner[0], Operator):
        return Preconditioner(inner[0], *static)
    m = object.__new__(Preconditioner)  # a placeholder of a transformation stands in for the operator
    m.inner, (m.kind, m.hermitian, m.memory) = inner[0], static
    return m
