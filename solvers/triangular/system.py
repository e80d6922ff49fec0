"""A sparse triangular solve as a function of arrays, which backends differentiate by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...backends import Array, Backend, LinearSystem
from ...sparse import Composed, MappedOperator, Operator, SparseMatrix, storable
from ...sparse.formats import from_entries
from .by_superlu import inverse_of_unit

Make = Callable[[Sequence[Array]], Operator]


@storable("triangular inverse")
@dataclass(eq=False, repr=False)
class TriangularInverse(Composed):
    """The inverse of D (I + S): divide by D, `(1, n)` or `(systems, n)`, then solve with I + S; or the transpose."""

    parts = ("unit", "inverse")

    unit: Operator
    inverse: Array
    transposed: bool = False

    @classmethod
    def of(cls, T: SparseMatrix) -> TriangularInverse:
        """The inverse of a triangular matrix, whose diagonal is stored. Not finite where that is zero."""
        rows, cols, _ = T.structure.entries()
        on = rows == cols
        host = T.stored.host
        values = T.stored.entry_values()
        last = len(values.shape) - 1
        with host.quiet():
            inverse = 1 / host.reshape(host.take(values, np.flatnonzero(on), last), (-1, T.shape[0]))
        scales = inverse if last else inverse[0]
        strict = host.take(values, np.flatnonzero(~on), last) * host.take(scales, rows[~on], last)
        S = from_entries(
            T.bk, rows[~on], cols[~on], strict, T.shape, format="csr", prune=False, like=T.stored.anchor(),
            sum_duplicates=False,
        )  # fmt: skip
        return cls(inverse_of_unit(S), inverse)

    def transpose(self) -> TriangularInverse:
        return TriangularInverse(self.unit.transpose(), self.inverse, not self.transposed)

    def apply(self, x: Array) -> Array:
        inverse = self.array("inverse")
        return inverse * self.unit.apply(x) if self.transposed else self.unit.apply(inverse * x)


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
        if not bk.explicit_derivatives:
            return cls(bk, lambda _: T, lambda _: TriangularInverse.of(T), (), (), rows)
        arrays, make = bk.take_apart(T)
        return cls(
            bk, make, lambda arrays: TriangularInverse.of(make(arrays)), arrays,
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
