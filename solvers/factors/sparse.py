"""Factors of sparse matrices on the host, by the first library that is installed and passes the accuracy check.

SuperLU is the fallback, and LAPACK factorises bands. Matrices that seem singular are examined in double precision.
Symbolic analyses live as long as their factors, and the last few solvers are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Operator, SparseMatrix, storable
from ...sparse.files.saved import Fields
from ...sparse.formats.entries.integers import csc_array
from ...sparse.operators.composed import Products
from ...sparse.operators.concrete import kept
from ..log import log
from ..memory import SETUP_CACHE, Memory
from ..singular.projections import WithoutVectors, projected_twice
from .band import lapack_band_factors
from .dense import factorise
from .inverse import DirectInverse
from .libraries import Cholmod, Pardiso, Rslab
from .protocol import EntryPattern, Factors, FactorsRefused, PatternRefused, Provider, SymbolicAnalysis
from .singularity import MatrixFactors, examined_sparse
from .superlu import LEAST, SuperLU, SuperLUAnalysis, is_stable

SUPERLU = SuperLU()
PROVIDERS: dict[str, Provider] = {one.name: one for one in (Pardiso(), Cholmod(), Rslab(), SUPERLU)}
"""Name -> library of sparse factors, in the order in which they are tried."""

_FIRST = 64  # leading values that are compared first, because different matrices mostly differ in them


def host_factors(bk: Backend, A: Operator, by: str | None) -> Operator:
    """Factorise an operator on the host: dense by LAPACK, sparse by the library `by` or the best that is installed."""
    offset, inner = A.offset, A.without_offset
    if not isinstance(inner, SparseMatrix):  # A NumPy function may have a sparse matrix.
        arrays, make = inner.for_host()
        inner = make([bk.to_numpy(array) for array in arrays])
    if not isinstance(inner, SparseMatrix):
        return factorise(bk, A)
    own: Any = kept(inner)  # factorised again where the factors are read from a file
    return HostInverse(bk, own, np.dtype(A.dtype), offset, by=by)


@dataclass(eq=False, repr=False)
class HostInverse(Products, DirectInverse):
    """Factors of a NumPy matrix plus an offset, on the host. Files store the matrix, which is factorised again.

    That takes no longer than two triangular solves by SciPy with factors read from a file, which for a grid of
    300 x 300 would be 20 times as large as the matrix.

    Attributes:
        solver: for NumPy rows in the dtype `working`, by default that of the vectors, by the library `by`.
    """

    bk: Backend
    matrix: SparseMatrix
    dtype: np.dtype
    offset: complex = 0
    solver: HostSolver = None  # type: ignore[assignment]
    working: np.dtype = None  # type: ignore[assignment]
    by: str | None = SUPERLU.name

    def __post_init__(self) -> None:
        self.shape, self.systems = self.matrix.shape, self.matrix.systems
        self.working = np.dtype(self.dtype if self.working is None else self.working)
        if self.solver is None:
            self.solver = _solver_of(self.matrix, self.offset, self.working, self.by)

    def apply(self, x: Array) -> Array:
        bk = self.bk
        wanted = np.result_type(self.dtype, bk.dtype(x))
        x = bk.astype(x, wanted)
        if bk.on_host:
            return self._solved(x)
        spec = [(tuple(int(n) for n in x.shape), wanted)]
        return bk.host_call(lambda rows: (self._solved(np.asarray(rows)),), spec, x)[0]

    def _solved(self, rows: np.ndarray) -> np.ndarray:
        """Solve in the dtype of the rows. Factors may have another precision, or be real for complex rows."""
        if rows.dtype.kind == "c" and self.working.kind == "f":
            return self._solved(rows.real) + np.asarray(1j, rows.dtype) * self._solved(rows.imag)
        found = self.solver.solve(rows.astype(self.working, copy=False))
        return found.astype(rows.dtype, copy=False)

    @property
    def numbers(self) -> int | None:  # type: ignore[override]
        """None where a library does not tell."""
        counts = [0 if one.factors is None else one.factors.nnz for one in self.solver.matrices]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """Memory of the stored values in bytes, without indices, as far as it is known."""
        return self.solver.nbytes

    @property
    def made_by(self) -> str:
        """Name the libraries that made the factors and, where SuperLU was the fallback, why the others did not."""
        made = (SUPERLU.name if one.factors is None else one.factors.library for one in self.solver.matrices)
        return "; ".join(dict.fromkeys(made))

    @property
    def singularity(self) -> np.ndarray | None:
        """Values of `Singularity`, `(systems or 1, 1)`; None where all systems are regular."""
        found = np.array([[one.singularity] for one in self.solver.matrices], np.int32)
        return found if found.any() else None

    @property
    def projections(self) -> tuple[Operator, Operator] | None:
        return self.solver.null

    def transpose(self) -> HostInverse:
        return replace(self, matrix=self.matrix.transpose(), solver=self.solver.turned(True, False))

    def conj(self) -> HostInverse:
        matrix, offset = self.matrix.conj(), self.offset.conjugate()
        return replace(self, matrix=matrix, offset=offset, solver=self.solver.turned(False, True))

    def astype(self, dtype: np.dtype) -> HostInverse:
        """Factors for vectors of another precision. Complex factors stay complex."""
        if self.working.kind == "c" and np.dtype(dtype).kind != "c":
            return self
        return replace(self, dtype=np.dtype(dtype))

    def on_backend(self, bk: Backend, like: Array | None) -> HostInverse:
        return replace(self, bk=bk, dtype=bk.stored_dtype(self.dtype))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self.on_backend(get_backend("numpy"), None)

    def __deepcopy__(self, memo: Any) -> HostInverse:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solver": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


def provider_note(factors: Operator | None) -> str:
    """Name the library that was chosen for the factors, as the end of a sentence."""
    if isinstance(note := getattr(factors, "note", None), str):
        return f"; {note}"
    if not isinstance(factors, HostInverse) or factors.by == SUPERLU.name:
        return ""
    return f"; factors by {factors.made_by}"


def _flatten(F: HostInverse) -> Fields:
    return {"matrix": F.matrix, "dtype": F.working.name, "offset": F.offset, "by": F.by}


def _unflatten(given: Fields) -> HostInverse:
    if given.keys() != {"matrix", "dtype", "offset", "by"}:  # of unreleased versions: "transposed", "conjugated"
        raise ValueError(f"sparse factors have matrix, dtype, offset and by; got {', '.join(sorted(given))}")
    matrix, dtype = given["matrix"], np.dtype(given["dtype"])
    if not isinstance(matrix, SparseMatrix) or matrix.shape[0] != matrix.shape[1] or dtype.char not in "fdFD":
        raise ValueError(f"factors of {matrix!r} in {dtype} are given; expected those of a square sparse matrix")
    return HostInverse(get_backend("numpy"), matrix, dtype, given["offset"], by=given["by"])


storable("factorised on the host", _flatten, _unflatten)(HostInverse)


# --- a matrix or several


@dataclass(frozen=True, eq=False)
class HostSolver:
    """Solver for rows, each with the factors of its own matrix or all with those of one.

    `null` are projections that remove the null vectors of the matrices in this form, and of their adjoints.
    """

    matrices: tuple[MatrixFactors, ...]
    null: tuple[Operator, Operator] | None
    transposed: bool = False
    conjugated: bool = False

    @classmethod
    def of(cls, matrices: tuple[MatrixFactors, ...], n: int) -> HostSolver:
        if all(one.null is None or one.border for one in matrices):
            return cls(matrices, None)
        bases = [(np.zeros((0, n)),) * 2 if one.null is None else one.null for one in matrices]
        most = max(len(side) for both in bases for side in both)  # each side is found and accepted by itself
        padded = [[np.pad(side, ((0, most - len(side)), (0, 0))) for side in both] for both in bases]
        right, left = (WithoutVectors(get_backend("numpy"), np.stack(side)) for side in zip(*padded))
        return cls(matrices, (right, left))

    @property
    def nbytes(self) -> int:
        """Memory of the values of all factors, as far as it is known."""
        made = (one.factors for one in self.matrices if one.factors is not None)
        return sum(factors.dtype.itemsize * (factors.nnz or 0) for factors in made)

    def turned(self, transposed: bool, conjugated: bool) -> HostSolver:
        null = self.null
        if null is not None:
            null = null[::-1] if transposed else null
            null = (null[0].conj(), null[1].conj()) if transposed != conjugated else null
        return HostSolver(self.matrices, null, self.transposed != transposed, self.conjugated != conjugated)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Solve for rows b, without null vectors in x."""
        b = b.conj() if self.conjugated else b
        if len(self.matrices) == 1:
            x = self.matrices[0].solve(b, self.transposed)
        else:
            solved = (one.solve(row[None], self.transposed) for one, row in zip(self.matrices, b, strict=True))
            x = np.concatenate([np.zeros((0, b.shape[1]), b.dtype), *solved])
        x = x.conj() if self.conjugated else x
        return x if self.null is None else projected_twice(self.null[0], x)


def _solver_of(matrix: SparseMatrix, offset: complex, dtype: np.dtype, by: str | None) -> HostSolver:
    providers, (data, *places) = providers_of(by), matrix.by_columns(dtype)
    known, libraries = known_pattern(*places), tuple(one.name for one in providers)
    if (found := last_solver(known, data, offset, libraries)) is not None:
        return found
    matrices = (csc_array(row, known.pattern.indices, known.pattern.indptr, matrix.shape) for row in data)
    found = HostSolver.of(tuple(_factors_of(one, offset, providers) for one in matrices), matrix.shape[0])
    if SETUP_CACHE.get():
        _use(known, LastSolver(known, offset, libraries, data, found))
    return found


def _factors_of(matrix: Any, offset: complex, providers: tuple[Provider, ...]) -> MatrixFactors:
    if not np.isfinite(matrix.data).all():
        return MatrixFactors(None)
    factorise = partial(lu_of, providers=providers), partial(lu_of, providers=(SUPERLU,)), lu_of
    if not offset:
        return examined_sparse(matrix, *factorise)
    n = matrix.shape[0]
    row = sp.csc_array(np.full((1, n), offset, matrix.dtype))
    column = sp.csc_array(np.ones((n, 1), matrix.dtype))
    bordered = sp.block_array([[matrix, column], [row, sp.csc_array([[-1.0]])]], format="csc", dtype=matrix.dtype)
    return examined_sparse(bordered, *factorise)._replace(border=True)


# --- libraries


def providers_of(name: str | None) -> tuple[Provider, ...]:
    """Libraries to try, in order: the installed ones, or the one of this name."""
    if name is None:
        return tuple(one for one in PROVIDERS.values() if one.is_installed())
    found = {key.lower(): one for key, one in PROVIDERS.items()}.get(name.strip().lower())
    if found is None:
        raise ValueError(f"No library of sparse factors is called {name!r}. There are {', '.join(PROVIDERS)}.")
    if not found.is_installed():
        raise ValueError(f"{found.name} is not installed. Install {found.package}, or leave the name out.")
    return (found,)


def lu_of(A: Any, providers: tuple[Provider, ...] = ()) -> Factors:
    """Factors of a square `csc_array` without duplicates: banded LU if it is banded, else by one of the libraries.

    Without libraries SuperLU factorises it, and its pattern is not kept.
    """
    band = lapack_band_factors(A)
    if band is not None:
        return band
    return sparse_factors(A, providers) if providers else SuperLUAnalysis(A.shape[0]).factor(A)


def sparse_factors(A: Any, providers: tuple[Provider, ...]) -> Factors:
    """Factors by the first library that factorises the matrix."""
    alone = len(providers) == 1
    if A.shape[0] < LEAST and (not alone or providers[0] is SUPERLU):  # an analysis would take longer than it saves
        return SuperLUAnalysis(A.shape[0]).factor(A)
    known, refusals = known_pattern(A.indices, A.indptr), []
    A = csc_array(A.data, known.pattern.indices, known.pattern.indptr, A.shape)
    for provider in (one for one in providers if one is not SUPERLU):
        try:
            return _checked(known, provider, A)
        except FactorsRefused as error:
            refusals.append(f"{provider.name}: {error}")
            log.info("%s does not factorise %d x %d: %s", provider.name, *A.shape, error)
    found = _made(known, SUPERLU, A)
    if refusals:
        found.library = f"{SUPERLU.name}, after {'; '.join(refusals)}"
    return found


def _checked(known: KnownPattern, provider: Provider, A: Any) -> Factors:
    """Stable factors, with a new analysis where the values have changed too much for the old one."""
    key = provider.name, A.dtype.kind
    if key in known.refused:
        raise PatternRefused(known.refused[key])
    while True:
        again = key in known.analyses
        try:
            found = _made(known, provider, A)
            if is_stable(A, found) or (found.refine() and is_stable(A, found)):
                return found
            why = "a solve left more than rounding errors"
        except PatternRefused as error:
            known.refused[key] = str(error)
            raise
        except FactorsRefused as error:
            why = str(error)
        known.analyses.pop(key, None)
        if not again:
            raise FactorsRefused(why)


def _made(known: KnownPattern, provider: Provider, A: Any) -> Factors:
    key = provider.name, A.dtype.kind
    analysis = known.analyses.get(key)
    if analysis is not None:
        found = analysis.refactor(A)
    else:
        analysis = provider.analyse(known.pattern, A)
        found = analysis.factor(A)
        known.analyses[key] = analysis
    found.library = provider.name
    found.known = known  # The analyses live as long as the factors.
    return found


# --- caches


@dataclass(eq=False)
class KnownPattern:
    """A pattern and its symbolic analyses, which live as long as the last factors that use them.

    Attributes:
        analyses: (name of the provider, kind of dtype) -> analysis.
        refused: the same key -> why the provider cannot factorise the pattern.
    """

    pattern: EntryPattern
    analyses: dict[tuple[str, str], SymbolicAnalysis] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        pattern, kept = self.pattern, sum(one.nbytes for one in list(self.analyses.values()))
        return int(pattern.indices.nbytes + pattern.indptr.nbytes) + kept


@dataclass(frozen=True, eq=False)
class LastSolver:
    """Cached solver, which must not refer to memory of the caller.

    Attributes:
        libraries: names of those that were tried.
        data: values of its matrices, `(matrices, nnz)`.
    """

    known: KnownPattern
    offset: complex
    libraries: tuple[str, ...]
    data: np.ndarray
    solver: HostSolver

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + 2 * self.solver.nbytes  # values and indices


PATTERNS: Memory[KnownPattern] = Memory(8, 1 << 28)  # also those that no factors use
SOLVERS: Memory[LastSolver] = Memory(32, 1 << 27)
_alive: WeakValueDictionary[bytes, KnownPattern] = WeakValueDictionary()
_lock = Lock()


def known_pattern(indices: np.ndarray, indptr: np.ndarray) -> KnownPattern:
    """Cached pattern of a square canonical CSC matrix, with its analyses."""
    for one in PATTERNS:
        if one.pattern.is_of(indices, indptr):
            return one
    digest = blake2b(str((len(indptr), indices.dtype, indptr.dtype)).encode(), digest_size=16)
    for part in (indptr, indices):
        digest.update(np.ascontiguousarray(part).data)
    with _lock:
        found = _alive.get(digest.digest())
        if found is None:
            found = _alive[digest.digest()] = KnownPattern(EntryPattern(indices, indptr))
    return found


def last_solver(
    known: KnownPattern, data: np.ndarray, offset: complex, libraries: tuple[str, ...]
) -> HostSolver | None:
    """Cached solver of the same matrix, or of its transpose or conjugate, as derivatives need it."""
    if not SETUP_CACHE.get():
        return None
    mirrored: np.ndarray | None = None  # values of the transpose
    for one in SOLVERS:
        if one.libraries != libraries or one.data.shape != data.shape or one.data.dtype != data.dtype:
            continue
        transposed, conjugated = False, _conjugated(one, data, offset) if one.known is known else None
        if conjugated is None and known.pattern.is_transpose_of(one.known.pattern):
            mirrored = data[:, known.pattern.in_rows[2]] if mirrored is None else mirrored
            transposed, conjugated = True, _conjugated(one, mirrored, offset)
        if conjugated is not None:
            _use(known, one)
            return one.solver.turned(transposed, conjugated)
    return None


def _conjugated(cached: LastSolver, data: np.ndarray, offset: complex) -> bool | None:
    """False if the values and the offset are those of the cached solver, True if their conjugates are, else None."""
    for conjugated in (False, True) if data.dtype.kind == "c" else (False,):
        if cached.offset != (offset.conjugate() if conjugated else offset):
            continue
        for some in (slice(_FIRST), slice(None)):
            if not np.array_equal(cached.data[:, some], data[:, some].conj() if conjugated else data[:, some]):
                break
        else:
            return conjugated
    return None


def _use(known: KnownPattern, last: LastSolver) -> None:
    PATTERNS.keep(known, known, known.nbytes)
    SOLVERS.keep(last, last, last.nbytes)
