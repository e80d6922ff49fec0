"""Factors: the protocol of sparse libraries, and operators that apply the inverse of A.

A library analyses a pattern, an analysis makes factors of numbers, factors solve with the matrix and its transpose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends import Array
from ...sparse import Composed, Operator, storable
from ...sparse.files import tree
from ...sparse.files.storable import Fields
from ..log import log

if TYPE_CHECKING:
    from .pattern import EntryPattern, Kind


class FactorsRefused(Exception):
    """A library does not factorise a matrix, or its factors cannot be believed; the text says why."""


class PatternRefused(FactorsRefused):
    """A library does not suit the pattern of a matrix, whatever its numbers."""


class ExactlySingular(FactorsRefused, RuntimeError):
    """A pivot is zero whatever row is taken; a RuntimeError, as SuperLU raises it in SciPy."""


class Factors(ABC):
    """Factors of one matrix of NumPy. Right-hand sides are `(n,)` or columns `(n, count)`; any thread may solve.

    Attributes:
        library: that made them; for SuperLU in the place of others, why these did not, too.
        nnz: the numbers that they store; None where that is not known.
        dtype: of these numbers.
        known: what keeps their analysis for other numbers.
    """

    library: str
    nnz: int | None
    dtype: np.dtype
    known: Any = None

    @abstractmethod
    def solve(self, b: np.ndarray) -> np.ndarray:
        """Solve A x = b."""

    @abstractmethod
    def solve_transposed(self, b: np.ndarray) -> np.ndarray:
        """Solve with the transposed, not conjugated matrix."""

    def refine(self) -> bool:
        """Refine each solve from now on; False where they are refined already, or cannot be."""
        return False


class SymbolicAnalysis(ABC):
    """What depends on the pattern of a matrix: orderings and the structure of the factors.

    Attributes:
        pattern: that was analysed.
        kind: of the numbers that it suits; None where these may be any.
    """

    pattern: EntryPattern
    kind: Kind | None = None

    @property
    def nbytes(self) -> int:
        """Memory that it holds, factors kept in it included."""
        return 0

    @abstractmethod
    def factor(self, A: Any) -> Factors:
        """Factors of the `csc_array` that was analysed.

        Raises:
            FactorsRefused: there are none that can be used.
        """

    def refactor(self, A: Any) -> Factors:
        """Factors of other numbers at the same places; the orderings stay.

        Raises:
            FactorsRefused: there are none that can be used.
        """
        if self.kind is not None and self.pattern.kind(A) is not self.kind:
            raise FactorsRefused("the numbers are symmetric in another way than those that were analysed")
        return self.factor(A)


class Provider(ABC):
    """A library of sparse factors.

    Attributes:
        name: as the user gives it, and as results tell it.
        package: what installs it, for messages.
        module: what is imported.
    """

    name: str
    package: str
    module: str

    def is_installed(self) -> bool:
        """Can it be used here? The library is looked for, not imported."""
        return is_there(self.module)

    @abstractmethod
    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        """Analysis of the canonical `csc_array` A, of this pattern.

        Raises:
            FactorsRefused: the library does not suit such matrices.
        """


@cache
def is_there(package: str) -> bool:
    """Is a package installed? It is looked for once, and not imported."""
    return find_spec(package) is not None


_unusable: dict[str, str] = {}  # package -> why it cannot be imported


def library(package: str) -> Any:
    """The module of a package that is there. A package that cannot be imported is tried once, and told of once.

    Raises:
        FactorsRefused: it cannot be imported, as a library that it needs is not there or does not suit.
    """
    if package not in _unusable:
        try:
            return import_module(package)
        except (ImportError, OSError, RuntimeError) as error:
            _unusable[package] = f"{type(error).__name__}: {error}"
            log.warning("%s is installed, but cannot be imported, and is left out: %s", package, _unusable[package])
    raise FactorsRefused(f"{package} cannot be imported: {_unusable[package]}")


# --- operators


class DirectInverse(Operator):
    """The inverse of A as a direct method makes it; for a singular A a pseudo-inverse on its range.

    Attributes:
        numbers: stored in the factors, without indices; None where that is not known.
    """

    kind = "factors"  # as a preconditioner
    numbers: int | None = None

    @property
    def projections(self) -> tuple[Operator, Operator] | None:
        """Remove the null vectors of A and of its adjoint; None where A is regular."""
        return None

    def in_range(self, b: Array) -> Array:
        """b less its part in the null vectors of the adjoint."""
        if self.projections is None:
            return b
        bk, (_, left) = self.bk, self.projections
        return bk.astype(left.apply(left.apply(b)), bk.dtype(b))  # once leaves rounding, which may be all that there is

    def without_null(self, x: Array) -> Array:
        """Project null vectors out of x."""
        return x if self.projections is None else self.bk.astype(self.projections[0].apply(x), self.bk.dtype(x))

    def save(self, path: Any) -> None:
        """Write it to a `.npz` file, which `krylix.load_preconditioner` reads.

        Raises:
            ValueError: the path has another ending; a number in it is not finite.
            UnsupportedOperation: its values are not known yet (inside a compiled function).
            OSError: it cannot be written.
        """
        tree.save_operator(path, self)


@storable("grid factors")
@dataclass(eq=False, repr=False)
class InverseFactors(Composed, DirectInverse):
    """The inverse of A as another operator."""

    passes_grids = True

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> InverseFactors:
        transposed: InverseFactors = self._map(lambda A: A.transpose())
        return transposed


@storable("factors of a singular matrix")
@dataclass(eq=False, repr=False)
class SingularFactors(Composed, DirectInverse):
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

    @property
    def projections(self) -> tuple[Operator, Operator]:
        return self.right, self.left

    def apply(self, x: Array) -> Array:
        return self.right.apply(self.right.apply(self.inner.apply(x)))  # of a large part once leaves its rounding

    def transpose(self) -> SingularFactors:
        return replace(self, inner=self.inner.transpose(), right=self.left.transpose(), left=self.right.transpose())

    def conj(self) -> SingularFactors:
        return replace(self, inner=self.inner.conj(), right=self.right.conj(), left=self.left.conj())


@dataclass(eq=False, repr=False)
class MatrixToFactorise(Composed):
    """The matrix of A, to be factorised in its place."""

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> MatrixToFactorise:
        transposed: MatrixToFactorise = self._map(lambda A: A.transpose())
        return transposed


def singularity_of(factors: Operator | None) -> Array | None:
    """`(systems or 1, 1)`, numbers of `Singularity`; None where nothing is wrong."""
    if isinstance(factors, SingularFactors):
        return factors.array("singularity")
    return getattr(factors, "singularity", None)


def check_truths(given: Fields, *names: str) -> None:
    """Raise ValueError where a field of a file is no bool."""
    for name in names:
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} is {given[name]!r}; expected true or false")
