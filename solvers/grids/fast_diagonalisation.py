"""The inverse of a sum of matrices along the axes of a grid, by the eigenvectors along each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...backends import Array, get_backend
from ...sparse import Composed, Dense, Matrix, Operator, UnsupportedOperation, storable
from ..preconditioners.diagonal import DiagonalOperator
from ..preconditioners.known import as_matrix, from_host, is_known
from .eigenvectors import eigen
from .separable import Separable, separable

_MOST_PER_UNKNOWN, _MOST = 4, 10**6  # numbers of all eigenvectors
_LAPACK = 64 * float(np.finfo(float).eps)  # relative to the largest eigenvalue


@storable("along an axis")
@dataclass(eq=False, repr=False)
class AlongAxis(Composed):
    """`vectors @ inner @ inverse` with the outer two along one axis of the grid.

    Attributes:
        inner: of all unknowns.
        vectors, inverse: `(n_k, n_k)`.
        grid: lengths of the axes.
        axis: which of them.
    """

    parts = ("inner", "vectors", "inverse")

    inner: Operator
    vectors: Dense
    inverse: Dense
    grid: tuple[int, ...]
    axis: int

    def apply(self, x: Array) -> Array:
        return self._along(self.vectors, self.inner.apply(self._along(self.inverse, x)))

    def _along(self, matrix: Dense, x: Array) -> Array:
        """The matrix times each line, for rows `(batch, n)`."""
        bk, n = self.bk, self.grid[self.axis]
        before = int(x.shape[0]) * math.prod(self.grid[: self.axis])
        after = math.prod(self.grid[self.axis + 1 :])
        if after == 1:
            image = bk.product(matrix.matrix, bk.reshape(x, (before, n)))
        elif before == 1:  # the transpose is a view for libraries that hand it to BLAS
            image = bk.product(bk.matrix_transpose(bk.reshape(x, (n, after))), matrix.matrix)
        else:
            lines = bk.permute_dims(bk.reshape(x, (before, n, after)), (0, 2, 1))
            image = bk.product(matrix.matrix, bk.reshape(lines, (before * after, n)))
            image = bk.permute_dims(bk.reshape(image, (before, after, n)), (0, 2, 1))
        return bk.reshape(image, tuple(x.shape))

    def transpose(self) -> AlongAxis:
        inner = self.inner.transpose()
        return AlongAxis(inner, self.inverse.transpose(), self.vectors.transpose(), self.grid, self.axis)


def fast_inverse(A: Operator) -> Operator:
    """The inverse of A; where A is singular, of what is not in its null space.

    Raises:
        UnsupportedOperation: the values of A are not known now, or it is no sum of matrices along the axes of a grid.

    Cost: see `separable` and `eigen`; stores n numbers and `2 n_k^2` for each axis.

    Source: Lynch, Rice, Thomas, Numer. Math. 6 (1964), 185-199.
    """
    if A.offset:
        raise _refusal("matrix_offset is added to all its entries; a singular matrix needs none here")
    matrix = _matrix_of(A)
    lengths, n = matrix.in_shape, matrix.shape[0]
    if sum(k * k for k in lengths) > _MOST_PER_UNKNOWN * n + _MOST:
        raise _refusal(f"the grid {lengths} has an axis so long that its eigenvectors do not pay")
    if not is_known(matrix):
        raise _refusal(
            "its values are computed in the compiled function; give coefficients that are known before, as numbers or "
            "arrays that it closes over"
        )
    if not n:
        return from_host(DiagonalOperator(get_backend("numpy"), np.ones((1, 0), matrix.dtype)), matrix)
    arrays, make = matrix.for_host()
    found = separable(matrix, make([matrix.bk.to_numpy(array) for array in arrays]))
    if isinstance(found, str):
        raise _refusal(found)
    return from_host(_inverse(found, matrix.dtype), matrix)


def _inverse(parts: Separable, dtype: np.dtype) -> Operator:
    wide, eps, found = np.result_type(dtype, np.float64), float(np.finfo(dtype).eps), []
    values: np.ndarray = np.asarray(parts.shift, wide)
    for axis, A in enumerate(parts.along):
        one = eigen(A.astype(wide), eps)
        if one is None:
            raise _refusal(f"its part along axis {axis} is neither Hermitian nor made so by a scaling of its rows")
        found.append(one)
        shape = [1] * len(parts.grid)
        shape[axis] = len(one.values)
        values = values + one.values.reshape(shape)
    small = _are_zero(values, parts, eps)
    reciprocal = np.where(small, 0, 1 / np.where(small, 1, values)).astype(dtype, copy=False)
    inverse: Operator = DiagonalOperator(get_backend("numpy"), reciprocal.reshape(1, -1))
    for axis, one in reversed(list(enumerate(found))):
        vectors, inverse_vectors = (_dense(m.astype(dtype, copy=False)) for m in one[1:])
        inverse = AlongAxis(inverse, vectors, inverse_vectors, parts.grid, axis)
    return inverse


def _dense(matrix: np.ndarray) -> Dense:
    return Dense(get_backend("numpy"), matrix, matrix)


def _are_zero(values: np.ndarray, parts: Separable, eps: float) -> np.ndarray:
    """Which eigenvalues of a singular matrix are zero, but for rounding.

    Those that only the matrix's own rounding may have made are so if there is one of them, and A maps constants to
    zero, too.

    Raises:
        UnsupportedOperation: there are others, as of very different axes in single precision.
    """
    sizes = np.abs(values)
    largest = np.max(sizes, initial=0)
    zero, unsure = sizes <= _LAPACK * largest, sizes <= eps * largest
    count = np.count_nonzero(unsure & ~zero)
    if not count:
        return zero
    ones = np.ones(parts.grid)
    absolute = Separable(parts.grid, tuple(abs(A) for A in parts.along), abs(parts.shift)).apply(ones)
    if count == 1 and not zero.any() and bool(np.all(np.abs(parts.apply(ones)) <= 8 * eps * absolute)):
        return unsure
    raise _refusal(
        f"{count} of its eigenvalues cannot be told from zero in this precision: the smallest is "
        f"{np.min(sizes[~zero]):.1e}, the largest {largest:.1e}. Use double precision"
    )


def _matrix_of(A: Operator) -> Matrix:
    try:
        return as_matrix(A)
    except UnsupportedOperation as error:
        raise _refusal(
            "its matrix is not found here, as inside of transformations of PyTorch; give the matrix, or a solver of "
            f"krylix.prepare ({str(error).split('. ')[0]})"
        ) from error


def _refusal(why: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A fast direct solve needs A = sum of matrices along the axes of a grid, as a Laplacian with constant "
        f"coefficients is, but {why}. Use CG with a preconditioner, or scipy-direct."
    )
