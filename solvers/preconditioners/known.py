"""What is known while a function is compiled, and stays known in what is made of it.

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
from ...sparse.canonical import canonical
from ...sparse.formats.traced_coo import places_unknown
from ...sparse.linearity import linear_part
from ...sparse.operators.function import FunctionOperator
from ...sparse.operators.linear_function import LinearFunction
from ...sparse.symmetry import PRODUCTS, REFUSED, asymmetry, is_hermitian
from ..grids.find import on_its_grid
from .checks import check_grid


def known_or_diagonals(A: Operator) -> tuple[Backend, Array]:
    """`A.diagonals()` with the library that computes with it: NumPy in a compiled function where it is known."""
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
    """With known values where these are the same whenever a compiled function runs, as of tensors that it closes over.

    For what is constant to derivatives, as preconditioners and factors are: the solution is differentiated by A itself.
    """
    if not isinstance(matrix, SparseMatrix | Dense) or matrix.constant is not None or not matrix.bk.compiled():
        return matrix
    arrays = matrix.arrays() if isinstance(matrix, SparseMatrix) else (matrix.matrix,)
    found = [matrix.bk.constant_folded(array) for array in arrays]
    if any(value is None for value in found):
        return matrix
    if isinstance(matrix, Dense):
        return Dense(matrix.bk, matrix.matrix, found[0])
    return matrix._with(matrix.stored.with_values(found))


def is_known(matrix: Matrix) -> bool:
    """Has it values now, or while a function is compiled? Without converting it."""
    arrays, _ = matrix.for_host()
    return not arrays or not matrix.bk.compiled(*arrays)


def in_scipy(matrix: Matrix) -> sp.csr_array | tuple[sp.csr_array, ...] | None:
    """Where the values are known now: canonical CSR, of several systems a tuple; else None."""
    known: Any = matrix.known()
    if known is None:
        return None
    return canonical(known) if matrix.systems is None else tuple(map(canonical, known))


def from_host(M: Operator, matrix: Matrix) -> Operator:
    """What NumPy made of a known matrix, in that matrix's library and on its device; still known if that compiles."""
    if matrix.bk.on_host:
        return M
    moved = M.on_backend(matrix.bk, anchor(matrix))
    if moved is None:
        raise UnsupportedOperation(f"{M!r} has no way to {matrix.bk.name}.")
    return moved


def grid_of(matrix: Matrix, A: Operator, grid: Any) -> tuple[int, ...]:
    """The grid that the unknowns lie on: as given, or as A or its matrix knows it.

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
    """Likewise; where nobody knows it, the one that the entries of the matrix show, see `on_its_grid`."""
    found = grid_of(matrix, A, grid)
    return on_its_grid(matrix).in_shape if len(found) == 1 and grid is None else found


def concrete(A: Operator) -> Operator:
    """A on NumPy arrays where it is a matrix whose values are known now; else A itself."""
    if A.bk.on_host or not isinstance(A, Matrix):
        return A
    if not (is_known(A) if isinstance(A, SparseMatrix) else A.known() is not None):
        return A
    arrays, make = A.for_host()
    return make([A.bk.to_numpy(array) for array in arrays])


def concrete_entries(matrix: Matrix) -> tuple[Backend, np.ndarray, np.ndarray, Array]:
    """Rows and columns of the entries, in row order, their values `(systems, nnz)`, or `(1, nnz)`, and whose these are.

    They are NumPy's where they are known now.
    """
    own: Any = concrete(matrix)
    if isinstance(own, SparseMatrix):
        rows, cols, _ = own.structure.entries()
        values = own.stored.entry_values()
    elif not isinstance(own, Dense):
        raise places_unknown("This preconditioner")
    else:
        rows, cols = (i.reshape(-1) for i in np.indices(own.shape, np.int32))
        values = own.bk.reshape(
            own.dense(), (*(() if own.systems is None else (own.systems,)), own.shape[0] * own.shape[1])
        )
    return own.bk, rows, cols, values if own.systems is not None else values[None]


def pattern(matrix: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries, in row order: of those that are not known to be 0 in all systems."""
    bk, rows, cols, values = concrete_entries(matrix)
    if not bk.on_host:
        return rows, cols
    kept = (values != 0).any(axis=0)
    return rows[kept], cols[kept]


def placed(array: Array, A: Operator) -> Array:
    """What NumPy made of a known matrix, as an array beside A; still NumPy's where a function is compiled."""
    if A.bk.on_host or A.bk.compiled() or not isinstance(array, np.ndarray):
        return array
    like = anchor(A) if isinstance(A, Matrix) else getattr(A, "like", None)
    return A.bk.asarray(array, like=like)


def linear(A: Operator) -> Operator:
    """The linear part of A: an affine function, as of a boundary with values, without what it makes of zero.

    Raises:
        NonlinearError: a function that is neither.
    """
    A = A.without_offset
    return linear_part(A) if isinstance(A, FunctionOperator) else A


def kept(A: Operator) -> Operator:
    """A with values of its own, where it is a matrix: the caller may write to those that A was made of."""
    if isinstance(A, SparseMatrix):
        return _with_values(A, A.stored.host.copy)
    if isinstance(A, Dense):
        return Dense(A.bk, A.bk.copy(A.matrix), None if A.constant is None else A.constant.copy())
    return A


def without_derivatives(A: Operator) -> Operator:
    """A matrix whose values are constants to derivatives, as a preconditioner made of it is; all else as it is."""
    if isinstance(A, SparseMatrix) and A.constant is None:
        return _with_values(A, A.bk.constant)
    if isinstance(A, Dense) and A.constant is None:
        return Dense(A.bk, A.bk.constant(A.matrix))
    return A


def _with_values(A: SparseMatrix, function: Callable[[Array], Array]) -> SparseMatrix:
    return A._with(A.stored.with_values([function(values) for values in A.stored.known_or_arrays()]))


def anchor(matrix: Matrix) -> Array | None:
    """An array on the matrix's device, if that matters."""
    if isinstance(matrix, SparseMatrix):
        return matrix.stored.anchor()
    if not isinstance(matrix, Dense):
        raise places_unknown("This preconditioner")
    return matrix.matrix if matrix.bk.device(matrix.matrix) is not None else None


def is_known_hermitian(A: Operator) -> bool | None:
    """Is A Hermitian, entry by entry up to rounding, or far from it? None: neither, or they are not known now."""
    relative = asymmetry(A.without_offset)
    if relative is None or not relative < REFUSED:
        return None if relative is None or np.isnan(relative) else False
    known = A.without_offset.known()
    if not all(map(_has_entries, known if isinstance(known, tuple) else (known,))):
        return True if relative < PRODUCTS * np.finfo(A.dtype).eps else None
    return True if all(map(is_hermitian, known if isinstance(known, tuple) else (known,))) else None


def _has_entries(known: Any) -> bool:
    return sp.issparse(known) or isinstance(known, np.ndarray)


def stored_entries(A: Operator) -> int | None:
    """Stored entries, with which costs are compared; None where A is no matrix."""
    A = A.without_offset
    return A.nnz if isinstance(A, Matrix) else None
