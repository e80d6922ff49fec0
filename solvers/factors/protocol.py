"""Factors: the protocol of sparse libraries, and operators that apply the inverse of A.

A library analyses a pattern, the analysis factorises values, and the factors solve with the matrix and its transpose.
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
from ..singular.projections import projected_twice

if TYPE_CHECKING:
    from .pattern import EntryPattern, Kind


class FactorsRefused(Exception):
    """A library cannot factorise a matrix, or its factors are inaccurate. The message says why."""


class PatternRefused(FactorsRefused):
    """A library cannot factorise matrices of this pattern, whatever their values."""


class ExactlySingular(FactorsRefused, RuntimeError):
    """A pivot is zero whatever row is taken; a RuntimeError, as SuperLU raises it in SciPy."""


class Factors(ABC):
    """Factors of one NumPy matrix. Right-hand sides are `(n,)` or columns `(n, count)`. Any thread may solve.

    Attributes:
        library: name of the library. Where SuperLU was the fallback, also why the others did not factorise.
        nnz: number of stored values; None where it is not known.
        dtype: of the stored values.
        known: keeps the symbolic analysis alive for a refactorisation.
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
        """Refine each solve from now on. Return False where solves are refined already, or cannot be."""
        return False


class SymbolicAnalysis(ABC):
    """Ordering and structure of the factors, which depend only on the pattern of a matrix.

    Attributes:
        pattern: the analysed pattern.
        kind: symmetry of the values that it suits; None if it suits all.
    """

    pattern: EntryPattern
    kind: Kind | None = None

    @property
    def nbytes(self) -> int:
        """Memory in bytes, including factors that it stores."""
        return 0

    @abstractmethod
    def factor(self, A: Any) -> Factors:
        """Factorise the analysed `csc_array`.

        Raises:
            FactorsRefused: no usable factors were found.
        """

    def refactor(self, A: Any) -> Factors:
        """Factorise other values on the same pattern, with the same ordering.

        Raises:
            FactorsRefused: no usable factors were found.
        """
        if self.kind is not None and self.pattern.kind(A) is not self.kind:
            raise FactorsRefused("the numbers are symmetric in another way than those that were analysed")
        return self.factor(A)


class Provider(ABC):
    """A library of sparse factors.

    Attributes:
        name: as users give it and results report it.
        package: the package to install, for messages.
        module: the module to import.
    """

    name: str
    package: str
    module: str

    def is_installed(self) -> bool:
        return _has_module(self.module)

    @abstractmethod
    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        """Analyse the canonical `csc_array` A, which has this pattern.

        Raises:
            FactorsRefused: the library cannot factorise such matrices.
        """


@cache
def _has_module(name: str) -> bool:
    return find_spec(name) is not None


_unusable: dict[str, str] = {}  # package -> why it cannot be imported


def library(package: str) -> Any:
    """Import an installed package. A failing import is tried and logged once.

    Raises:
        FactorsRefused: it cannot be imported, because a library that it needs is missing or incompatible.
    """
    if package not in _unusable:
        try:
            return import_module(package)
        except (ImportError, OSError, RuntimeError) as error:
            _unusable[package] = f"{type(error).__name__}: {error}"
            log.warning("%s is installed, but cannot be imported, and is not used: %s", package, _unusable[package])
    raise FactorsRefused(f"{package} cannot be imported: {_unusable[package]}")


# --- operators


class DirectInverse(Operator):
    """Inverse of A by a direct method; for a singular A a pseudo-inverse on its range.

    Attributes:
        numbers: number of values stored in the factors; None where it is not known.
    """

    kind = "factors"  # as a preconditioner
    numbers: int | None = None

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
        tree.save_operator(path, self)


@dataclass(eq=False, repr=False)
class _Named(Composed):
    """Another operator, whose class says what it is for."""

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed


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

    Attributes:
        inner: F.
        right, left: projections that remove the null spaces of A and of its adjoint.
        singularity: values of `Singularity`, `(systems or 1, 1)`.
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


def check_bools(given: Fields, *names: str) -> None:
    """Raise ValueError if a field of a file is not a bool."""
    for name in names:
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} is {given[name]!r}; expected true or false")
