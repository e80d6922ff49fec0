"""A sparse matrix on the host, with what is made of its factors."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from ...sparse.analysis.equilibrate import equilibrated, scales
from ...sparse.analysis.symmetry import is_hermitian, nearest_hermitian
from .selected_inverse import SelectedInverse
from .sparse_factors import SparseFactors, definite_factors, sign_and_log, sparse_factors

PIVOT = 100  # rounding units of the diagonal below which a pivot of a definite matrix may be zero
_BLOWN = 0.1  # growth of a random vector under the inverse of a singular matrix, in inverse rounding units
_FEW = 32  # columns up to which solves take less time than the recursion
_NUMBERS = 2**22  # of the right-hand sides of one solve
_UNITS = 1e4  # ratio of the largest entries of rows and columns from which these are scaled
_MORE = 6  # times the entries of L and U make a pattern that is too large for the recursion

SINGULAR = (
    "The matrix is singular, so it has no inverse. Add a multiple of the identity, or fix the unknowns of its null "
    "space."
)
NOT_DEFINITE = (
    "The matrix is not Hermitian and positive definite, so it is neither the precision nor the covariance of a "
    "Gaussian distribution. Give one that is; add a multiple of the identity to one that is only semi-definite."
)


class FactorisedMatrix:
    """Results about one matrix from its factors, each made once; in double precision.

    Attributes:
        A: square `csc_array`.
        given: the precision in which it was given, which says what of it is rounding.
    """

    def __init__(self, A: Any) -> None:
        self.given = A.dtype
        self.A = sp.csc_array(A, dtype=np.result_type(A.dtype, np.float64))
        self.A.sum_duplicates()

    @cached_property
    def is_finite(self) -> bool:
        """Are all entries numbers?"""
        return bool(np.isfinite(self.A.data).all())

    @cached_property
    def definite(self) -> SparseFactors | None:
        """`L D Lᴴ` where the matrix is Hermitian and positive definite, else None."""
        A = self.A
        if not self.is_finite or not np.all(A.diagonal().real > 0):
            return None
        if not is_hermitian(sp.csr_array(A.astype(self.given, copy=False))):
            return None
        found = definite_factors(sp.csc_array((A + A.conj().T) / 2))
        if found is None:
            return None
        pivots, diagonal = found.U.diagonal().real, A.diagonal().real
        at_rounding = pivots[found.rows] <= PIVOT * np.finfo(np.float64).eps * diagonal
        return None if at_rounding.any() else found

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Of rows and columns, where their units differ so much that pivots would be chosen by these."""
        if self.definite is not None:
            return None
        sizes = abs(self.A)
        largest = np.concatenate([sizes.max(axis=axis).toarray() for axis in (0, 1)])
        if not largest.all() or largest.max() <= _UNITS * largest.min():
            return None
        return scales(self.A)

    @cached_property
    def factors(self) -> SparseFactors | None:
        """Factors, of the scaled matrix where there are scales; None of a singular matrix."""
        if self.definite is not None:
            return self.definite
        return sparse_factors(self.A if self._scales is None else equilibrated(self.A, *self._scales))

    def slogdet(self) -> tuple[Any, float]:
        """Sign and log of the modulus of the determinant: 0 and -inf of a singular matrix."""
        if not self.A.shape[0]:
            return 1.0, 0.0
        if not self.is_finite:
            return np.nan, np.nan
        sign, log = sign_and_log(self.factors)
        return sign, log if self._scales is None else log - sum(float(np.log(s).sum()) for s in self._scales)

    @cached_property
    def _is_singular(self) -> bool:
        """Is the condition number of the scaled matrix that of a singular one, as one solve shows it?"""
        if self.factors is None:
            return True
        B = self.A if self._scales is None else equilibrated(self.A, *self._scales)
        unit = np.ones(B.shape[0])
        if self.definite is not None:
            unit = np.sqrt(B.diagonal().real)
        z = np.random.default_rng(2).uniform(0.5, 1.5, B.shape[0]) * np.where(np.arange(B.shape[0]) % 3, 1, -1)
        with np.errstate(all="ignore"):
            x = np.abs(self.factors.solve((unit * z).astype(B.dtype)[:, None])[:, 0]) * unit
            size = np.max((abs(B) @ (1 / unit)) / unit)
            return not bool(np.max(x) * size < _BLOWN / np.finfo(np.float64).eps)

    @cached_property
    def _selected(self) -> SelectedInverse | None:
        """None where the pattern that the recursion needs is much larger than that of the factors."""
        if self.factors is None:
            raise ZeroDivisionError(SINGULAR)
        found = SelectedInverse(self.factors, self.definite is not None)
        return found if found.size <= _MORE * (self.factors.L.nnz + self.factors.U.nnz) else None

    def inverse_entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """`(A^-1)[rows, columns]` for integers `(k,)`, which lie inside.

        Raises:
            ZeroDivisionError: the matrix is singular.
        """
        if not len(rows):
            return np.zeros(0, self.A.dtype)
        if not self.is_finite:
            return np.full(len(rows), np.nan, self.A.dtype)
        if self.factors is None or self._is_singular:
            raise ZeroDivisionError(SINGULAR)
        found, missing = np.zeros(len(rows), self.A.dtype), np.ones(len(rows), bool)
        if len(np.unique(columns)) > _FEW and self._selected is not None:
            found, missing = self._selected.entries(rows, columns)
        if missing.any():
            found[missing] = self._by_solves(rows[missing], columns[missing])
        if self._scales is None:
            return found
        by_row, by_column = self._scales
        return found * by_column[rows] * by_row[columns]

    def _by_solves(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The entries in columns of the inverse, one solve each."""
        n, factors = self.A.shape[0], self.factors
        if factors is None:
            raise ZeroDivisionError(SINGULAR)
        different, place = np.unique(columns, return_inverse=True)
        found = np.zeros(len(rows), self.A.dtype)
        width = max(1, _NUMBERS // n)
        for first in range(0, len(different), width):
            own = different[first : first + width]
            units = np.zeros((n, len(own)), self.A.dtype, order="F")
            units[own, np.arange(len(own))] = 1
            inverse = factors.solve(units)
            here = np.flatnonzero((place >= first) & (place < first + len(own)))
            found[here] = inverse[rows[here], place[here] - first]
        return found

    @cached_property
    def root_factors(self) -> SparseFactors | None:
        """`definite`, also where more than rounding of its entries, but little, keeps A from being Hermitian."""
        if self.definite is not None or not self.is_finite:
            return self.definite
        near = nearest_hermitian(sp.csr_array(self.A))
        return None if near is None else FactorisedMatrix(near).definite

    @cached_property
    def _triangle(self) -> Any:
        """SuperLU of L, whose factors are itself and I."""
        if self.root_factors is None:
            raise ValueError(NOT_DEFINITE)
        L = self.root_factors.L
        return splu(L, permc_spec="NATURAL", diag_pivot_thresh=0.0, relax=1, panel_size=1, options={"Equil": False})

    def square_root(self, z: np.ndarray, inverse: bool) -> np.ndarray:
        """Rows z `(k, n)` times R with `R Rᴴ = A`, or, `inverse`, with `R Rᴴ = A^-1`.

        With `P A Pᵀ = L D Lᴴ` that is `Pᵀ L D^(1/2)`, or `Pᵀ L^-H D^(-1/2)`.

        Raises:
            ValueError: the matrix is not positive definite.

        Source: Rue and Held, Gaussian Markov Random Fields (2005), algorithms 2.3 and 2.4.
        """
        if self.root_factors is None:
            raise ValueError(NOT_DEFINITE)
        L, U, order, *_ = self.root_factors
        root = np.sqrt(U.diagonal().real)[:, None]
        columns = np.asarray(z.T, self.A.dtype, order="F")
        found = self._triangle.solve(columns / root, "H") if inverse else L @ (root * columns)
        return np.ascontiguousarray(found[order].T)
