"""Singularity seen in factors, and the components that a solution then leaves out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from ....backends import Array
from ....sparse import Composed, Operator, storable
from .factorisation import Solves


class Singularity(IntEnum):
    """Levels of what is known about the singularity of a matrix, as stored in results."""

    REGULAR = 0
    ILL_CONDITIONED = 1
    SINGULAR = 2  # a pivot was zero, but for rounding
    KNOWN = 3  # null vectors were given, or found before


def suspicious(dtype: np.dtype) -> float:
    """Growth of a random vector under the inverse, in inverse rounding units, from which a matrix is examined."""
    return 0.03 if np.dtype(dtype).char in "fF" else 1e-4


@storable("factors of a singular matrix")
@dataclass(eq=False, repr=False)
class SingularFactors(Composed, Solves):
    """`R F`, a pseudo-inverse of a singular A on its range: R projects out the null space.

    F is any inverse of A on its range, as factors are that are shifted off zero. What is out of the range of A is left
    in b: a solve has to see that it has no solution. What is regular passes unchanged.

    Attributes:
        inner: F.
        right, left: projections that remove the null spaces of A and of its adjoint.
        singularity: `(systems or 1, 1)`, numbers of `Singularity`.
    """

    parts = ("inner", "right", "left", "singularity")

    inner: Operator
    right: Operator
    left: Operator
    singularity: Array

    def apply(self, x: Array) -> Array:
        return self.right.apply(self.right.apply(self.inner.apply(x)))  # of a large part once leaves its rounding

    def in_range(self, b: Array) -> Array:
        """b less its part in the null vectors of the adjoint."""
        return self.left.apply(self.left.apply(b))  # once leaves rounding, which may be all that there is

    def without_null(self, x: Array) -> Array:
        """Project null vectors out of x."""
        return self.right.apply(x)

    def transpose(self) -> SingularFactors:
        return replace(self, inner=self.inner.transpose(), right=self.left.transpose(), left=self.right.transpose())

    def conj(self) -> SingularFactors:
        return replace(self, inner=self.inner.conj(), right=self.right.conj(), left=self.left.conj())


def in_range(factors: Operator | None, b: Array) -> Array:
    """b less its part in the null vectors of the adjoint of A that its factors know."""
    take_off = getattr(factors, "in_range", None)
    return b if take_off is None else take_off(b)


def told_by(factors: Operator | None) -> Array | None:
    """`(systems or 1, 1)`, numbers of `Singularity`; None where nothing is wrong."""
    return (
        factors.array("singularity") if isinstance(factors, SingularFactors) else getattr(factors, "singularity", None)
    )
