"""Matrices with rows scaled to a unit diagonal, on a symmetric pattern: the input of incomplete factorisations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ....sparse import Matrix
from ....sparse.analysis.symmetry import REFUSED
from ....sparse.formats.entries.regather import take_or_zero
from ....sparse.operators.concrete import nonzero_entries
from ..target import Target
from .pattern import Pattern

_ROUNDING = 100  # units of it that a Hermitian matrix may differ from its adjoint, as in `sparse.analysis.symmetry`


@dataclass(frozen=True)
class UnitDiagonalMatrix:
    """`A = U V`, with a diagonal U.

    Attributes:
        target: where the factors are applied.
        host: the library that computes: NumPy where the values are known now.
        pattern: where the entries are.
        values: V, `(nnz,)` or `(systems, nnz)`: 1 on the diagonal, 0 where A has 0 there but not in all of the row.
        units: U, `(n,)` or `(systems, n)`: the diagonal of A; where that is 0 the sum of |a_ij| in the row, or 1.
        hermitian: is A Hermitian? None: not known.
        symmetric: bool `(systems,)`, where the values are known: is this system Hermitian up to rounding?
    """

    target: Target
    host: Backend
    pattern: Pattern
    values: Array
    units: Array
    hermitian: bool | None
    symmetric: np.ndarray | None = None

    @classmethod
    def of(cls, own: Matrix, target: Target, lower_only: bool = False) -> UnitDiagonalMatrix:
        """From any square matrix.

        Args:
            lower_only: read the lower triangle only, for a matrix that is Hermitian.

        Raises:
            UnsupportedOperation: the places of its entries are not known.
        """
        host, rows, cols, values = nonzero_entries(own)
        values = values if own.systems is not None else values[0]
        pattern, source = Pattern.of(rows, cols, own.shape[0])
        if source is not None:
            values = take_or_zero(host, values, source)
        last = len(values.shape) - 1
        known = isinstance(values, np.ndarray)
        if known:
            _check_finite(values, pattern.rows)
        symmetric, far = _symmetry(values, pattern) if known else (None, None)
        hermitian = (
            None if symmetric is None or far is None else True if symmetric.all() else False if far.any() else None
        )
        if lower_only and hermitian is not False:
            hermitian = True
            symmetric = None if symmetric is None else np.ones_like(symmetric)
            mirrored = host.conj(host.take_in_bounds(values, pattern.mirror, last))
            lower = host.asarray(pattern.rows > pattern.cols, like=values)
            values = host.where(lower, values, mirrored)
        diagonal = host.take_in_bounds(values, pattern.diagonal, last)
        if hermitian:
            diagonal = host.astype(host.real(diagonal), host.dtype(values))
        sums = host.sum_entries(host.abs(values), pattern.rows, pattern.n, sorted=True)
        empty = host.astype(sums == 0, host.dtype(values))
        sums = host.astype(sums, host.dtype(values)) + empty
        units = host.where(diagonal == 0, sums, diagonal)
        on_diagonal = host.asarray((pattern.rows == pattern.cols).astype(host.dtype(values)), like=values)
        values = values / host.take_in_bounds(units, pattern.rows, last) + on_diagonal * host.take_in_bounds(
            empty, pattern.rows, last
        )
        return cls(target, host, pattern, values, units, hermitian, symmetric)

    @property
    def known(self) -> bool:
        """Are the values known now?"""
        return isinstance(self.values, np.ndarray)

    @property
    def last(self) -> int:
        """Number of the axis of the entries."""
        return len(self.values.shape) - 1

    @property
    def systems(self) -> int:
        """How many matrices there are."""
        return 1 if self.last == 0 else int(self.values.shape[0])

    def capped(self, levels: int) -> UnitDiagonalMatrix:
        """Drop entries between bands of so many levels."""
        pattern, kept = self.pattern.capped(levels)
        return replace(self, pattern=pattern, values=self.host.take_in_bounds(self.values, kept, self.last))

    def shifted(self, shift: float) -> UnitDiagonalMatrix:
        """Multiply the diagonal by 1 + shift."""
        if not shift:
            return self
        on = self.host.asarray((self.pattern.rows == self.pattern.cols) * shift, self.host.dtype(self.values))
        return replace(self, values=self.values + on)

    def diagonal(self, values: Array | None = None) -> Array:
        """Diagonal of values on this pattern, by default its own."""
        return self.host.take_in_bounds(self.values if values is None else values, self.pattern.diagonal, self.last)


def check_finite_rows(A: sp.csr_array) -> None:
    """Raise ValueError for NaN or infinity in a known matrix."""
    _check_finite(A.data, np.repeat(np.arange(A.shape[0]), np.diff(A.indptr)))


def _check_finite(values: np.ndarray, rows: np.ndarray) -> None:
    if not np.isfinite(values).all():
        row = int(rows[np.argwhere(~np.isfinite(values))[0, -1]])
        raise ValueError(f"Row {row} of A has an entry that is not finite; expected finite ones for this kind.")


def _symmetry(values: np.ndarray, pattern: Pattern) -> tuple[np.ndarray, np.ndarray]:
    """bool `(systems,)`: is each Hermitian, entry by entry up to rounding, and so far from it that CG refuses it?"""
    both = np.atleast_2d(values)
    with np.errstate(all="ignore"):
        difference = np.abs(both - both[:, pattern.mirror].conj())
        if not difference.any():
            return np.ones(len(both), bool), np.zeros(len(both), bool)
        size = np.abs(both)
        scale = size.max(axis=1, keepdims=True)
        far = np.linalg.norm(difference / scale, axis=1) > REFUSED * np.linalg.norm(size / scale, axis=1)
        if far.all():
            return ~far, far
        largest = np.maximum.reduceat(size, pattern.starts[:-1], axis=1)
        limit = np.minimum(largest[:, pattern.rows], largest[:, pattern.cols])
        return (difference <= _ROUNDING * np.finfo(values.dtype).eps * limit).all(axis=1), far
