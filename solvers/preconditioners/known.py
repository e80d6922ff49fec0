"""Concrete values in compiled functions: matrices that depend on no argument stay NumPy's, and what is made of them.

In `jax.jit` and `tf.function` a matrix that does not depend on an argument has its values as NumPy arrays. What is made
of them by NumPy is made once, when the function is compiled, however often it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Dense, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.analysis import on_its_grid
from ...sparse.analysis.canonical import canonical
from ...sparse.formats.traced_coo import places_unknown
from ...sparse.operators.function import FunctionOperator
from ...sparse.operators.linear_function import LinearFunction
from ...sparse.operators.linearity import linear_part
from .checks import check_grid


def known_or_diagonals(A: Operator) -> tuple[Backend, Array]:
    """`A.diagonals()` and the library to compute in: NumPy for known values in a compiled function."""
    if not A.bk.on_host and A.bk.compiled():
        try:
            found = in_scipy(as_matrix(A))
        except (UnsupportedOperation, NonlinearError):  # which has to be evaluated column by column
            found = None
        if found is not None:
            each = found if isinstance(found, tuple) else (found,)
            rows = np.stack([matrix.diagonal() for matrix in each])
            return get_backend("numpy"), np.broadcast_to(rows, (A.systems or 1, A.shape[0]))
    return A.bk, A.diagonals()


def as_matrix(A: Operator) -> Matrix:
    """A as a matrix; a function is traced.

    Raises:
        UnsupportedOperation: its entries cannot be found.
        NonlinearError: the function is not linear.
    """
    A = A.without_offset
    if isinstance(A, Matrix):
        return constant_folded(A)
    if isinstance(A, LinearFunction):
        return constant_folded(A.matrix())
    raise UnsupportedOperation(
        f"{A!r} shows its products only, and this preconditioner is made of entries. Give the matrix, or use "
        "'chebyshev', or a function r -> M r of your own."
    )


def constant_folded(matrix: Matrix) -> Matrix:
    """Matrix with its constant-folded values, such as tensors that a compiled function closes over.

    For preconditioners and factors, which are constants to derivatives: x is differentiated by A itself.
    """
    if not isinstance(matrix, SparseMatrix | Dense) or matrix.constant is not None or not matrix.bk.compiled():
        return matrix
    arrays = matrix.arrays() if isinstance(matrix, SparseMatrix) else (matrix.matrix,)
    found = [matrix.bk.constant_folded(array) for array in arrays]
    if any(value is None for value in found):
        return matrix
    if isinstance(matrix, Dense):
        return Dense(matrix.bk, matrix.matrix, found[0])
    return matrix.holding(found)


def is_known(matrix: Matrix) -> bool:
    """Are its values concrete, also while tracing? Without converting it."""
    arrays, _ = matrix.for_host()
    return not arrays or not matrix.bk.compiled(*arrays)


def in_scipy(matrix: Matrix) -> sp.csr_array | tuple[sp.csr_array, ...] | None:
    """Canonical CSR of known values, a tuple for several systems; else None."""
    known: Any = matrix.known()
    if known is None:
        return None
    return canonical(known) if matrix.systems is None else tuple(map(canonical, known))


def from_host(M: Operator, matrix: Matrix) -> Operator:
    """Convert an operator made by NumPy to the matrix's library and device; still concrete while tracing."""
    if matrix.bk.on_host:
        return M
    moved = M.on_backend(matrix.bk, anchor(matrix))
    if moved is None:
        raise UnsupportedOperation(f"{M!r} has no way to {matrix.bk.name}.")
    return moved


def grid_of(matrix: Matrix, A: Operator, grid: Any) -> tuple[int, ...]:
    """The grid of the unknowns: as given, or as A or its matrix declares it.

    Raises:
        ValueError: what was given is none of as many points.
    """
    if grid is None:
        shape = A.in_shape if len(A.in_shape) > 1 else matrix.in_shape
        return shape if all(isinstance(k, int) for k in shape) else (A.shape[0],)  # no container of arrays
    found = check_grid(grid)
    if math.prod(found) != A.shape[0]:
        raise ValueError(f"grid={found} has {math.prod(found)} points; expected {A.shape[0]}, the number of unknowns.")
    return found


def grid_for(matrix: Matrix, A: Operator, grid: Any = None) -> tuple[int, ...]:
    """The grid of the unknowns, detected from the entries where it is not declared; see `on_its_grid`."""
    found = grid_of(matrix, A, grid)
    return on_its_grid(matrix).in_shape if len(found) == 1 and grid is None else found


def concrete(A: Operator) -> Operator:
    """A matrix of known values on NumPy arrays; else A itself."""
    if A.bk.on_host or not isinstance(A, Matrix):
        return A
    if not (is_known(A) if isinstance(A, SparseMatrix) else A.known() is not None):
        return A
    arrays, make = A.for_host()
    return make([A.bk.to_numpy(array) for array in arrays])


def concrete_entries(matrix: Matrix) -> tuple[Backend, np.ndarray, np.ndarray, Array]:
    """Library, rows, columns and values `(systems or 1, nnz)` of the entries, in row order.

    Values are NumPy's where they are known.
    """
    own: Any = concrete(matrix)
    if isinstance(own, SparseMatrix):
        rows, cols, _ = own.structure.entries()
        values = own.entry_values()
    elif not isinstance(own, Dense):
        raise places_unknown("This preconditioner")
    else:
        rows, cols = (i.reshape(-1) for i in np.indices(own.shape, np.int32))
        values = own.bk.reshape(
            own.dense(), (*(() if own.systems is None else (own.systems,)), own.shape[0] * own.shape[1])
        )
    return own.bk, rows, cols, values if own.systems is not None else values[None]


def pattern(matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries, in row order, without those known to be 0 in all systems."""
    bk, rows, cols, values = concrete_entries(matrix)
    if not bk.on_host:
        return rows, cols
    kept = (values != 0).any(axis=0)
    return rows[kept], cols[kept]


def placed(array: Array, A: Operator) -> Array:
    """Place an array made by NumPy beside A; still NumPy's while tracing."""
    if A.bk.on_host or A.bk.compiled() or not isinstance(array, np.ndarray):
        return array
    like = anchor(A) if isinstance(A, Matrix) else getattr(A, "like", None)
    return A.bk.asarray(array, like=like)


def linear(A: Operator) -> Operator:
    """The linear part of A: an affine function minus its value at zero.

    Raises:
        NonlinearError: a function that is neither.
    """
    A = A.without_offset
    return linear_part(A) if isinstance(A, FunctionOperator) else A


def kept(A: Operator) -> Operator:
    """A with a private copy of a matrix's values, since the caller may overwrite them."""
    if isinstance(A, SparseMatrix):
        return _with_values(A, A.host.copy)
    if isinstance(A, Dense):
        return Dense(A.bk, A.bk.copy(A.matrix), None if A.constant is None else A.constant.copy())
    return A


def without_derivatives(A: Operator) -> Operator:
    """A matrix with values detached from derivatives, for a preconditioner made of it; others unchanged."""
    if isinstance(A, SparseMatrix) and A.constant is None:
        return _with_values(A, A.bk.constant)
    if isinstance(A, Dense) and A.constant is None:
        return Dense(A.bk, A.bk.constant(A.matrix))
    return A


def _with_values(A: SparseMatrix, function: Callable[[Array], Array]) -> SparseMatrix:
    return A.holding([function(values) for values in A.known_or_arrays()])


def anchor(matrix: Matrix) -> Array | None:
    """An array on the matrix's device, or None where it does not matter."""
    if isinstance(matrix, SparseMatrix):
        return matrix.anchor()
    if not isinstance(matrix, Dense):
        raise places_unknown("This preconditioner")
    return matrix.matrix if matrix.bk.device(matrix.matrix) is not None else None


def stored_entries(A: Operator) -> int | None:
    """Number of stored entries, the unit of costs; None if A is no matrix."""
    A = A.without_offset
    return A.nnz if isinstance(A, Matrix) else None
