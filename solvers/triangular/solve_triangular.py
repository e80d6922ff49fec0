"""`solve_triangular`: solve with one triangle of a matrix, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve_triangular

from ...backends import Array, Backend, LinearSystem, without_compilers
from ...sparse import Dense, MappedOperator, Matrix, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.formats import from_entries
from ...sparse.formats.traced_coo import places_unknown
from ...sparse.operators.function import LinearFunction
from ..read.arguments import Request
from ..read.system import System, read_system
from ..results.result import ArrayT
from .inverse import LevelSolve

Make = Callable[[Sequence[Array]], Operator]


def solve_triangular(
    matrix: Any,
    b: ArrayT,
    *,
    lower: bool,
    unit_diagonal: bool = False,
    transpose: bool = False,
    conjugate: bool = False,
    axis: int | None = None,
) -> ArrayT:
    """Solve `T x = b`, where T is one triangle of a matrix, its transpose, its conjugate, or both.

    Args:
        matrix: dense or sparse, one or a batch, in any format that `linear_solve` accepts; also a linear function that
            can be traced. Only the named triangle is read.
        b: `(..., n)`, with the vector on the last axis, or on `axis`. All others are batch axes, as for `linear_solve`.
        lower: True for the lower triangle of `matrix`, before it is transposed, False for the upper one.
        unit_diagonal: use ones for the diagonal, which is not read.
        transpose: solve with the transpose of that triangle.
        conjugate: solve with its conjugate; with `transpose` that is the conjugate transpose.
        axis: the axis of b and x that holds the vector, as for `linear_solve`: 0 for vectors in columns. It is
            required for a square b and one matrix.

    Returns:
        x, in the shape and library of b. If the library has derivatives, those of x with respect to b and the entries
        of the triangle are exact to any order.

    Raises:
        ValueError: the diagonal is known to have a zero (in a sparse matrix also where no entry is stored), or an input
            does not fit. If it is not known before a compiled function runs, x is not finite in the rows that depend on
            a zero; TensorFlow itself raises an error for dense matrices.
        UnsupportedOperation: the entries of the matrix cannot be found.

    Cost: dense, one call of the library's LAPACK. Sparse: in NumPy, SciPy's compiled solve; elsewhere one product with
    the entries, in as many steps as there are levels of dependent rows (599 for a grid of 300 x 300 in its natural
    order), and the analysis of the structure, which is cached for the last few structures.

    Examples:
        >>> import numpy as np, krylix
        >>> T = np.array([[2.0, 0.0], [1.0, 4.0]])
        >>> krylix.solve_triangular(T, np.array([2.0, 5.0]), lower=True)
        array([1., 1.])
    """
    x: ArrayT = without_compilers(_solve_triangular)(
        matrix, b, axis, bool(lower), bool(unit_diagonal), bool(transpose), bool(conjugate)
    )
    return x


solve_triangular._torchdynamo_disable = True  # type: ignore[attr-defined]  # see linear_solve


def _solve_triangular(
    matrix: Any, b: Any, axis: int | None, lower: bool, unit: bool, transpose: bool, conjugate: bool
) -> Any:
    system = read_system(Request(A=matrix, b=b, axis=axis), None)
    A = _as_matrix(system)
    if not A.shape[0] or not system.layout.systems:
        x = system.b
    elif isinstance(A, Dense):
        x = _dense(A, system.b, lower, unit, transpose, conjugate)
    else:
        x = _sparse(A, system.b, lower, unit, transpose, conjugate)
    return system.layout.unflatten(system.bk, x)


def _as_matrix(system: System) -> Dense | SparseMatrix:
    A = system.A
    if not A.offset and isinstance(A.without_offset, LinearFunction):
        A = A.without_offset.matrix()
    if isinstance(A, Dense | SparseMatrix):
        return A
    if isinstance(A, Matrix):
        raise places_unknown("A triangular solve")
    raise UnsupportedOperation(
        f"{A!r} does not show its entries, of which a triangular solve is made. Give a dense or a sparse matrix."
    )


def _dense(A: Dense, b: Array, lower: bool, unit: bool, transpose: bool, conjugate: bool) -> Array:
    bk, n = A.bk, A.shape[0]
    inside = np.tri(n, k=-unit, dtype=bool) if lower else np.tri(n, k=-unit, dtype=bool).T
    T = bk.where(bk.asarray(inside, like=A.matrix), A.matrix, 0)
    if unit:
        T = T + bk.asarray(np.eye(n), A.dtype, like=A.matrix)
    _refuse_zeros(A, bk.diagonal(T))
    T = bk.matrix_transpose(T) if transpose else T
    return bk.linalg.solve_triangular(bk.conj(T) if conjugate else T, b, lower=lower != transpose)


def _sparse(A: SparseMatrix, b: Array, lower: bool, unit: bool, transpose: bool, conjugate: bool) -> Array:
    T = _triangle(A, lower, unit)
    _refuse_zeros(A, T.diagonal())
    T = T.transpose() if transpose else T
    T = T.conj() if conjugate and T.dtype.kind == "c" else T
    if T.bk.on_host:
        return _on_host(T, b, lower != transpose)
    x, _ = T.bk.implicit_solve(TriangularSystem.of(T, int(b.shape[0])), b)
    return x


def _triangle(A: SparseMatrix, lower: bool, unit: bool) -> SparseMatrix:
    rows, cols, _ = A.structure.entries()
    n, host = A.shape[0], A.host
    inside = (rows > cols if lower else rows < cols) | (False if unit else rows == cols)
    values = A.entry_values()
    last = len(values.shape) - 1
    values, rows, cols = host.take_in_bounds(values, np.flatnonzero(inside), last), rows[inside], cols[inside]
    if unit:
        ones = host.full((*values.shape[:last], n), 1, A.dtype, values)
        each = np.arange(n, dtype=np.int32)
        values, rows, cols = host.concat([values, ones], last), np.append(rows, each), np.append(cols, each)
    else:
        stored = rows[rows == cols]
        if len(stored) < n:
            first = int(np.setdiff1d(np.arange(n), stored)[0])
            raise ValueError(
                f"The triangle is singular: row {first} of the matrix stores nothing on the diagonal. Give a diagonal "
                "without zeros, or unit_diagonal=True."
            )
    return from_entries(A.bk, rows, cols, values, A.shape, format="csr", prune=False, like=A.anchor())


def _refuse_zeros(A: Matrix, diagonal: Array) -> None:
    """Raise ValueError if a known diagonal, `(n,)` or `(systems, n)`, has a zero."""
    if A.bk.compiled(diagonal):
        return
    zeros = np.argwhere(A.bk.to_numpy(diagonal) == 0)
    if len(zeros):
        of = f" of matrix {zeros[0, 0]}" if zeros.shape[1] == 2 else ""
        raise ValueError(
            f"The triangle is singular: the diagonal{of} is 0 in row {zeros[0, -1]}. Give a diagonal without zeros, or "
            "unit_diagonal=True."
        )


def _on_host(T: SparseMatrix, b: np.ndarray, lower: bool) -> np.ndarray:
    """Solve by SciPy, which is two to three times as fast as a factorisation by SuperLU for a single solve.

    SciPy divides the columns by the diagonal first, which overflows where rows differ much in size.
    """
    matrices = T.known()
    if not all(map(_is_in_range, matrices if isinstance(matrices, tuple) else (matrices,))):
        return inverse_of_triangular(T).apply(b)
    if isinstance(matrices, tuple):
        pairs = zip(matrices, b, strict=True)
        return np.array([spsolve_triangular(sp.csc_array(A), row[:, None], lower)[:, 0] for A, row in pairs], b.dtype)
    return np.ascontiguousarray(spsolve_triangular(sp.csc_array(matrices), b.T, lower).T)


def _is_in_range(T: sp.csr_array) -> bool:
    """Are the quotients of all entries in the range of the dtype?"""
    sizes = np.abs(T.data[T.data != 0])
    with np.errstate(over="ignore"):
        return not sizes.size or bool(sizes.max() / sizes.min() < np.sqrt(np.finfo(T.dtype).max))


def inverse_of_triangular(T: SparseMatrix) -> LevelSolve:
    """Inverse of a triangular matrix with a stored diagonal. It is not finite where that is zero."""
    rows, cols, _ = T.structure.entries()
    on, host, values = rows == cols, T.host, T.entry_values()
    diagonal, strict = (
        host.take_in_bounds(values, np.flatnonzero(chosen), len(values.shape) - 1) for chosen in (on, ~on)
    )
    S = from_entries(
        T.bk, rows[~on], cols[~on], strict, T.shape, format="csr", prune=False, like=T.anchor(),
        sum_duplicates=False,
    )  # fmt: skip
    return LevelSolve.of(S, diagonal)


@dataclass(frozen=True)
class TriangularSystem(LinearSystem):
    """`T x = b` for rows b.

    Attributes:
        make, inverse: make T and its inverse from arrays.
        rows: number of rows of b.
    """

    bk: Backend
    make: Make
    inverse: Make
    arrays: Sequence[Array]
    differentiable: Sequence[bool]
    rows: int

    @classmethod
    def of(cls, T: SparseMatrix, rows: int) -> TriangularSystem:
        bk = T.bk
        arrays, make = bk.flatten(T)
        return cls(
            bk, make, lambda arrays: inverse_of_triangular(make(arrays)), arrays,
            tuple(bk.dtype(a).kind in "fc" for a in arrays), rows,
        )  # fmt: skip

    def product(self, x: Array) -> Array:
        return self.make(self.arrays).apply(x)

    def solve(self, b: Array, given: Array | None = None) -> tuple[Array, tuple[Array, ...]]:
        return self.inverse(self.arrays).apply(b), ()

    def tangent(self) -> TriangularSystem:
        return self

    def transpose(self) -> TriangularSystem:
        make, inverse = self.make, self.inverse
        return replace(
            self, make=lambda arrays: make(arrays).transpose(), inverse=lambda arrays: inverse(arrays).transpose()
        )

    def with_arrays(self, arrays: Sequence[Array]) -> TriangularSystem:
        return replace(self, arrays=tuple(arrays))

    def started_at(self, x: Array) -> TriangularSystem:
        return self

    def mapped(self, size: int, axes: Sequence[int | None]) -> TriangularSystem:
        def many(make: Make) -> Make:
            return lambda arrays: MappedOperator(self.bk, make, arrays, axes, size, self.rows)

        return replace(self, make=many(self.make), inverse=many(self.inverse), rows=size * self.rows)
