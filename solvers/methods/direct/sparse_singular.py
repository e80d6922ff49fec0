"""Singular sparse matrices on the host: shifted factors and null vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import get_backend
from ....sparse.analysis.canonical import row_maxima
from ....sparse.analysis.matching import greedy_matching, maximum_matching
from .null_vectors import Equations, both_null_vectors
from .pivot_order import lu_of
from .singular import Singularity

Solve = Callable[[np.ndarray, bool], np.ndarray]  # (rows b, transposed) -> rows x
_MOST, _FEW, _NUMBERS = 64, 256, 2 * 10**7  # null vectors, for matrices of more unknowns than, in so many numbers
_NOTHING = 1e-10  # entries of unit vectors below are rounding errors
_BLOWN = 1e4  # over the shift: what the inverse makes of a random vector that the shift does not keep off zero


class HostSolver(NamedTuple):
    """Solver of one matrix or a batch on the host, and what its factors have shown.

    Attributes:
        solve: (rows b, transposed) -> rows x.
        singularity: numbers of `Singularity`, `(systems or 1, 1)`.
        null: for each matrix its null vectors and those of its adjoint, `(k, n)` each; or None.
        numbers: stored in the factors.
        by: the library that made them.
    """

    solve: Solve
    singularity: np.ndarray
    null: list[tuple[np.ndarray, np.ndarray] | None]
    numbers: int = 0
    by: str = "SuperLU"

    @classmethod
    def of(
        cls, solve: Solve, singularity: int = 0, null: Any = None, lu: Any = None, by: str = "SuperLU"
    ) -> HostSolver:
        """From one matrix and its factors."""
        numbers = 0 if lu is None else int(lu.nnz)
        return cls(solve, np.full((1, 1), singularity, np.int32), [null], numbers, by)

    def turned(self, transposed: bool, conjugated: bool) -> HostSolver:
        """The solver of the transposed matrices, of the conjugated ones, or of both."""
        if not (transposed or conjugated):
            return self

        def solve(b: np.ndarray, again: bool) -> np.ndarray:
            x = self.solve(b.conj() if conjugated else b, again != transposed)
            return x.conj() if conjugated else x

        def sides(null: tuple[np.ndarray, np.ndarray] | None) -> tuple[np.ndarray, np.ndarray] | None:
            if null is None:
                return None
            right, left = null[::-1] if transposed else null
            return (right.conj(), left.conj()) if transposed != conjugated else (right, left)

        return self._replace(solve=solve, null=list(map(sides, self.null)))

    def in_range(self, b: np.ndarray, transposed: bool) -> np.ndarray:
        """Project rows b onto the range of A."""
        return self._taken_off(b, 1, transposed)

    def without_null(self, x: np.ndarray, transposed: bool) -> np.ndarray:
        """Project null vectors out of rows x."""
        return self._taken_off(x, 0, transposed)

    def _taken_off(self, rows: np.ndarray, side: int, transposed: bool) -> np.ndarray:
        """Those of the transposed matrix are the conjugated ones of the adjoint."""
        if all(null is None for null in self.null):
            return rows
        found = np.array(rows)
        alone = len(self.null) == 1
        for i, null in enumerate(self.null):
            if null is not None:
                own = slice(None) if alone else slice(i, i + 1)
                basis = null[1 - side].conj() if transposed else null[side]
                for _ in range(2):  # once leaves rounding, which may be all that there is
                    found[own] = _off(basis, found[own])
        return found


def singular_solver(
    A: Any, scaled: Any, scales: tuple[np.ndarray, np.ndarray], given: np.dtype, exact: bool
) -> HostSolver:
    """Solver that acts as a pseudo-inverse on the range of A, in double precision.

    Args:
        A: CSC, in double precision.
        scaled: R A C, which shows whether it is singular.
        scales: the diagonals of R and C.
        given: the precision in which the entries were given.
        exact: was a pivot exactly zero?
    """
    lu = _shifted_factors(scaled, given)
    first, last = scales

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        rows, columns = (last, first) if transposed else (first, last)
        with np.errstate(over="ignore"):  # infinity is seen by the solve
            image = lu.solve(np.ascontiguousarray((b * rows).T, A.dtype), "T" if transposed else "N").T
            return np.ascontiguousarray(image * columns)

    right, left = _null_vectors(A, solve, scales, given)
    if not len(right):
        return HostSolver.of(solve, Singularity.SINGULAR if exact else Singularity.ILL_CONDITIONED, lu=lu)

    def pseudo(b: np.ndarray, transposed: bool) -> np.ndarray:
        return _off(left.conj() if transposed else right, solve(b, transposed))

    size = abs(A)
    empty = (size.sum(axis=0) == 0) & (size.sum(axis=1) == 0)  # as of obstacles on a grid
    elsewhere = np.max(np.abs(right[:, ~empty]), initial=0)
    kind = Singularity.KNOWN if elsewhere <= _NOTHING else Singularity.SINGULAR
    return HostSolver.of(pseudo, kind, (right, left), lu)


def _null_vectors(
    A: Any, solve: Solve, scales: tuple[np.ndarray, np.ndarray], given: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Null vectors of A and of its adjoint, `(k, n)` each."""
    bk, n, (rows, columns) = get_backend("numpy"), A.shape[0], scales
    most = n if n <= _FEW else max(1, min(_MOST, _NUMBERS // n))
    adjoint = sp.csc_array(A.conj().T)

    def equations(sides: tuple[Any, ...]) -> Equations:
        (matrix, solve, units), _ = sides
        sizes = (abs(matrix) @ units)[None]
        return Equations(lambda x: (matrix @ x.T).T, solve, sizes, units[None])

    own = A, lambda b: solve(b, False), columns
    other = adjoint, lambda b: solve(b.conj(), True).conj(), rows
    everywhere = np.full((1, 1), True)
    found = both_null_vectors(
        bk, (other, own), equations, lambda sides: sides[::-1], everywhere, most, (A.dtype, given)
    )
    right, left = (vectors[0][np.any(vectors[0], axis=1)] for vectors in found)
    return right, left


def _off(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Project orthonormal rows out of rows x."""
    basis = basis.astype(np.result_type(basis.dtype, x.dtype), copy=False)
    found: np.ndarray = x - (x @ basis.conj().T) @ basis
    return found


def _shifted_factors(matrix: Any, given: np.dtype) -> Any:
    """Factors of the matrix plus a sparse shift, in proportion to the row sizes.

    On the diagonal, which is enough where null vectors look like those of the adjoint; else, where the null vectors
    have no entry in common with those, at the places of a matching of rows and columns, and of those left over.
    """
    own = np.finfo(matrix.dtype).eps
    wide = own if np.finfo(given).eps <= own else 64 * float(np.finfo(given).eps)
    shift, n = max(float(own) ** 0.5, float(wide)), matrix.shape[0]
    rows = row_maxima(sp.csr_array(matrix))
    rng = np.random.default_rng(6)
    amount = shift * np.where(rows > 0, rows, 1) * rng.uniform(0.75, 1.25, n)
    v = rng.choice([-1.0, 1.0], n) * rng.uniform(0.5, 1.5, n) * amount / shift
    lu = None
    for places in (np.arange(n), _matched(matrix)):
        entries = sp.csc_array((amount.astype(matrix.dtype), (np.arange(n), places)), shape=matrix.shape)
        try:
            lu = lu_of(sp.csc_array(matrix + entries))
        except RuntimeError:  # "Factor is exactly singular"
            continue
        if np.max(np.abs(lu.solve(v.astype(matrix.dtype))), initial=0) < _BLOWN / shift:
            break
    return lu


def _matched(matrix: Any) -> np.ndarray:
    """`(n,)`: a matching of rows with columns, completed to a permutation."""
    entries = sp.csr_array(matrix, copy=True)
    entries.eliminate_zeros()
    n = entries.shape[0]
    columns = maximum_matching(entries.indptr, entries.indices, n)
    if columns is None:  # The greedy one has nearly as many.
        row_of = greedy_matching(np.repeat(np.arange(n), np.diff(entries.indptr)), entries.indices, n)
        columns = np.full(n, -1)
        columns[row_of[row_of >= 0]] = np.flatnonzero(row_of >= 0)
    columns[columns < 0] = np.setdiff1d(np.arange(n), columns)
    return columns
