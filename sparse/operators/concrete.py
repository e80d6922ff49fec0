"""Concrete values of matrices, also in compiled functions: matrices that depend on no argument stay NumPy's.

In `jax.jit` and `tf.function` a matrix that does not depend on an argument has its values as NumPy arrays. What is made
of them by NumPy is made once, when the function is compiled, however often it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ..analysis.analysis import on_its_grid
from ..analysis.canonical import canonical
from ..analysis.grid import shift_of
from ..errors import UnsupportedOperation
from ..formats import DIA, Dense, Matrix, SparseMatrix, Stencil
from ..formats.traced_coo import places_unknown
from ..operator import Operator
from .function import LinearFunction


def as_matrix(A: Operator) -> Matrix:
    """A as a matrix, with its constant-folded values; a function is traced.

    Raises:
        UnsupportedOperation: its entries cannot be found.
        NonlinearError: the function is not linear.
    """
    A = A.without_offset
    if isinstance(A, Matrix):
        return constant_folded(A)
    if isinstance(A, LinearFunction):
        return constant_folded(A.matrix())
    raise UnsupportedOperation(f"{A!r} shows its products only, and its entries are needed.")


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


def for_compiled_products(A: Matrix) -> Matrix:
    """A known matrix in the form that is cheapest in a compiled program."""
    own = constant_folded(A) if A.bk.has_pure_arrays else A  # of others, derivatives may be asked for later
    return with_numbers(own) if A.bk.fuses_elementwise else own


def with_numbers(matrix: Matrix) -> Matrix:
    """A DIA matrix as a stencil with constant coefficients, if each diagonal is constant on the grid; else itself.

    Shapes stay as they are. Cost: up to one pass over the values.
    """
    if not isinstance(matrix, DIA) or matrix.constant is None or matrix.systems is not None:
        return matrix
    grid = on_its_grid(matrix).in_shape
    if matrix.shape[0] != matrix.shape[1] or len(grid) < 2:
        return matrix
    structure: Any = matrix.structure
    numbers, shifts = [], []
    for offset, values in zip(structure.offsets, matrix.constant[0]):
        shift = shift_of(offset, grid)
        number = None if shift is None else _number(values.reshape(grid), shift)
        if number is None:
            return matrix
        numbers.append(number)
        shifts.append(shift)
    found: Any = Stencil(numbers, shifts, grid)
    moved = found if matrix.bk.on_host else found.on_backend(matrix.bk, matrix.anchor())
    return moved.on_grids(
        matrix._in_shape, matrix._out_shape, f"{len(numbers)} diagonals with a number each on the grid {grid}"
    )


def _number(values: np.ndarray, shift: tuple[int, ...]) -> np.ndarray | None:
    """The constant of a diagonal on the points whose neighbour is on the grid, if it is 0 elsewhere; else None."""
    inside = values[tuple(slice(max(0, -s), n - max(0, s)) for s, n in zip(shift, values.shape))]
    number = inside[(0,) * inside.ndim]
    same = bool(np.all(inside == number)) and np.count_nonzero(values) == (inside.size if number else 0)
    return np.asarray(number) if same else None


def is_known(matrix: Matrix) -> bool:
    """Are its values concrete, also while tracing? Without converting it."""
    arrays, _ = matrix.for_host()
    return not arrays or not matrix.bk.compiled(*arrays)


def concrete(A: Operator) -> Operator:
    """A matrix of known values on NumPy arrays; else A itself."""
    if A.bk.on_host or not isinstance(A, Matrix):
        return A
    if not (is_known(A) if isinstance(A, SparseMatrix) else A.known() is not None):
        return A
    arrays, make = A.for_host()
    return make([A.bk.to_numpy(array) for array in arrays])


def in_scipy(matrix: Matrix) -> sp.csr_array | tuple[sp.csr_array, ...] | None:
    """Canonical CSR of known values, a tuple for several systems; else None."""
    known: Any = matrix.known()
    if known is None:
        return None
    return canonical(known) if matrix.systems is None else tuple(map(canonical, known))


def concrete_entries(matrix: Matrix) -> tuple[Backend, np.ndarray, np.ndarray, Array]:
    """Library, rows, columns and values `(systems or 1, nnz)` of the entries, in row order.

    Values are NumPy's where they are known.
    """
    own: Any = concrete(matrix)
    if isinstance(own, SparseMatrix):
        rows, cols, _ = own.structure.entries()
        values = own.entry_values()
    elif not isinstance(own, Dense):
        raise places_unknown("This operation")
    else:
        rows, cols = (i.reshape(-1) for i in np.indices(own.shape, np.int32))
        values = own.bk.reshape(
            own.dense(), (*(() if own.systems is None else (own.systems,)), own.shape[0] * own.shape[1])
        )
    return own.bk, rows, cols, values if own.systems is not None else values[None]


def nonzero_entries(matrix: Matrix) -> tuple[Backend, np.ndarray, np.ndarray, Array]:
    """`concrete_entries` without those known to be 0 in all systems."""
    bk, rows, cols, values = concrete_entries(matrix)
    if bk.on_host and not (kept := (values != 0).any(axis=0)).all():
        return bk, rows[kept], cols[kept], values[:, kept]
    return bk, rows, cols, values


def from_host(M: Operator, matrix: Matrix) -> Operator:
    """Convert an operator made by NumPy to the matrix's library and device; still concrete while tracing."""
    if matrix.bk.on_host:
        return M
    moved = M.on_backend(matrix.bk, anchor(matrix))
    if moved is None:
        raise UnsupportedOperation(f"{M!r} has no way to {matrix.bk.name}.")
    return moved


def anchor(matrix: Matrix) -> Array | None:
    """An array on the matrix's device, or None where it does not matter."""
    if isinstance(matrix, SparseMatrix):
        return matrix.anchor()
    if not isinstance(matrix, Dense):
        raise places_unknown("This operation")
    return matrix.matrix if matrix.bk.device(matrix.matrix) is not None else None


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
    found = A.holding([function(values) for values in A.known_or_arrays()])
    found.declared = A.declared
    return found
