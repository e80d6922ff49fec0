"""A factorisation, seen as the operator that solves with it; one serves the transposed matrix too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Operator, Turned, UnsupportedOperation


class Solves:
    """What direct methods make of A: an operator that is its inverse."""


class Factorisation(Turned, Solves):
    """Maps b to the solution of A x = b, or of the transposed or conjugated system."""

    def per_system(self, i: int) -> Any:
        raise UnsupportedOperation("A factorisation is not handed to SciPy.")


class DenseFactors(Factorisation):
    """LU or Cholesky factors in arrays of the library; behind those of LU, the scales of its rows and columns."""

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
        self._register()

    def _register(self) -> None:
        self.bk.register(DenseFactors, lambda f: (f.factors, f._static()), lambda static, arrays: DenseFactors(
            static[0], arrays, *static[1:]))  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    def _static(self) -> tuple[Any, ...]:
        return self.bk, self.cholesky, self.shape, self.dtype, self.systems, self.transposed, self.conjugated

    def product(self, x: Array) -> Array:
        if not self.cholesky:
            *factors, rows, columns = self.factors
            first, last = (columns, rows) if self.transposed else (rows, columns)
            return self._scaled(self.bk.linalg.lu_solve(tuple(factors), self._scaled(x, first), self.transposed), last)
        if not self.transposed:
            return self.bk.linalg.cholesky_solve(self.factors[0], x)
        return self.bk.conj(self.bk.linalg.cholesky_solve(self.factors[0], self.bk.conj(x)))

    def _scaled(self, x: Array, scales: Array) -> Array:
        """`(batch, n)` times the diagonal of a matrix, or those of one per system."""
        return self.bk.astype(self.bk.reshape(scales, (-1, self.shape[0])), self.dtype) * x

    def turned(self, *, transposed: bool, conjugated: bool) -> DenseFactors:
        static = (self.cholesky, self.shape, self.dtype, self.systems)
        return DenseFactors(self.bk, self.factors, *static, transposed, conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        if not self.bk.on_host:
            raise UnsupportedOperation("A factorisation by another library stays where it was made.")
        return (), lambda _: self


@dataclass(frozen=True, eq=False, repr=False)
class HostFactors(Factorisation):
    """A factorisation on the host; `solver(b, transposed)` solves for NumPy rows."""

    bk: Backend
    shape: tuple[int, int]
    dtype: np.dtype
    solver: Callable[[np.ndarray, bool], np.ndarray]
    transposed: bool = False
    conjugated: bool = False
    systems: int | None = None

    def product(self, x: Array) -> Array:
        return self.solver(x, self.transposed)

    def turned(self, *, transposed: bool, conjugated: bool) -> HostFactors:
        return replace(self, transposed=transposed, conjugated=conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self
