"""The inverse of a sum of matrices along the axes of a grid, by the eigenvectors along each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...backends import Array, get_backend
from ...sparse import Composed, Dense, Operator, UnsupportedOperation, storable
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
    matrix = as_matrix(A)
    lengths, n = matrix.in_shape, matrix.shape[0]
    if sum(k * k for k in lengths) > _MOST_PER_UNKNOWN * n + _MOST:
        raise _refusal(f"the grid {lengths} has an axis so long that its eigenvectors do not pay")
    if not is_known(matrix):
        raise _refusal("its values are computed in the compiled function; give coefficients that are known before")
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
    # of a singular matrix: what its rounding and LAPACK's leave of zero. The smoothest waves of n points are 1 / n^2.
    zero = max(eps, _LAPACK) * np.max(np.abs(values), initial=0)
    small = np.abs(values) <= zero
    reciprocal = np.where(small, 0, 1 / np.where(small, 1, values)).astype(dtype, copy=False)
    inverse: Operator = DiagonalOperator(get_backend("numpy"), reciprocal.reshape(1, -1))
    for axis, one in reversed(list(enumerate(found))):
        vectors, inverse_vectors = (_dense(m.astype(dtype, copy=False)) for m in one[1:])
        inverse = AlongAxis(inverse, vectors, inverse_vectors, parts.grid, axis)
    return inverse


def _dense(matrix: np.ndarray) -> Dense:
    return Dense(get_backend("numpy"), matrix, matrix)


def _refusal(why: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A fast direct solve needs A = sum of matrices along the axes of a grid, as a Laplacian with constant "
        f"coefficients is, but {why}. Use CG with a preconditioner, or scipy-direct."
    )
