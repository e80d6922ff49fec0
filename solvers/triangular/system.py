"""A sparse triangular solve as a function of arrays, which backends differentiate by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...backends import Array, Backend, LinearSystem
from ...sparse import MappedOperator, Operator, SparseMatrix
from ...sparse.formats import from_entries
from .by_levels import LevelSolve

Make = Callable[[Sequence[Array]], Operator]


def inverse_of_triangular(T: SparseMatrix) -> LevelSolve:
    """The inverse of a triangular matrix, whose diagonal is stored. Not finite where that is zero."""
    rows, cols, _ = T.structure.entries()
    on, host, values = rows == cols, T.host, T.entry_values()
    diagonal, strict = (host.take(values, np.flatnonzero(chosen), len(values.shape) - 1) for chosen in (on, ~on))
    S = from_entries(
        T.bk, rows[~on], cols[~on], strict, T.shape, format="csr", prune=False, like=T.anchor(),
        sum_duplicates=False,
    )  # fmt: skip
    return LevelSolve.of(S, diagonal)


@dataclass(frozen=True)
class TriangularSystem(LinearSystem):
    """`T x = b` for rows b.

    Attributes:
        make, inverse: of arrays T, and its inverse.
        rows: how many rows b has.
    """

    bk: Backend
    make: Make
    inverse: Make
    arrays: Sequence[Array]
    differentiable: Sequence[bool]
    rows: int

    @classmethod
    def of(cls, T: SparseMatrix, rows: int) -> TriangularSystem:
        """The system of a triangular matrix."""
        bk = T.bk
        arrays, make = bk.flatten(T)
        return cls(
            bk, make, lambda arrays: inverse_of_triangular(make(arrays)), arrays,
            tuple(bk.dtype(a).kind in "fc" for a in arrays), rows,
        )  # fmt: skip

    def product(self, x: Array) -> Array:
        return self.make(self.arrays).apply(x)

    def solve(self, b: Array, given: Array | None = None) -> tuple[Array, tuple[Array, ...]]:
        return self.inverse(self.arrays).apply(b), ()

    def tangent(self) -> TriangularSystem:
        return self

    def transpose(self) -> TriangularSystem:
        make, inverse = self.make, self.inverse
        return replace(
            self, make=lambda arrays: make(arrays).transpose(), inverse=lambda arrays: inverse(arrays).transpose()
        )

    def with_arrays(self, arrays: Sequence[Array]) -> TriangularSystem:
        return replace(self, arrays=tuple(arrays))

    def started_at(self, x: Array) -> TriangularSystem:
        return self

    def mapped(self, size: int, axes: Sequence[int | None]) -> TriangularSystem:
        def many(make: Make) -> Make:
            return lambda arrays: MappedOperator(self.bk, make, arrays, axes, size, self.rows)

        return replace(self, make=many(self.make), inverse=many(self.inverse), rows=size * self.rows)
