"""Protocol of sparse factors: a provider analyses a pattern, an analysis makes factors of numbers, factors solve."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .pattern import EntryPattern


class FactorsRefused(Exception):
    """A provider does not factorise a matrix, or its factors cannot be believed; the text says why."""


class PatternRefused(FactorsRefused):
    """A provider does not suit the pattern of a matrix, whatever its numbers."""


class Work(NamedTuple):
    """What factors will cost, as their analysis tells before any of it is done.

    Attributes:
        numbers: stored in the factors.
        operations: of the factorisation; None where the provider does not count them.
    """

    numbers: int
    operations: float | None


class Factors(ABC):
    """Factors of one matrix, which solve with it and with its transpose; as `scipy.sparse.linalg.SuperLU` is called.

    Attributes:
        provider: the name of what made them.
        nnz: the numbers that they store, zero where that is not known.
        known: what keeps their analysis for other numbers.
    """

    provider: str
    nnz: int
    known: Any = None

    @abstractmethod
    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        """Solve for b `(n,)` or `(n, count)`; "T" for the transposed, not conjugated matrix. Any thread may call it."""

    def refine(self) -> bool:
        """Refine each solve from now on; False where they are refined already, or cannot be."""
        return False


class SymbolicAnalysis(ABC):
    """What depends on the pattern of a matrix: orderings and the structure of the factors."""

    @property
    def work(self) -> Work | None:
        """The cost of the factors, before they are made; None where the provider does not tell."""
        return None

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
        return self.factor(A)


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
            log = logging.getLogger("krylix")
            log.warning("%s is installed, but cannot be imported, and is left out: %s", package, _unusable[package])
    raise FactorsRefused(f"{package} cannot be imported: {_unusable[package]}")


class Provider(ABC):
    """A library of sparse factors.

    Attributes:
        name: as the user gives it, and as results tell it.
        package: what installs it, for messages.
    """

    name: str
    package: str

    @abstractmethod
    def is_installed(self) -> bool:
        """Can it be used here? The library is looked for, not imported."""

    @abstractmethod
    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        """Analysis of the canonical `csc_array` A, of this pattern.

        Raises:
            FactorsRefused: the library does not suit such matrices.
        """
