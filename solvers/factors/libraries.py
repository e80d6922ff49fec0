"""Optional libraries of sparse factors: Pardiso, CHOLMOD and rslab."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize

import numpy as np
import scipy.sparse as sp

from .protocol import (
    EntryPattern,
    Factors,
    FactorsRefused,
    Kind,
    PatternRefused,
    Provider,
    SymbolicAnalysis,
    library,
    values_at,
)

# --- Pardiso of Intel's MKL, through the C function in the package py-mkl-pardiso
# The Python class of that package discards its factors when the parameter for transposed solves is set, and stores only
# one factorisation for each analysis. The C function has neither limit.

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

    `free` are slots whose factors are no longer used; the next factors reuse their memory. `used` is the number of
    slots that have memory, each for `numbers` entries, as the analysis counts them.
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
        library("pymklpardiso")
        function = getattr(ctypes.CDLL(library("pymklpardiso._mkl_pardiso").__file__), "pardiso_64", None)
        if function is None:
            raise FactorsRefused("this build of py-mkl-pardiso does not export the function of MKL")
        self._call = partial(_call, function, mtype, arrays)
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

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        if transposed and self.kind is Kind.HERMITIAN:
            return self.solve(b.conj()).conj()
        columns = np.asfortranarray(b, self.numbers.dtype)
        return self.handle.solve(self.slot, self.numbers, columns, transposed and self.kind is Kind.GENERAL, self.steps)


# --- CHOLMOD, through the package scikit-sparse


class Cholmod(Provider):
    """Supernodal Cholesky factors of definite matrices, real or complex, in double precision.

    Source: Chen, Davis, Hager, Rajamanickam, ACM TOMS 35 (2008).
    """

    name = "CHOLMOD"
    package = "scikit-sparse"
    module = "sksparse"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        cholmod = library("sksparse.cholmod")
        _refuse_indefinite(pattern, A)
        if not hasattr(cholmod, "analyze"):
            raise FactorsRefused("this version of scikit-sparse has other functions than 0.4")
        return CholmodAnalysis(pattern, cholmod.analyze(_given(A)))


class CholmodAnalysis(SymbolicAnalysis):
    """Symbolic factorisation by CHOLMOD."""

    def __init__(self, pattern: EntryPattern, symbolic: Any) -> None:
        self.pattern, self.symbolic = pattern, symbolic

    def factor(self, A: Any) -> Factors:
        cholmod = library("sksparse.cholmod")
        _refuse_indefinite(self.pattern, A)
        try:
            return CholmodFactors(self.symbolic.cholesky(_given(A)), A)
        except cholmod.CholmodError as error:
            raise FactorsRefused(str(error) or "it is not definite") from error


class CholmodFactors(Factors):
    """Cholesky factors; the transpose of a Hermitian matrix is its conjugate."""

    def __init__(self, factor: Any, A: Any) -> None:
        self.factor, self.dtype = factor, np.result_type(A.dtype, np.float64)
        self.nnz = int(factor.L().nnz)

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        if transposed:
            return self.solve(b.conj()).conj()
        return np.asarray(self.factor(b.astype(self.dtype, copy=False)))


def _refuse_indefinite(pattern: EntryPattern, A: Any) -> None:
    if pattern.kind(A) is not Kind.HERMITIAN or not np.all(A.diagonal().real > 0):
        raise FactorsRefused("it takes definite matrices only")


def _given(A: Any) -> Any:
    """Convert to the format and precision of CHOLMOD, which reads one triangle."""
    return sp.csc_matrix(A.astype(np.result_type(A.dtype, np.float64), copy=False))


# --- rslab: L D Lᵀ factors of symmetric matrices, and KLU factors of circuit-like ones

_SPARSE, _FILL = 4, 25  # most entries per unknown of a matrix for KLU, which has no dense blocks, and of its factors
_MOST_THREADS = 4  # of one factorisation, to leave cores to others
_REFINED = 1  # refinement steps, because pivots are chosen only within supernodes


class Rslab(Provider):
    """Supernodal L D Lᵀ with pivots of Bunch and Kaufman, real or complex symmetric; and LU of diagonal blocks.

    Its LU of other matrices is not used, because it is wrong for most that are not diagonally dominant. It cannot
    factorise complex Hermitian matrices.

    Source: Bunch, Kaufman, Math. Comp. 31 (1977); Davis, Palamadai Natarajan, ACM TOMS 37 (2010) for KLU.
    """

    name = package = module = "rslab"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        rslab = _in_this_process()
        kind, complex_ = pattern.kind(A), A.dtype.kind == "c"
        symmetric = kind is Kind.SYMMETRIC or (kind is Kind.HERMITIAN and not complex_)
        if not symmetric and len(pattern.indices) > _SPARSE * pattern.n:  # the analysis alone may take long
            raise FactorsRefused("its LU of matrices that are not symmetric is not to be trusted")
        indptr, indices, places = pattern.upper if symmetric else pattern.rows
        numbers = values_at(places, A.data, A.dtype)
        matrix = sp.csc_array((numbers, indices, indptr), A.shape)
        matrix.has_canonical_format = True
        try:
            if symmetric:
                symbolic = rslab.analyze(matrix, path="ldlt", threads=thread_limit())
                return RslabAnalysis(symbolic, pattern, kind, symmetric)
            symbolic = rslab.analyze(matrix, path="klu")
        except (RuntimeError, ValueError) as error:
            raise FactorsRefused(str(error)) from error
        if symbolic.factor_nnz > _FILL * pattern.n:
            raise PatternRefused("its factors fill in, and its LU of such matrices is not to be trusted")
        return RslabAnalysis(symbolic, pattern, kind, symmetric)


_users: list[int] = []  # the process that called rslab first


def _in_this_process() -> Any:
    """Return the library, unless this process was forked after its parent had used it.

    The thread pool does not survive a fork, so a factorisation in the child would wait for ever.
    """
    found = library("rslab")
    _users[:] = _users or [os.getpid()]
    if _users[0] != os.getpid():
        raise FactorsRefused("this process was forked from one that had used it, and its threads stayed there")
    return found


class RslabAnalysis(SymbolicAnalysis):
    """Symbolic factorisation by rslab."""

    def __init__(self, symbolic: Any, pattern: EntryPattern, kind: Kind, symmetric: bool) -> None:
        """`symbolic` is that of the lower triangle of a symmetric matrix, or of the transpose of another."""
        self.symbolic, self.pattern, self.kind, self.in_rows = symbolic, pattern, kind, not symmetric

    @property
    def places(self) -> np.ndarray:
        """Positions in the data of A that rslab reads."""
        return (self.pattern.rows if self.in_rows else self.pattern.upper)[2]

    @property
    def nbytes(self) -> int:
        return 16 * len(self.places)

    def factor(self, A: Any) -> Factors:
        _in_this_process()
        try:
            found = self.symbolic.factor(values_at(self.places, A.data, A.dtype))
        except (RuntimeError, ValueError) as error:
            raise FactorsRefused(str(error)) from error
        if found.n_perturbed > 0:
            raise FactorsRefused(f"{found.n_perturbed} pivots were too small, and replaced")
        return RslabFactors(found, is_transpose=self.in_rows, dtype=A.dtype)


class RslabFactors(Factors):
    """Factors of A, or of its transpose if `is_transpose`."""

    def __init__(self, factors: Any, is_transpose: bool, dtype: np.dtype) -> None:
        self.factors, self.is_transpose, self.dtype = factors, is_transpose, dtype
        self.nnz = int(factors.factor_nnz)

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        columns = (b[:, None] if b.ndim == 1 else b).astype(self.dtype, copy=False)
        x = np.empty(columns.shape, self.dtype)
        for i, column in enumerate(map(np.ascontiguousarray, columns.T)):
            if transposed == self.is_transpose:
                x[:, i] = self.factors.solve(column, refine=_REFINED)
            else:
                x[:, i] = self.factors.solve_transpose(column)
        return x.reshape(b.shape)


def thread_limit() -> int:
    """Number of threads from the environment, else the available cores, at most four."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        given = os.environ.get(name, "").split(",")[0].strip()
        if given.isdigit() and int(given) > 0:
            return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_THREADS, cores)
