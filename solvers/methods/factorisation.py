"""A factorisation, seen as the operator that solves with it; one serves the transposed matrix too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator, UnsupportedOperation


class Factorisation(Operator):
    """Maps b to the solution of A x = b, or of the transposed or conjugated system."""

    transposed: bool
    conjugated: bool

    @abstractmethod
    def solve(self, b: Array) -> Array:
        """`(batch, n)` -> `(batch, n)`, with A or with its transpose if `transposed`."""

    @abstractmethod
    def derived(self, *, transposed: bool, conjugated: bool) -> Factorisation:
        """The same factors for another system."""

    def apply(self, x: Array) -> Array:
        if not self.conjugated:
            return self.solve(x)
        return self.bk.conj(self.solve(self.bk.conj(x)))

    def transpose(self) -> Operator:
        return self.derived(transposed=not self.transposed, conjugated=self.conjugated)

    def conj(self) -> Operator:
        return self.derived(transposed=self.transposed, conjugated=not self.conjugated)

    def dense(self) -> Array:
        return self._columns()

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.dense())
        return diagonal[None] if self.systems is None else diagonal

    def per_system(self, i: int) -> Any:
        raise UnsupportedOperation("A factorisation is not handed to SciPy.")


class DenseFactors(Factorisation):
    """LU or Cholesky factors in arrays of the library."""

    is_container = True

    def __init__(
        self,
        bk: Backend,
        factors: Sequence[Array],
        cholesky: bool,
        shape: tuple[int, int],
        dtype: np.dtype,
        systems: int | None,
        transposed: bool = False,
        conjugated: bool = False,
    ) -> None:
        self.bk, self.factors, self.cholesky = bk, tuple(factors), cholesky
        self.shape, self.dtype, self.systems = shape, dtype, systems
        self.transposed, self.conjugated = transposed, conjugated
        bk.register(DenseFactors, lambda f: (f.factors, f._static()), lambda static, arrays: DenseFactors(
            static[0], arrays, *static[1:]))  # fmt: skip

    def _static(self) -> tuple[Any, ...]:
        return self.bk, self.cholesky, self.shape, self.dtype, self.systems, self.transposed, self.conjugated

    def solve(self, b: Array) -> Array:
        if not self.cholesky:
            return self.bk.linalg.lu_solve(self.factors, b, self.transposed)
        if not self.transposed:
            return self.bk.linalg.cholesky_solve(self.factors[0], b)
        return self.bk.conj(self.bk.linalg.cholesky_solve(self.factors[0], self.bk.conj(b)))

    def derived(self, *, transposed: bool, conjugated: bool) -> DenseFactors:
        static = (self.cholesky, self.shape, self.dtype, self.systems)
        return DenseFactors(self.bk, self.factors, *static, transposed, conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        if self.bk.name != "numpy":
            raise UnsupportedOperation("A factorisation by another library stays where it was made.")
        return (), lambda _: self


@dataclass(frozen=True, eq=False)
class HostFactors(Factorisation):
    """A factorisation on the host; `solver(b, transposed)` solves for NumPy rows."""

    bk: Backend
    shape: tuple[int, int]
    dtype: np.dtype
    solver: Callable[[np.ndarray, bool], np.ndarray]
    transposed: bool = False
    conjugated: bool = False

    def solve(self, b: Array) -> Array:
        return self.solver(b, self.transposed)

    def derived(self, *, transposed: bool, conjugated: bool) -> HostFactors:
        return replace(self, transposed=transposed, conjugated=conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self
