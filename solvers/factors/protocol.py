"""What a library of sparse factors gives: it analyses a pattern, factorises values, and solves with the factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...sparse.analysis.canonical import row_maxima
from ...sparse.analysis.graph import maximum_matching
from ..log import log

_ROUNDING = 16  # rounding units of the largest entry of a row by which mirrored entries may differ


class FactorsRefused(Exception):
    """A library cannot factorise a matrix, or its factors are inaccurate. The message says why."""


class PatternRefused(FactorsRefused):
    """A library cannot factorise matrices of this pattern, whatever their values."""


class ExactlySingular(FactorsRefused, RuntimeError):
    """A pivot is zero whatever row is taken; a RuntimeError, as SuperLU raises it in SciPy."""


class Factors(ABC):
    """Factors of one NumPy matrix. Right-hand sides are `(n,)` or columns `(n, count)`. Any thread may solve."""

    library: str  # its name and, where SuperLU was the fallback, why the others did not factorise
    nnz: int | None  # number of stored values; None where it is not known
    dtype: np.dtype  # of the stored values
    known: Any = None  # keeps the symbolic analysis alive for a refactorisation

    @abstractmethod
    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        """Solve A x = b, or with the transposed, not conjugated matrix."""

    def refine(self) -> bool:
        """Refine each solve from now on. Return False where solves are refined already, or cannot be."""
        return False


class SymbolicAnalysis(ABC):
    """Ordering and structure of the factors, which depend only on the pattern of a matrix."""

    pattern: EntryPattern
    kind: Kind | None = None  # symmetry of the values that it suits; None if it suits all

    @property
    def nbytes(self) -> int:
        """Memory in bytes, including factors that it stores."""
        return 0

    @abstractmethod
    def factor(self, A: Any) -> Factors:
        """Factorise the analysed `csc_array`, or raise FactorsRefused."""

    def refactor(self, A: Any) -> Factors:
        """Factorise other values on the same pattern, with the same ordering, or raise FactorsRefused."""
        if self.kind is not None and self.pattern.kind(A) is not self.kind:
            raise FactorsRefused("the numbers are symmetric in another way than those that were analysed")
        return self.factor(A)


class Provider(ABC):
    """A library of sparse factors."""

    name: str  # as users give it and results report it
    package: str  # to install, for messages
    module: str  # to import

    def is_installed(self) -> bool:
        return _has_module(self.module)

    @abstractmethod
    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        """Analyse the canonical `csc_array` A, which has this pattern, or raise FactorsRefused."""


@cache
def _has_module(name: str) -> bool:
    return find_spec(name) is not None


_unusable: dict[str, str] = {}  # package -> why it cannot be imported


def library(package: str) -> Any:
    """Import an installed package. An import that fails, because a library is missing, is tried and logged once."""
    if package not in _unusable:
        try:
            return import_module(package)
        except (ImportError, OSError, RuntimeError) as error:
            _unusable[package] = f"{type(error).__name__}: {error}"
            log.warning("%s is installed, but cannot be imported, and is not used: %s", package, _unusable[package])
    raise FactorsRefused(f"{package} cannot be imported: {_unusable[package]}")


# --- patterns


class Kind(Enum):
    """Symmetry of a matrix that a factorisation can use."""

    HERMITIAN = "Hermitian"  # or real and symmetric
    SYMMETRIC = "complex symmetric"
    GENERAL = "general"


class EntryPattern:
    """Pattern of a square matrix in canonical CSC format, as copies of `indices` and `indptr`."""

    def __init__(self, indices: np.ndarray, indptr: np.ndarray) -> None:
        self.n = len(indptr) - 1
        self.indices, self.indptr = indices.copy(), indptr.copy()

    def is_of(self, indices: np.ndarray, indptr: np.ndarray) -> bool:
        if indices is self.indices and indptr is self.indptr:
            return True
        same = len(indptr) == len(self.indptr) and len(indices) == len(self.indices)
        return same and np.array_equal(indptr, self.indptr) and np.array_equal(indices, self.indices)

    def is_transpose_of(self, other: EntryPattern) -> bool:
        if other is self:
            return self.mirror is not None
        return self.n == other.n and other.is_of(*self.in_rows[:2])

    @cached_property
    def in_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pattern in CSR format, as columns, row starts and positions in the data."""
        places = sp.csc_array((np.arange(len(self.indices)), self.indices, self.indptr), (self.n, self.n))
        found = sp.csr_array(places)
        return found.indices, found.indptr, found.data

    @cached_property
    def columns(self) -> np.ndarray:
        """The column of each entry."""
        return np.repeat(np.arange(self.n, dtype=self.indices.dtype), np.diff(self.indptr))

    @cached_property
    def has_full_structural_rank(self) -> bool:
        """Whether some order of the rows is known to fill the diagonal; False if the bounded search gave up."""
        if np.count_nonzero(self.indices == self.columns) == self.n:
            return True
        matched = maximum_matching(self.indptr, self.indices, self.n)
        return matched is not None and bool(np.all(matched >= 0))

    @cached_property
    def mirror(self) -> np.ndarray | None:
        """Position of the transposed entry of each one; None where the pattern is not symmetric."""
        return self.in_rows[2] if self.is_of(*self.in_rows[:2]) else None

    @cached_property
    def upper(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The upper triangle in CSR format: `indptr`, `indices` and positions in the data, -1 for zeros.

        The whole diagonal is stored, because factorisations of symmetric matrices need it.
        """
        return self._in_rows(self.columns >= self.indices)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All entries and the whole diagonal, in the format of `upper`."""
        return self._in_rows(np.ones(len(self.indices), bool))

    def _in_rows(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        diagonal = np.arange(self.n)
        places = np.concatenate([np.flatnonzero(kept) + 1, np.zeros(self.n, np.int64)])
        rows = np.concatenate([self.indices[kept], diagonal])
        columns = np.concatenate([self.columns[kept], diagonal])
        found = sp.coo_array((places, (rows, columns)), (self.n, self.n)).tocsr()
        found.sum_duplicates()  # one of two duplicates is zero
        return found.indptr.astype(np.int64), found.indices.astype(np.int64), found.data - 1

    def kind(self, A: Any) -> Kind:
        """Symmetry of A, up to the rounding errors of an assembly."""
        mirror = self.mirror
        if mirror is None:
            return Kind.GENERAL
        data = A.data
        other = data[mirror]
        if np.array_equal(data, other.conj()):
            return Kind.HERMITIAN
        size = np.abs(data)
        largest = row_maxima(sp.csr_array((size, self.indices, self.indptr), (self.n, self.n)))  # of columns
        bound = _ROUNDING * np.finfo(data.dtype).eps * np.minimum(largest[self.indices], largest[self.columns])
        if np.all(np.abs(data - other.conj()) <= bound):
            return Kind.HERMITIAN
        return Kind.SYMMETRIC if data.dtype.kind == "c" and np.all(np.abs(data - other) <= bound) else Kind.GENERAL


def values_at(positions: np.ndarray, data: np.ndarray, dtype: Any) -> np.ndarray:
    """Gather from data, with zero at -1."""
    return np.append(data, 0).astype(dtype, copy=False)[positions]
