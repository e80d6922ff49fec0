"""Operators that apply the inverse of A, or a pseudo-inverse where A is singular."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...backends import Array
from ...sparse import Composed, Operator, storable
from ...sparse.files.saved import save_operator
from ..singular.projections import projected_twice


class DirectInverse(Operator):
    """Inverse of A by a direct method; for a singular A a pseudo-inverse on its range."""

    kind = "factors"  # as a preconditioner
    numbers: int | None = None  # of values stored in the factors; None where it is not known

    @property
    def projections(self) -> tuple[Operator, Operator] | None:
        """Projections that remove the null vectors of A and of its adjoint.

        None where A is regular, or was bordered for its offset: null vectors are then those of the bordered matrix.
        """
        return None

    def in_range(self, b: Array) -> Array:
        """Project null vectors of the adjoint out of b."""
        if self.projections is None:
            return b
        bk, (_, left) = self.bk, self.projections
        return bk.astype(projected_twice(left, b), bk.dtype(b))

    def without_null(self, x: Array) -> Array:
        """Project null vectors out of x, once only, because each refinement does it again."""
        return x if self.projections is None else self.bk.astype(self.projections[0].apply(x), self.bk.dtype(x))

    def save(self, path: Any) -> None:
        """Write the factors to a `.npz` file, which `krylix.load_preconditioner` reads.

        Raises:
            ValueError: the path has another ending, or a value is not finite.
            UnsupportedOperation: the values are not known yet (inside a compiled function).
            OSError: the file cannot be written.
        """
        save_operator(path, self)


@dataclass(eq=False, repr=False)
class _Named(Composed):
    """Another operator, whose class says what it is for."""

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())


class MatrixToFactorise(_Named):
    """Matrix of A, to be factorised in its place."""


@storable("grid factors")
class InverseOperator(_Named, DirectInverse):
    """Inverse of A as another operator, such as fast transforms or a reduced band."""

    passes_grids = True


@storable("factors of a singular matrix")
@dataclass(eq=False, repr=False)
class PseudoInverse(Composed, DirectInverse):
    """`R F`, a pseudo-inverse of a singular A on its range: R projects out the null space.

    F is any inverse of A on its range, such as shifted factors. The component of b outside the range of A stays in b,
    because the solve has to detect that there is no solution. Regular systems pass unchanged.

    The transpose is a pseudo-inverse of Aᵀ of the same form, `Lᵀ Fᵀ`. It agrees with `(R F)ᵀ = Fᵀ Rᵀ` on the range of
    Aᵀ only, up to null vectors.
    """

    parts = ("inner", "right", "left", "singularity")

    inner: Operator  # F
    right: Operator  # removes the null space of A
    left: Operator  # removes that of its adjoint
    singularity: Array  # values of `Singularity`, `(systems or 1, 1)`

    @property
    def projections(self) -> tuple[Operator, Operator]:
        return self.right, self.left

    def apply(self, x: Array) -> Array:
        return projected_twice(self.right, self.inner.apply(x))

    def transpose(self) -> PseudoInverse:
        return replace(self, inner=self.inner.transpose(), right=self.left.transpose(), left=self.right.transpose())

    def conj(self) -> PseudoInverse:
        return replace(self, inner=self.inner.conj(), right=self.right.conj(), left=self.left.conj())


def singularity_of(factors: Operator | None) -> Array | None:
    """Values of `Singularity`, `(systems or 1, 1)`; None where the factors tell none.

    Regular systems have 0 there; all may, because compiled programs cannot choose another operator for regular ones.
    """
    if isinstance(factors, PseudoInverse):
        return factors.array("singularity")
    return getattr(factors, "singularity", None)
