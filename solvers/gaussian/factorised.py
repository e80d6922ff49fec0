"""Determinants, entries of the inverse and square roots from factors on the host, also in compiled programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ...backends import Array, Backend
from ...sparse import DenseOperator, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.canonical import equilibrated, scales
from ...sparse.analysis.symmetry import is_hermitian, nearest_hermitian
from ...sparse.content import Content
from ...sparse.operators.function import LinearFunction
from ..factors.dense import factorise
from ..factors.inverse import singularity_of
from ..factors.protocol import ExactlySingular
from ..factors.singularity import GROWN, Singularity
from ..factors.superlu import Exchanges, factors_of, splu_of_triangle, superlu_factors
from ..memory import Memory
from .selected_inverse import SelectedInverse, sorted_columns

SMALL = 257  # unknowns below which traced entries are factorised as a dense matrix of the library
PIVOT = 100  # rounding units of the diagonal below which a pivot of a definite matrix may be zero
_FEW = 32  # columns up to which solves take less time than the recursion
_NUMBERS = 2**22  # entries of the right-hand sides of one solve
_UNITS = 1e4  # ratio of the largest entries of rows and columns, above which these are scaled
_MORE = 6  # largest size of the pattern for the recursion, relative to the entries of L and U

SINGULAR = (
    "The matrix is singular, so it has no inverse. Add a multiple of the identity, or fix the unknowns of its null "
    "space."
)
NOT_DEFINITE = (
    "The matrix is not Hermitian and positive definite, so it is neither the precision nor the covariance of a "
    "Gaussian distribution. Give one that is; add a multiple of the identity to one that is only semi-definite."
)
_NO_SECOND = (
    "Entries of the inverse of a sparse matrix of {n} unknowns come from its factors on the host, and have no "
    "derivative, so a log determinant has only a first one. For second ones give a dense matrix, or use fewer than "
    "{most} unknowns."
)


class FactorisedMatrix:
    """One matrix and its cached factors, in double precision.

    Attributes:
        A: square `csc_array`.
        given: precision of the given entries, which determines their rounding errors.
    """

    def __init__(self, A: Any) -> None:
        self.given = A.dtype
        self.A = sp.csc_array(A, dtype=np.result_type(A.dtype, np.float64))
        self.A.sum_duplicates()

    @cached_property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.A.data).all())

    @cached_property
    def definite(self) -> Any:
        """SuperLU's `P A Pᵀ = L D Lᴴ`, in minimum degree order, if A is Hermitian and positive definite, else None.

        No exchanges are needed, because these are Cholesky factors up to scaling.

        Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 10.1.
        """
        A = self.A
        if not self.is_finite or not np.all(A.diagonal().real > 0):
            return None
        if not is_hermitian(sp.csr_array(A.astype(self.given, copy=False))):
            return None
        try:
            lu = superlu_factors(sp.csc_array((A + A.conj().T) / 2), Exchanges.NONE)
        except ExactlySingular:
            return None
        pivots = lu.U.diagonal()
        if np.any(lu.perm_r != lu.perm_c) or not np.all(pivots.real > 0) or np.any(abs(pivots.imag) > pivots.real):
            return None
        at_rounding = pivots.real[lu.perm_r] <= PIVOT * np.finfo(np.float64).eps * A.diagonal().real
        return None if at_rounding.any() else lu

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Scales of rows and columns; None unless their units differ so much that they would determine the pivots."""
        if self.definite is not None:
            return None
        sizes = abs(self.A)
        largest = np.concatenate([sizes.max(axis=axis).toarray() for axis in (0, 1)])
        if not largest.all() or largest.max() <= _UNITS * largest.min():
            return None
        return scales(self.A)

    @cached_property
    def scaled(self) -> Any:
        return self.A if self.scales is None else equilibrated(self.A, *self.scales)

    @cached_property
    def lu(self) -> Any:
        """SuperLU of the scaled matrix: `L U = B` with `B[perm_r[i], perm_c[j]] = A[i, j]`; None if a pivot is zero."""
        if self.definite is not None:
            return self.definite
        try:
            return factors_of(self.scaled)
        except ExactlySingular:
            return None

    def slogdet(self) -> tuple[Any, float]:
        """Sign and logarithm of the modulus of the determinant; 0 and -inf for a singular matrix."""
        if not self.A.shape[0]:
            return 1.0, 0.0
        if not self.is_finite:
            return np.nan, np.nan
        pivots = np.zeros(1) if self.lu is None else self.lu.U.diagonal()
        size = np.abs(pivots)
        if not size.all():
            return 0.0, -np.inf
        parity = _parity(self.lu.perm_r) * _parity(self.lu.perm_c)
        with np.errstate(invalid="ignore"):
            sign, log = parity * np.prod(pivots / size), float(np.sum(np.log(size)))
        return sign, log if self.scales is None else log - sum(float(np.log(s).sum()) for s in self.scales)

    @cached_property
    def is_singular(self) -> bool:
        """Is the scaled matrix singular to working precision, estimated by one solve?

        The right-hand side has a mean, unlike random signs, because null vectors of closed domains are constants.
        """
        if self.lu is None:
            return True
        B, n = self.scaled, self.A.shape[0]
        unit = np.ones(n) if self.definite is None else np.sqrt(B.diagonal().real)
        z = np.random.default_rng(2).uniform(0.5, 1.5, n) * np.where(np.arange(n) % 3, 1, -1)
        with np.errstate(all="ignore"):
            x = np.abs(self.lu.solve((unit * z).astype(B.dtype)[:, None])[:, 0]) * unit
            size = np.max((abs(B) @ (1 / unit)) / unit)
            return not bool(np.max(x) * size < GROWN / np.finfo(np.float64).eps)

    @cached_property
    def _selected(self) -> SelectedInverse | None:
        """Selected inversion; None where its pattern is much larger than that of the factors."""
        selected = SelectedInverse(self.lu, self.definite is not None)
        return selected if selected.size <= _MORE * (self.lu.L.nnz + self.lu.U.nnz) else None

    def inverse_entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """`(A^-1)[rows, columns]` for integers `(k,)` from 0 to n - 1.

        Raises:
            ZeroDivisionError: the matrix is singular.
        """
        if not len(rows):
            return np.zeros(0, self.A.dtype)
        if not self.is_finite:
            return np.full(len(rows), np.nan, self.A.dtype)
        if self.is_singular:
            raise ZeroDivisionError(SINGULAR)
        entries, missing = np.zeros(len(rows), self.A.dtype), np.ones(len(rows), bool)
        if len(np.unique(columns)) > _FEW and self._selected is not None:
            entries, missing = self._selected.entries(rows, columns)
        if missing.any():
            entries[missing] = self._by_solves(rows[missing], columns[missing])
        if self.scales is None:
            return entries
        by_row, by_column = self.scales
        return entries * by_column[rows] * by_row[columns]

    def _by_solves(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries of the inverse by one solve for each of their columns."""
        n = self.A.shape[0]
        different, position = np.unique(columns, return_inverse=True)
        entries = np.zeros(len(rows), self.A.dtype)
        width = max(1, _NUMBERS // n)
        for start in range(0, len(different), width):
            block = different[start : start + width]
            units = np.zeros((n, len(block)), self.A.dtype, order="F")
            units[block, np.arange(len(block))] = 1
            inverse = self.lu.solve(units)
            here = np.flatnonzero((position >= start) & (position < start + len(block)))
            entries[here] = inverse[rows[here], position[here] - start]
        return entries

    @cached_property
    def root(self) -> Any:
        """Like `definite`, but also for A that are Hermitian up to slightly more than rounding."""
        if self.definite is not None or not self.is_finite:
            return self.definite
        near = nearest_hermitian(sp.csr_array(self.A))
        return None if near is None else FactorisedMatrix(near).definite

    @cached_property
    def _triangle(self) -> Any:
        return splu_of_triangle(sorted_columns(self.root.L))

    def square_root(self, z: np.ndarray, inverse: bool) -> np.ndarray:
        """R times rows z `(k, n)`, with `R Rᴴ = A`, or `R Rᴴ = A^-1` if `inverse`.

        With `P A Pᵀ = L D Lᴴ`, R is `Pᵀ L D^(1/2)`, or `Pᵀ L^-H D^(-1/2)`.

        Raises:
            ValueError: the matrix is not positive definite.

        Source: Rue and Held, Gaussian Markov Random Fields (2005), algorithms 2.3 and 2.4.
        """
        if self.root is None:
            raise ValueError(NOT_DEFINITE)
        root = np.sqrt(self.root.U.diagonal().real)[:, None]
        columns = np.asarray(z.T, self.A.dtype, order="F")
        image = self._triangle.solve(columns / root, "H") if inverse else sorted_columns(self.root.L) @ (root * columns)
        return np.ascontiguousarray(image[self.root.perm_r].T)


def _parity(order: np.ndarray) -> int:
    """Sign of a permutation, whose cycles of even length are odd."""
    n = len(order)
    graph = sp.csr_array((np.ones(n, np.int8), order.astype(np.int32), np.arange(n + 1, dtype=np.int32)), (n, n))
    cycles, _ = connected_components(graph)
    return 1 if (n - cycles) % 2 == 0 else -1


@dataclass(frozen=True, eq=False)
class HostMatrices:
    """One sparse matrix, or a batch of them, factorised on the host, also if a program computes the entries.

    Attributes:
        matrix: the given matrix.
        rows, columns: of the stored entries, `(nnz,)`.
        values: `(nnz,)` or `(systems, nnz)`, in NumPy if known, else in the library.
        memory: cached factors of the last values, which a log determinant and its derivative share.
    """

    matrix: SparseMatrix
    rows: np.ndarray
    columns: np.ndarray
    values: Array
    memory: Memory[list[FactorisedMatrix]] = field(default_factory=lambda: Memory(1))

    @classmethod
    def of(cls, A: Matrix) -> HostMatrices | None:
        """The matrix for factors on the host; None where the library factorises a dense matrix.

        Dense factors have derivatives of any order, and compiled functions compute them without calling the host.
        """
        if not isinstance(A, SparseMatrix):
            return None
        rows, columns, _ = A.structure.entries()
        values = A.entry_values()
        dense = not isinstance(values, np.ndarray) and A.shape[0] < SMALL
        return None if dense else cls(A, rows, columns, values)

    def factorised(self, values: np.ndarray) -> list[FactorisedMatrix]:
        """One matrix for each system, for values in NumPy."""
        key = Content((values.dtype.str, values.shape), (values.ravel(),))
        if (matrices := self.memory.get(key)) is None:
            positions, shape = (self.rows, self.columns), self.matrix.shape
            each = values if values.ndim == 2 else values[None]
            matrices = [FactorisedMatrix(sp.csc_array((v, positions), shape=shape)) for v in each]
            self.memory.keep(Content(key.form, (values.flatten(),)), matrices)  # values may change
        return matrices

    def call(
        self, function: Callable[..., Any], shape: tuple[int, ...], dtypes: list[np.dtype], *arrays: Array
    ) -> tuple[Array, ...]:
        """Call `function(matrix, *arrays)` for each system and stack the results, without derivatives.

        Args:
            shape, dtypes: of the results for one system.
            arrays: of the library, with systems on the first axis if there are several.
        """
        bk, systems, known = self.matrix.bk, self.matrix.systems, isinstance(self.values, np.ndarray)
        lead = () if systems is None else (systems,)

        def on_host(values: np.ndarray, *more: np.ndarray) -> tuple[np.ndarray, ...]:
            matrices = self.factorised(np.asarray(values))
            more = tuple(np.asarray(a) if systems is not None else np.asarray(a)[None] for a in more)
            results = [function(matrix, *(a[i] for a in more)) for i, matrix in enumerate(matrices)]
            columns = zip(*results, strict=True) if results else ([] for _ in dtypes)
            return tuple(np.array(c, d).reshape((*lead, *shape)) for c, d in zip(columns, dtypes, strict=True))

        if known and not bk.compiled(*arrays):
            results = on_host(self.values, *map(bk.to_numpy, arrays))
            return tuple(bk.asarray(a, like=self.matrix.anchor()) for a in results)
        specs = [((*lead, *shape), np.dtype(dtype)) for dtype in dtypes]
        if known:
            return bk.host_call(lambda *more: on_host(self.values, *more), specs, *map(bk.constant, arrays))
        return bk.host_call(on_host, specs, *map(bk.constant, (self.values, *arrays)))

    def with_no_derivative(self, x: Array) -> Array:
        """Make derivatives of x with respect to the values raise an error."""
        bk = self.matrix.bk
        if isinstance(self.values, np.ndarray) or not bk.has_derivatives:
            return x
        why = _NO_SECOND.format(n=self.matrix.shape[0], most=SMALL)
        return bk._with_no_derivative([self.values], [x], why)[0]

    def inverse_entries(self, rows: np.ndarray, columns: np.ndarray) -> Array:
        """`(A^-1)[rows, columns]`, `(k,)` or `(systems, k)`; NaN for a singular matrix with traced values."""
        dtype, traced = self.matrix.dtype, self.matrix.bk.compiled(self.values)

        def entries(matrix: FactorisedMatrix) -> tuple[np.ndarray]:
            try:
                return (matrix.inverse_entries(rows, columns),)
            except ZeroDivisionError:
                if not traced:
                    raise
                return (np.full(len(rows), np.nan, dtype),)

        return self.with_no_derivative(self.call(entries, (len(rows),), [dtype])[0])


def dense_singular(bk: Backend, dense: Array) -> Array | None:
    """Whether dense matrices are singular according to a direct solve, `()` or `(systems,)`; None if none is."""
    if not dense.shape[-1]:
        return None
    singularity = singularity_of(factorise(bk, DenseOperator(bk, bk.constant(dense))))
    if singularity is None:
        return None
    singular = bk.reshape(singularity, tuple(dense.shape)[:-2]) == int(Singularity.SINGULAR)
    return singular if bk.compiled(singular) or bool(bk.any(singular)) else None


Entries = tuple[Matrix, HostMatrices | None]


def entries_of(A: Operator) -> Entries:
    """The entries of A with their derivatives, and on the host if they are factorised there.

    Raises:
        UnsupportedOperation: the entries cannot be found.
    """
    if isinstance(A, Matrix):
        return A, HostMatrices.of(A)
    if not isinstance(A, LinearFunction):
        raise UnsupportedOperation(f"{A!r} only provides products, but its entries are needed.")
    try:
        matrix = A.matrix()
    except NonlinearError:
        raise
    except UnsupportedOperation as error:
        raise UnsupportedOperation(f"The entries of {A!r} are needed but cannot be found: {error}") from error
    return matrix, HostMatrices.of(matrix)
