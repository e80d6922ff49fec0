"""Pardiso of Intel's MKL as a provider, through the package py-mkl-pardiso."""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from ..pivot_order import is_stable
from .by_superlu import SuperLUAnalysis
from .pattern import EntryPattern, Kind, numbers_at
from .protocol import Factors, FactorsRefused, PatternRefused, Provider, SymbolicAnalysis, Work, is_there, library

_DEFINITE = {"f": 2, "c": 4}
_HERMITIAN = {"f": -2, "c": -4}
_COMPLEX_SYMMETRIC = 6
_GENERAL = {"f": 11, "c": 13}

# The package sets all parameters to zero, which for Pardiso is no default but means pivots that are replaced where they
# are smaller than the matrix, no scaling and no matching of rows and columns: wrong for most matrices without a word.
_MINIMUM_DEGREE, _NESTED_DISSECTION = {1: 0}, {1: 2}
_FULL = 100  # numbers per unknown, in each triangle, from which nested dissection is worth its time
_COUNTED = {17: -1}  # the numbers of the factors are to be told
# Refinement, tiny pivots only, scaling, matching. No pivots of 2 x 2: beside a matching they can end the process.
_SAFE = {7: 2, 9: 13, 10: 1, 12: 1, 20: 0}
_REPLACED, _NUMBERS = 13, 17


class Pardiso(Provider):
    """Supernodal factors of definite, Hermitian, complex symmetric and general matrices, in double precision.

    Source: Schenk, Gärtner, Future Generation Computer Systems 20 (2004); Duff, Koster, SIAM J. Matrix Anal. Appl. 22
    (2001) for scaling and matching.
    """

    name = "Pardiso"
    package = "py-mkl-pardiso"

    def is_installed(self) -> bool:
        return is_there("pymklpardiso")

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        if not pattern.has_full_structural_rank:  # Pardiso's own matching may not return.
            raise PatternRefused("no permutation of its rows is known to fill the diagonal")
        kind = pattern.kind(A)
        positive = kind is Kind.HERMITIAN and bool(np.all(A.diagonal().real > 0))
        analysis = PardisoAnalysis(pattern, kind, positive)
        analysis.handle = analysis.new_handle(A.data)
        return analysis


class Handle:
    """One solver of Pardiso: an analysis, and the factors of the last numbers that it was given.

    Attributes:
        owner: the factors whose numbers these are.
        lock: for each call of the library.
    """

    def __init__(
        self, mtype: int, places: tuple[np.ndarray, np.ndarray], numbers: np.ndarray, ordering: dict[int, int]
    ) -> None:
        """Analyse.

        Raises:
            FactorsRefused: Pardiso reports an error.
        """
        make = getattr(library("pymklpardiso"), "_PardisoSolver", None)  # whose phases can be called apart
        if make is None:
            raise FactorsRefused("this version of py-mkl-pardiso has other functions than 0.0.6")
        self.owner: ReferenceType[Any] | None = None
        self.lock = Lock()
        self.solver = make(mtype, 0)
        safe = {} if mtype in _DEFINITE.values() else _SAFE
        for index, value in {**ordering, **_COUNTED, **safe}.items():
            self.solver.set_iparm(index, value)
        indptr, indices = places
        try:
            self.solver.set_pattern(ia=indptr, ja=indices, n=len(indptr) - 1)
            self.solver.set_values(numbers)
            self.solver.analyze()
        except RuntimeError as error:
            raise FactorsRefused(str(error)) from error

    @property
    def numbers(self) -> int:
        """Of the factors, as the analysis counts them."""
        return max(int(self.solver.get_iparm_value(_NUMBERS)), 0)

    def factor(self, numbers: np.ndarray, owner: Any) -> None:
        """Make factors, which belong to `owner` from now on.

        Raises:
            FactorsRefused: a pivot is too small, or not positive where it has to be.
        """
        with self.lock:
            self.owner = None
            try:
                self.solver.set_values(numbers)
                self.solver.refactor()
            except RuntimeError as error:
                raise FactorsRefused(str(error)) from error
            replaced = int(self.solver.get_iparm_value(_REPLACED))
            if replaced > 0:
                raise FactorsRefused(f"{replaced} pivots were too small, and replaced")
            self.owner = ref(owner)


class PardisoAnalysis(SymbolicAnalysis):
    """One handle, which holds the last factors that were made with it."""

    def __init__(self, pattern: EntryPattern, kind: Kind, definite: bool) -> None:
        self.pattern, self.kind, self.definite = pattern, kind, definite
        self.handle: Handle | None = None
        self.transpose: PardisoAnalysis | None = None  # of the transpose
        self._first = Lock()

    @property
    def work(self) -> Work | None:
        return None if self.handle is None else Work(self.handle.numbers, None)

    @property
    def nbytes(self) -> int:
        own = 0 if self.handle is None else 16 * self.handle.numbers
        return own if self.transpose is None else own + self.transpose.nbytes

    def factor(self, A: Any) -> Factors:
        try:
            return self._factors(A)
        except FactorsRefused:
            if not self.definite:
                raise
        self.definite, self.handle = False, None  # its diagonal is positive, and it is not definite
        return self._factors(A)

    def _factors(self, A: Any) -> PardisoFactors:
        with self._first:
            handle = self.handle = self.handle or self.new_handle(A.data)
        return PardisoFactors(self, handle, A)

    def refactor(self, A: Any) -> Factors:
        if self.pattern.kind(A) is not self.kind:
            raise FactorsRefused("the numbers are symmetric in another way than those that were analysed")
        return self.factor(A)

    def factors_of_transpose(self, transpose: Any) -> PardisoFactors:
        """Factors of the transposed matrix, with an analysis of its own, which is kept in this one.

        Raises:
            FactorsRefused: there are none.
        """
        with self._first:
            if self.transpose is None:
                self.transpose = PardisoAnalysis(EntryPattern(transpose), Kind.GENERAL, False)
        return self.transpose._factors(transpose)

    def new_handle(self, data: np.ndarray) -> Handle:
        """Analyse for numbers of A."""
        (indptr, indices, _), mtype, numbers = self.places, self.mtype(data), self.numbers(data)
        found = Handle(mtype, (indptr, indices), numbers, _MINIMUM_DEGREE)
        if found.numbers <= (2 if self.kind is Kind.GENERAL else 1) * _FULL * self.pattern.n:
            return found
        other = Handle(mtype, (indptr, indices), numbers, _NESTED_DISSECTION)
        return min(found, other, key=lambda handle: handle.numbers)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pattern in rows, of what Pardiso takes of the matrix."""
        return self.pattern.rows if self.kind is Kind.GENERAL else self.pattern.upper

    def numbers(self, data: np.ndarray) -> np.ndarray:
        """The numbers at these places, in double precision."""
        return numbers_at(self.places[2], data, np.result_type(data.dtype, np.float64))

    def mtype(self, data: np.ndarray) -> int:
        """Pardiso's number for the kind of matrix."""
        if self.kind is Kind.SYMMETRIC:
            return _COMPLEX_SYMMETRIC
        types = _GENERAL if self.kind is Kind.GENERAL else _DEFINITE if self.definite else _HERMITIAN
        return types[data.dtype.kind]


class PardisoFactors(Factors):
    """Factors in a handle. Where other factors have taken that, they are made again, in a handle of their own."""

    provider = Pardiso.name

    def __init__(self, analysis: PardisoAnalysis, handle: Handle, A: Any) -> None:
        """
        Raises:
            FactorsRefused: there are none.
        """
        self.analysis, self.A, self.data = analysis, A, A.data
        self.handle = handle
        self.transposed: Factors | None = None
        self.instead: Factors | None = None  # of SuperLU, where these could not be made again
        self.nnz = handle.numbers
        self._making = Lock()
        handle.factor(analysis.numbers(self.data), self)

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        if trans == "T" and self.analysis.kind is Kind.GENERAL:
            return self._of_transpose().solve(b)
        if trans == "T" and self.analysis.kind is Kind.HERMITIAN and self.data.dtype.kind == "c":
            return self._solved(b.conj()).conj()
        return self._solved(b)

    def _solved(self, b: np.ndarray) -> np.ndarray:
        columns = np.asfortranarray(b, np.result_type(self.data.dtype, np.float64))
        while self.instead is None:
            handle = self.handle
            with handle.lock:
                if handle.owner is not None and handle.owner() is self:
                    return np.asarray(handle.solver.solve(columns))
            with self._making:
                if self.handle is handle:
                    self._make_again()
        return self.instead.solve(b.astype(self.data.dtype, copy=False))

    def _make_again(self) -> None:
        try:
            own = self.analysis.new_handle(self.data)
            own.factor(self.analysis.numbers(self.data), self)
            self.handle = own
        except FactorsRefused as error:  # of memory, as they were made before
            self.instead = _superlu(self.A, error)

    def _of_transpose(self) -> Factors:
        """Factors of the transpose: the package drops its factors where the parameter for transposed solves is set."""
        with self._making:
            if self.transposed is None:
                transpose = self.A.T.tocsc()
                transpose.sort_indices()
                try:
                    self.transposed = self.analysis.factors_of_transpose(transpose)
                    if not is_stable(transpose, self.transposed):
                        raise FactorsRefused("a solve left more than rounding errors")
                except FactorsRefused as error:
                    self.transposed = _superlu(transpose, error)
        return self.transposed


def _superlu(A: Any, error: FactorsRefused) -> Factors:
    """Factors by SuperLU, where Pardiso has none of a matrix whose transpose it has factorised, or no memory."""
    logging.getLogger("krylix").info("Pardiso does not factorise %d x %d again, but SuperLU: %s", *A.shape, error)
    return SuperLUAnalysis(A.shape[0]).factor(A)
