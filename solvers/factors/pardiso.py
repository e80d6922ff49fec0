"""Pardiso of Intel's MKL as a provider, through the C function in the package py-mkl-pardiso.

The Python class of that package discards its factors when the parameter for transposed solves is set, and stores only
one factorisation for each analysis. The C function has neither limit.
"""

from __future__ import annotations

import ctypes
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np

from .pattern import EntryPattern, Kind, values_at
from .protocol import Factors, FactorsRefused, PatternRefused, Provider, SymbolicAnalysis, library

# Types of matrices (mtype) in the manual of oneMKL.
_DEFINITE = {"f": 2, "c": 4}
_HERMITIAN = {"f": -2, "c": -4}
_COMPLEX_SYMMETRIC = 6
_GENERAL = {"f": 11, "c": 13}

# Indices of parameters, from zero. With zeros for all others, Pardiso would replace pivots that are smaller than the
# matrix, and neither scale nor match: results would be silently wrong for most matrices.
_ORDERING, _REFINED, _TRANSPOSED, _REPLACED, _NUMBERS = 1, 7, 11, 13, 17
_ALWAYS = {0: 1, 34: 1, _NUMBERS: -1}  # own settings, indices from zero, count the entries of factors
# Replace only tiny pivots, scale, and match rows and columns. 2 x 2 pivots with a matching can crash the process.
_SAFE = {9: 13, 10: 1, 12: 1, 20: 0}
_MINIMUM_DEGREE, _NESTED_DISSECTION = 0, 2
_FULL = 100  # entries per unknown, in each triangle, from which nested dissection is worth its time
_ANALYSE, _FACTORISE, _SOLVE, _RELEASE = 11, 22, 33, -1
_STEPS = 2  # of refinement, which take twice as long as the solve itself
_SLOTS = 32  # factors of one analysis at a time


class Pardiso(Provider):
    """Supernodal factors of definite, Hermitian, complex symmetric and general matrices, in double precision.

    Source: Schenk, Gärtner, Future Generation Computer Systems 20 (2004); Duff, Koster, SIAM J. Matrix Anal. Appl. 22
    (2001) for scaling and matching.
    """

    name = "Pardiso"
    package = "py-mkl-pardiso"
    module = "pymklpardiso"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        if not pattern.has_full_structural_rank:  # Pardiso's own matching may not return.
            raise PatternRefused("no permutation of its rows is known to fill the diagonal")
        kind = pattern.kind(A)
        positive = kind is Kind.HERMITIAN and bool(np.all(A.diagonal().real > 0))
        analysis = PardisoAnalysis(pattern, kind, positive)
        analysis.handle = analysis.new_handle(A.data)
        return analysis


def _pardiso() -> Any:
    library("pymklpardiso")
    found = getattr(ctypes.CDLL(library("pymklpardiso._mkl_pardiso").__file__), "pardiso_64", None)
    if found is None:
        raise FactorsRefused("this build of py-mkl-pardiso does not export the function of MKL")
    return found


def _call(
    function: Any, mtype: int, arrays: tuple[np.ndarray, ...], phase: int, slot: int, numbers: Any, b: Any, x: Any
) -> None:
    """Run one phase of Pardiso; `arrays` are its state, parameters, row starts, columns and a permutation, int64."""
    state, parameters, indptr, indices, permutation = (array.ctypes.data_as(ctypes.c_void_p) for array in arrays)
    numbers, rhs, found = (None if a is None else a.ctypes.data_as(ctypes.c_void_p) for a in (numbers, b, x))
    count = 1 if b is None or b.ndim == 1 else b.shape[1]
    given = (_SLOTS, slot, mtype, phase, len(arrays[2]) - 1, count, 0, 0)
    slots, slot_, type_, phase_, n, columns, silent, error = map(ctypes.c_int64, given)
    pointers = map(ctypes.byref, (slots, slot_, type_, phase_, n))
    last = (rhs, found, ctypes.byref(error))
    function(
        state, *pointers, numbers, indptr, indices, permutation, ctypes.byref(columns), parameters,
        ctypes.byref(silent), *last
    )  # fmt: skip
    if error.value:
        raise FactorsRefused(f"error {error.value} of Pardiso in phase {phase}")


class Handle:
    """One analysis of Pardiso, and the factors that were made with it, in numbered slots.

    Attributes:
        numbers: entries of each factorisation, as the analysis counts them.
        free: slots whose factors are no longer used; the next factors reuse their memory.
        used: number of slots that have memory.
    """

    def __init__(
        self, mtype: int, places: tuple[np.ndarray, np.ndarray], numbers: np.ndarray, ordering: int
    ) -> None:  # fmt: skip
        n = len(places[0]) - 1
        self.parameters = np.zeros(64, np.int64)
        arrays = np.zeros(64, np.int64), self.parameters, *places, np.zeros(n, np.int64)
        safe = {} if mtype in _DEFINITE.values() else _SAFE
        for index, value in {**_ALWAYS, **safe, _ORDERING: ordering}.items():
            self.parameters[index] = value
        self.free, self.used, self._lock = list(range(_SLOTS, 0, -1)), 0, Lock()
        self._call = partial(_call, _pardiso(), mtype, arrays)
        finalize(self, self._call, _RELEASE, 1, None, None, None).atexit = False
        self._call(_ANALYSE, 1, numbers, None, None)
        self.numbers = max(int(self.parameters[_NUMBERS]), 0)

    def factor(self, slot: int, numbers: np.ndarray) -> None:
        with self._lock:
            self.used = max(self.used, slot)
            self._call(_FACTORISE, slot, numbers, None, None)
            replaced = int(self.parameters[_REPLACED])
        if replaced > 0:
            raise FactorsRefused(f"{replaced} pivots were too small, and replaced")

    def solve(self, slot: int, numbers: np.ndarray, b: np.ndarray, transposed: bool, steps: int) -> np.ndarray:
        """Solve for b `(n,)` or `(n, count)` in column order, with `steps` of refinement."""
        x = np.empty_like(b)
        with self._lock:
            self.parameters[_TRANSPOSED], self.parameters[_REFINED] = 2 * transposed, steps
            self._call(_SOLVE, slot, numbers, b, x)
        return x


class PardisoAnalysis(SymbolicAnalysis):
    """Analysis for matrices of one kind, with a new handle when all slots of the last one are in use."""

    def __init__(self, pattern: EntryPattern, kind: Kind, definite: bool) -> None:
        self.pattern, self.kind, self.definite = pattern, kind, definite
        self.handle: Handle | None = None
        self._first = Lock()

    @property
    def nbytes(self) -> int:
        return 0 if self.handle is None else 16 * self.handle.numbers * max(self.handle.used, 1)

    def factor(self, A: Any) -> Factors:
        try:
            return self._factors(A)
        except FactorsRefused:
            if not self.definite:
                raise
        self.definite, self.handle = False, None  # indefinite in spite of its positive diagonal
        return self._factors(A)

    def _factors(self, A: Any) -> PardisoFactors:
        with self._first:
            if self.handle is None or not self.handle.free:
                self.handle = self.new_handle(A.data)
            handle, slot = self.handle, self.handle.free.pop()
        return PardisoFactors(self, handle, slot, self.numbers(A.data))

    def new_handle(self, data: np.ndarray) -> Handle:
        (indptr, indices, _), mtype, numbers = self.places, self.mtype(data), self.numbers(data)
        found = Handle(mtype, (indptr, indices), numbers, _MINIMUM_DEGREE)
        if found.numbers <= (2 if self.kind is Kind.GENERAL else 1) * _FULL * self.pattern.n:
            return found
        other = Handle(mtype, (indptr, indices), numbers, _NESTED_DISSECTION)
        return min(found, other, key=lambda handle: handle.numbers)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CSR pattern of the part of the matrix that Pardiso reads."""
        return self.pattern.rows if self.kind is Kind.GENERAL else self.pattern.upper

    def numbers(self, data: np.ndarray) -> np.ndarray:
        return values_at(self.places[2], data, np.result_type(data.dtype, np.float64))

    def mtype(self, data: np.ndarray) -> int:
        if self.kind is Kind.SYMMETRIC:
            return _COMPLEX_SYMMETRIC
        types = _GENERAL if self.kind is Kind.GENERAL else _DEFINITE if self.definite else _HERMITIAN
        return types[data.dtype.kind]


class PardisoFactors(Factors):
    """Factors in a slot of a handle."""

    def __init__(self, analysis: PardisoAnalysis, handle: Handle, slot: int, numbers: np.ndarray) -> None:
        self.kind, self.handle, self.slot, self.numbers = analysis.kind, handle, slot, numbers
        self.steps, self.nnz, self.dtype = 0, handle.numbers or None, numbers.dtype
        finalize(self, handle.free.append, slot).atexit = False
        handle.factor(slot, numbers)

    def refine(self) -> bool:
        again, self.steps = self.steps == 0, _STEPS
        return again

    def solve(self, b: np.ndarray) -> np.ndarray:
        return self._solved(b, False)

    def solve_transposed(self, b: np.ndarray) -> np.ndarray:
        if self.kind is Kind.HERMITIAN:
            return self._solved(b.conj(), False).conj()
        return self._solved(b, self.kind is Kind.GENERAL)

    def _solved(self, b: np.ndarray, transposed: bool) -> np.ndarray:
        columns = np.asfortranarray(b, self.numbers.dtype)
        return self.handle.solve(self.slot, self.numbers, columns, transposed, self.steps)
