"""The analysis of one matrix: its facts, each found once and kept with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp

from ...backends.host_math import cores
from ...backends.interface.kernels import inside
from ..formats import DIA, Dense, Matrix, SparseMatrix
from ..operator import Operator
from .facts import has_diagonal_of_one_sign, is_diagonally_dominant, is_dominated
from .grid import Grid, find_grid
from .spectrum import is_seen_indefinite
from .symmetry import CHOSEN, PRODUCTS, REFUSED, TRIANGLES, asymmetry_of_products, is_hermitian

_ROWS = 65_536  # numbers that stay in the cache


class RowSums:
    """Row sums of a matrix `(n, n)`.

    Attributes:
        diagonal: `(n,)`, its real part.
        size: `(n,)`, |a_ii|.
        others: `(n,)`, the sum of the other |a_ij|.
        most: entries in a row at most.
    """

    def __init__(self, diagonal: np.ndarray, size: np.ndarray, others: np.ndarray, most: int) -> None:
        self.diagonal, self.size, self.others, self.most = diagonal, size, others, most

    @cached_property
    def one_sign(self) -> bool:
        """As `facts.has_diagonal_of_one_sign`: but for rows of zeros, and not of zeros alone."""
        d, zero = self.diagonal, self.diagonal == 0
        if zero.any():
            d = d[~zero | (self.others > 0)]
        return len(d) > 0 and bool(np.all(d > 0) or np.all(d < 0))

    @cached_property
    def is_dominant(self) -> bool:
        """As `facts.is_diagonally_dominant`: |a_ii| >= sum of the others in every row, up to rounding."""
        return self.dominates(1 - 8 * (self.most + 1) * float(np.finfo(self.others.dtype).eps))

    def dominates(self, factor: float) -> bool:
        """Is |a_ii| at least that times the sum of the others in every row? False where one is no finite number."""
        for start in range(0, len(self.size), _ROWS):  # which mostly says no in the first one
            part = slice(start, start + _ROWS)
            if not np.all((self.size[part] >= factor * self.others[part]) & np.isfinite(self.size[part])):
                return False
        return True


def row_sums(matrix: Operator) -> RowSums | None:
    """Row sums of one square DIA matrix with known values; None for others. Cost: a pass over the values."""
    if not isinstance(matrix, DIA) or matrix.systems is not None or matrix.shape[0] != matrix.shape[1]:
        return None
    values = matrix.known_values()
    if values is None:
        return None
    structure: Any = matrix.structure
    n, (diagonals,) = matrix.shape[0], values
    real = np.abs(diagonals[:0]).dtype
    diagonal, size, others = np.zeros(n, real), np.zeros(n, real), np.zeros(n, real)
    places = [(d, offset, lo, hi) for d, offset, lo, hi in inside(structure.offsets, n, n)]

    def add(start: int, stop: int) -> None:
        for d, offset, lo, hi in places:
            rows = slice(max(lo, start), min(hi, stop))
            if rows.start < rows.stop and offset:
                others[rows] += np.abs(diagonals[d, rows])
            elif rows.start < rows.stop:
                diagonal[rows], size[rows] = diagonals[d, rows].real, np.abs(diagonals[d, rows])

    with np.errstate(all="ignore"):  # what overflows counts as not dominated
        cores.in_blocks(add, n, _ROWS)
    return RowSums(diagonal, size, others, len(structure.offsets))


# --- Facts of one matrix ---

T = TypeVar("T")
_TEMPORARY = ("known", "entries", "row_sums")  # arrays as long as the matrix has rows, or longer


class fact(Generic[T]):  # used as a decorator
    """Cached attribute of an analysis, computed when it is first read.

    None means that it is not known now, as in a program that gets the values as arguments, and is asked for again; then
    what the source of the matrix declares counts (`Operator.declared`).
    """

    def __init__(self, find: Callable[[Any, Any], T]) -> None:
        self.find, self.name, self.__doc__ = find, find.__name__, find.__doc__

    def __get__(self, analysis: Analysis, owner: Any = None) -> T:
        facts = analysis.facts
        kept: Any = facts.get(self.name)  # once: another thread may `release` it
        if kept is not None:
            return kept
        A = analysis._A()
        if A is None:
            raise ReferenceError("The matrix of this analysis is gone: keep it as long as its facts are asked for.")
        found = self.find(analysis, A)
        if found is None and A.declared:
            found = dict(A.declared).get(self.name)  # type: ignore[assignment]
        if found is not None:
            facts[self.name] = found
        return found


class Analysis:
    """Facts of a matrix, or of a batch of matrices, with the values that it has now.

    | fact | found by | cost |
    |---|---|---|
    | `is_exactly_hermitian` | comparison of stored diagonals, digit by digit | a pass over the values |
    | `asymmetry`, and what follows: `has_equal_triangles`, `seems_hermitian` | `A v` and `Aᵀ v` \
for a random v; nothing where it is exactly Hermitian | 2 products |
    | `hermitian` | the asymmetry; where that is small `is_hermitian_by_entries` | a transposition, a difference |
    | `one_sign`, `dominates` | row sums of diagonals, else the entries row by row | a pass over the values |
    | `maybe_definite` | bounds by Gershgorin's circles, else Lanczos' method | a pass, else at most 40 products |
    | `grid` | a sample of rows | a thousand rows |

    Questions that are asked once have functions beside this class: `closed_regions` (null vectors; one product),
    `not_finite` (a sum of the values), `largest_eigenvalue` and `largest_row_sum` (bounds of the spectrum), `scales`,
    and what `facts` proves entry by entry.

    Facts are shared while something is set up (`analysed`, `analyse_anew`), and forgotten with it, as numbers may be
    written to before the next one; prepared solvers and repeated solves own their matrix, and keep its analysis. Where
    somebody writes to it all the same, methods rely on facts that no longer hold, and the true residual decides whether
    they have converged.

    Attributes:
        facts: those that were found, by name.
    """

    def __init__(self, A: Operator, facts: dict[str, Any] | None = None) -> None:
        self._A = weakref.ref(A)  # A holds its analysis: a cycle would keep its memory until Python looks for cycles
        self.facts: dict[str, Any] = {} if facts is None else facts

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickles and copies of a matrix have no analysis."""
        return type(None), ()

    # --- symmetry -----------------------------------------------------------------------------------------------------

    @fact
    def is_exactly_hermitian(self, A: Operator) -> bool | None:
        """Bitwise A = Aᴴ for finite entries. False leaves it open: not all formats have this test."""
        return A.is_exactly_hermitian()

    @fact
    def asymmetry(self, A: Operator) -> float | None:
        """Relative size of A - Aᴴ, estimated by one random vector; NaN where A has one.

        Exactly Hermitian matrices give a value of the order of rounding. A batch gives that of its worst matrix.
        """
        return 0.0 if self.is_exactly_hermitian else asymmetry_of_products(A)

    @fact
    def asymmetry_without_conjugation(self, A: Operator) -> float | None:
        """As `asymmetry`, of A - Aᵀ."""
        return self.asymmetry if A.dtype.kind != "c" else asymmetry_of_products(A, conjugate=False)

    @fact
    def has_equal_triangles(self, A: Operator) -> bool | None:
        """Is it Hermitian to working precision?"""
        relative = self.asymmetry
        return None if relative is None else bool(relative < TRIANGLES * np.finfo(A.dtype).eps)

    @property
    def seems_hermitian(self) -> bool:
        """Is it as good as Hermitian for an iteration? False where the entries are not known now."""
        relative = self.asymmetry
        return relative is not None and relative < CHOSEN

    @property
    def hermitian(self) -> bool | None:
        """Is it Hermitian, entry by entry up to rounding, or far from it? None: neither, or not known now."""
        relative = self.asymmetry
        if relative is None or not relative < REFUSED:
            return None if relative is None or np.isnan(relative) else False
        return True if self.is_hermitian_by_entries else None

    @fact
    def is_hermitian_by_entries(self, A: Operator) -> bool | None:
        """Is it Hermitian entry by entry up to rounding? By products where entries are not known."""
        known = self.known
        if known is None and isinstance(A, Matrix):  # within a program: its entries are not seen now
            return None
        several = isinstance(known, tuple) or (isinstance(known, np.ndarray) and known.ndim == 3)
        each = known if several else (known,)
        if not all(sp.issparse(one) or isinstance(one, np.ndarray) for one in each):  # products only
            relative = self.asymmetry
            return None if relative is None else bool(relative < PRODUCTS * np.finfo(A.dtype).eps)
        return all(map(is_hermitian, each))

    # --- values -------------------------------------------------------------------------------------------------------

    @fact
    def known(self, A: Operator) -> Any:
        """`Operator.known`, until `release`."""
        return A.known()

    @fact
    def entries(self, A: Operator) -> sp.csr_array | None:
        """CSR form of one sparse matrix, until `release`; None for dense ones and batches."""
        return sp.csr_array(self.known) if sp.issparse(self.known) else None

    @fact
    def row_sums(self, A: Operator) -> RowSums | None:
        """Row sums of one DIA matrix, until `release`; None for others."""
        return row_sums(A)

    @fact
    def one_sign(self, A: Operator) -> bool | None:
        """Has the diagonal one sign, but for rows of zeros, which obstacles on a grid make?"""
        if self.row_sums is not None:
            return self.row_sums.one_sign
        if self.entries is not None:
            return has_diagonal_of_one_sign(self.entries)
        diagonal = A.bk.concrete_value(lambda: A.bk.real(A.diagonals()))
        return None if diagonal is None else bool(np.all(diagonal > 0) or np.all(diagonal < 0))

    def dominates(self, factor: float) -> bool | None:
        """Is each |a_ii| at least that times the sum of the others in its row? None for dense ones and batches."""
        if self.row_sums is not None:
            return self.row_sums.dominates(factor)
        return None if self.entries is None else is_dominated(self.entries, factor)

    @fact
    def maybe_definite(self, A: Operator) -> bool | None:
        """Is A definite, by proof or as far as a few steps of Lanczos' method show?"""
        if not self.one_sign:
            return self.one_sign
        rows = self.row_sums
        if rows is not None and rows.is_dominant:
            return True
        entries = self.entries
        if entries is None:  # of dense ones and batches nothing more is looked at
            return None if self.known is None and isinstance(A, SparseMatrix) and A.systems is None else True
        if rows is None and is_diagonally_dominant(entries):  # by Gershgorin's circles
            return True
        return not is_seen_indefinite(entries * np.sign(entries.diagonal().real.sum()))

    # --- places -------------------------------------------------------------------------------------------------------

    @fact
    def grid(self, A: Operator) -> Grid:
        """Grid detected from the rows of a sparse matrix; () if none is."""
        return find_grid(A)


def analysis_of(A: Operator) -> Analysis:
    """The analysis that A keeps, else an empty one that it does not keep."""
    found: Analysis | None = A.analysis
    return Analysis(A) if found is None or found._A() is not A else found  # that of a copy tells of other values


def analyse_anew(A: Operator) -> None:
    """Start a new analysis that A keeps; older facts are dropped, as A may have been written to."""
    A.analysis = Analysis(A)


def with_declared(A: Any, declared: tuple[tuple[str, Any], ...]) -> Any:
    """A copy of A with facts that its source declares."""
    found = copy(A)
    found.declared, found.analysis = declared, None
    return found


def forget(A: Operator) -> None:
    """Drop the analysis of A."""
    A.analysis = None


@contextmanager
def analysed(A: Operator) -> Iterator[None]:
    """Keep the facts of A within the block; afterwards only if they were kept before, without arrays."""
    begins = A.analysis is None or A.analysis._A() is not A
    if begins:
        analyse_anew(A)
    try:
        yield
    finally:
        (forget if begins else release)(A)


def release(A: Operator) -> None:
    """Free the arrays of the analysis of A once a solve is set up."""
    analysis = A.analysis  # once: another thread may `analyse_anew`
    if analysis is not None:
        for name in _TEMPORARY:
            analysis.facts.pop(name, None)


def asymmetry(A: Operator) -> float | None:
    """`Analysis.asymmetry` of A as it is now."""
    return Analysis(A).asymmetry


def on_its_grid(matrix: Matrix) -> Matrix:
    """A square matrix with arrays of its detected grid as input and output; itself if no grid is detected.

    For one matrix that maps vectors, last axis fastest, on a grid of two or three axes of at least 5 points each. It is
    looked at by samples: who relies on it has to look at all entries. Both have one analysis.

    Cost: about a thousand rows, once.
    """
    analysis = analysis_of(matrix)
    grid = analysis.grid
    if not grid or matrix.in_shape == grid:
        return matrix
    placed = matrix.on_grids(grid, grid)  # type: ignore[attr-defined]
    placed.analysis = Analysis(placed, analysis.facts)
    return placed


# --- NaN and infinity ---


def not_finite(A: Operator) -> str | None:
    """Message about NaN or infinite entries of A; None where all are finite, or values are not known now.

    Of one dense matrix for each system: only where every one of them is wrong, as good systems are to be solved.

    Cost: one sum of the values, less than a product. Those on another device are not fetched.
    """
    values = _values(A)
    with np.errstate(all="ignore"):
        if values is None or all(np.isfinite(array.sum()) for array in values):
            return None
    known: Any = A.known()
    entries = sp.coo_array(known) if sp.issparse(known) else None
    stored = np.asarray(known) if entries is None else entries.data
    bad = ~np.isfinite(stored)
    if not bad.any() or (bad.ndim == 3 and not bad.any(axis=(1, 2)).all()):  # a sum that only overflows is none
        return None
    first = int(np.argmax(bad))
    *_, row, column = np.unravel_index(first, bad.shape) if entries is None else (c[first] for c in entries.coords)
    return (
        f"{int(bad.sum())} of {bad.size} entries are not finite; the first is {stored.flat[first]} in row {int(row)}, "
        f"column {int(column)}"
    )


def _values(A: Operator) -> Sequence[np.ndarray] | None:
    """The stored values on the host, as they lie."""
    arrays: Sequence[Any]
    if isinstance(A, Dense):
        arrays = (A.matrix if A.constant is None else A.constant,)
    elif isinstance(A, SparseMatrix):
        arrays = A.known_or_arrays()
    else:
        return None
    bk = A.bk
    if all(isinstance(a, np.ndarray) for a in arrays):
        return arrays
    return [bk.to_numpy(a) for a in arrays] if all(map(bk.is_concrete, arrays)) else None
