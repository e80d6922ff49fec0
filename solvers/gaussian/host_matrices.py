"""Sparse matrices whose factors are made on the host, also where a compiled function computes the entries."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array
from ...sparse import SparseMatrix
from .factorised_matrix import FactorisedMatrix

_NO_SECOND = (
    "Entries of the inverse of a sparse matrix of {n} unknowns come from its factors on the host, and have no "
    "derivative: so a log determinant has a first one only. For second ones give a dense matrix, or use less than "
    "{most} unknowns."
)
SMALL = 257  # unknowns below which traced entries are factorised as a dense matrix of the library


class HostMatrices:
    """One matrix, or a batch, of static structure.

    Factors are kept for the values that came last: a log determinant and its derivative share them.

    Attributes:
        matrix: as it was given.
        rows: of the stored entries, `(nnz,)`.
        columns: likewise.
        values: `(nnz,)` or `(systems, nnz)`: NumPy's where they are known, else of the library.
    """

    def __init__(self, matrix: SparseMatrix) -> None:
        self.matrix = matrix
        self.rows, self.columns, _ = matrix.structure.entries()
        self.values = matrix.entry_values()
        self._last: list[tuple[np.ndarray, list[FactorisedMatrix]]] = []

    def holding(self, values: Array) -> HostMatrices:
        """The same structure with other values, and the same memory."""
        other = copy.copy(self)
        other.values = values
        return other

    def of_values(self, values: np.ndarray) -> list[FactorisedMatrix]:
        """The matrices of NumPy values, one for each system."""
        for last, found in self._last:
            if np.array_equal(last, values, equal_nan=True):
                return found
        each = values if values.ndim == 2 else values[None]
        places, shape = (self.rows, self.columns), self.matrix.shape
        found = [FactorisedMatrix(sp.csc_array((v, places), shape=shape)) for v in each]
        self._last[:] = [(np.array(values), found)]
        return found

    def call(
        self, function: Callable[..., Any], shape: tuple[int, ...], dtypes: list[np.dtype], *arrays: Array
    ) -> tuple[Array, ...]:
        """`function(matrix, *arrays)` of each system, which returns arrays `shape`, stacked for a batch.

        Without derivatives.

        Args:
            arrays: of the library; each system has its own, on the first axis, where there are several.
            dtypes: of the arrays.
        """
        bk, systems = self.matrix.bk, self.matrix.systems
        lead = () if systems is None else (systems,)

        def on_host(values: np.ndarray, *more: np.ndarray) -> tuple[np.ndarray, ...]:
            matrices = self.of_values(np.asarray(values))
            if systems is None:
                found = [function(matrices[0], *map(np.asarray, more))]
            else:
                found = [function(one, *(np.asarray(a)[i] for a in more)) for i, one in enumerate(matrices)]
            columns = zip(*found, strict=True) if found else ([] for _ in dtypes)
            stacked = [np.array(c, d).reshape((*lead, *shape)) for c, d in zip(columns, dtypes, strict=True)]
            return tuple(stacked)

        specs = [((*lead, *shape), np.dtype(dtype)) for dtype in dtypes]
        if isinstance(self.values, np.ndarray) and not bk.compiled(*arrays):
            found = on_host(self.values, *map(bk.to_numpy, arrays))
            return tuple(bk.asarray(a, like=self.matrix.anchor()) for a in found)
        if isinstance(self.values, np.ndarray):
            known = self.values
            return bk.host_call(lambda *more: on_host(known, *more), specs, *map(bk.constant, arrays))
        return bk.host_call(on_host, specs, *map(bk.constant, (self.values, *arrays)))

    def with_no_derivative(self, *outputs: Array) -> tuple[Array, ...]:
        """Arrays that depend on the values, whose derivatives raise."""
        bk = self.matrix.bk
        if isinstance(self.values, np.ndarray) or not bk.has_derivatives:
            return outputs
        why = _NO_SECOND.format(n=self.matrix.shape[0], most=SMALL)
        return tuple(bk._with_no_derivative([self.values], list(outputs), why))

    def inverse_entries(self, rows: np.ndarray, columns: np.ndarray) -> Array:
        """`(A^-1)[rows, columns]`, `(k,)` or `(systems, k)`; NaN of a singular matrix whose values are traced."""
        dtype, known = self.matrix.dtype, not self.matrix.bk.compiled(self.values)

        def entries(one: FactorisedMatrix) -> tuple[np.ndarray]:
            try:
                return (one.inverse_entries(rows, columns),)
            except ZeroDivisionError:
                if known:
                    raise
                return (np.full(len(rows), np.nan, dtype),)

        return self.call(entries, (len(rows),), [dtype])[0]
