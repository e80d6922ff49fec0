"""The inverse of a sum of matrices along the axes of a grid, by the eigenvectors along each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backends import Backend, get_backend
from ...sparse import Dense, Matrix, Operator, UnsupportedOperation
from ..preconditioners.diagonal import DiagonalOperator
from ..preconditioners.known import as_matrix, from_host, is_known
from .eigenvectors import eigen, waves
from .find import on_its_grid
from .separable import Separable, separable
from .transforms import AlongAxis, AlongWaves, Periodic
from .waves import as_matrix as waves_as_matrix
from .waves import is_fast

_MOST_PER_UNKNOWN, _MOST = 4, 10**6  # numbers of all eigenvectors
_LAPACK = 64 * float(np.finfo(float).eps)  # relative to the largest eigenvalue


def fast_inverse(A: Operator) -> Operator:
    """The inverse of A; where A is singular, of what is not in its null space.

    Raises:
        UnsupportedOperation: the values of A are not known now, or it is no sum of matrices along the axes of a grid.

    Cost: see `separable`, `waves` and `eigen`; stores n numbers, and `2 n_k^2` for each axis without a fast transform.

    Source: Lynch, Rice, Thomas, Numer. Math. 6 (1964), 185-199.
    """
    if A.offset:
        raise _refusal("matrix_offset is added to all its entries; a singular matrix needs none here")
    matrix = on_its_grid(_matrix_of(A))
    if not is_known(matrix):
        raise _refusal(
            "its values are computed in the compiled function; give coefficients that are known before, as numbers or "
            "arrays that it closes over"
        )
    if not matrix.shape[0]:
        return from_host(DiagonalOperator(get_backend("numpy"), np.ones((1, 0), matrix.dtype)), matrix)
    arrays, make = matrix.for_host()
    found = separable(matrix, make([matrix.bk.to_numpy(array) for array in arrays]))
    if isinstance(found, str):
        raise _refusal(found)
    return from_host(inverse_of_sum(found, matrix.dtype, matrix.bk, _pseudo_inverse), matrix)


class _Axis(NamedTuple):
    """How the lines along an axis are transformed into eigenvectors: by waves of a kind, or by matrices."""

    kind: str | None
    vectors: Any = None  # (n_k, n_k), as the inverse
    inverse: Any = None


def inverse_of_sum(
    parts: Separable, dtype: np.dtype, bk: Backend, inverse: Callable[[np.ndarray, Separable, float], None]
) -> Operator:
    """Of the eigenvalues, `inverse(values, parts, eps)` of which is taken in place, in NumPy's arrays.

    Raises:
        UnsupportedOperation: the eigenvectors along an axis would need too much memory, or there are none.
    """
    wide = np.result_type(dtype, np.float64)
    constants, spectra, axes = [np.asarray(parts.shift, wide)], [], []
    room = _MOST_PER_UNKNOWN * int(np.prod(parts.grid)) + _MOST
    for axis, A in enumerate(parts.along):
        base, values, how = _along(A.astype(wide), axis, float(np.finfo(dtype).eps), bk, room)
        room -= 0 if how.vectors is None else len(values) ** 2
        constants.append(base)
        axes.append(how)
        spectra.append(values.reshape([len(values) if k == axis else 1 for k in range(len(parts.grid))]))
    values = sum(spectra[1:], sum(constants) + spectra[0])
    inverse(values, parts, float(np.finfo(dtype).eps))
    return _nested(values, dtype, axes, bk)


def _pseudo_inverse(values: np.ndarray, parts: Separable, eps: float) -> None:
    zero = _zeros(values, parts, eps)
    values[zero] = 1
    np.divide(1, values, out=values)
    values[zero] = 0


def _along(A: Any, axis: int, eps: float, bk: Backend, room: int) -> tuple[Any, np.ndarray, _Axis]:
    """The eigenvalues, of which the first number is to be added to the others, and the eigenvectors.

    Fast transforms are those of the library, and taken where they are quicker than products with a matrix.
    """
    n, found = A.shape[0], waves(A, eps)
    if found is not None:
        if is_fast(bk, found.kind, n) or n * n > room:
            return found.base, found.values, _Axis(found.kind)
        matrix = waves_as_matrix(found.kind, n)
        return found.base, found.values, _Axis(None, matrix.T, matrix)
    if n * n > room:
        raise _refusal(f"axis {axis} has {n} points, so many that eigenvectors without a formula do not pay")
    one = eigen(A, eps)
    if one is None:
        raise _refusal(f"its part along axis {axis} is neither Hermitian nor made so by a scaling of its rows")
    return 0, one.values, _Axis(None, one.vectors, one.inverse)


def _nested(reciprocals: np.ndarray, dtype: np.dtype, axes: list[_Axis], bk: Backend) -> Operator:
    """From the outside: matrices along axes, sines and cosines, and the periodic axes around the diagonal."""
    grid = reciprocals.shape
    around: list[Any] = []  # functions of what is inside
    order = list(range(len(grid)))  # of the axes, as swaps leave them
    for axis, (kind, *both) in enumerate(axes):
        if kind is None:
            v, i = (_dense(m.astype(dtype, copy=False)) for m in both)
            around.append(lambda A, v=v, i=i, axis=axis: AlongAxis(A, v, i, grid, axis))
    for kind, which in _by_kind(axes, bk.fourier.along_any_axis):
        now, places = tuple(grid[k] for k in order), tuple(order.index(axis) for axis in which)
        swapped = not bk.fourier.along_any_axis and places != (len(grid) - 1,)
        around.append(lambda A, k=kind, g=now, p=places, s=swapped: AlongWaves(A, k, g, p, s))
        if swapped:
            order[places[0]], order[-1] = order[-1], order[places[0]]
    values = np.ascontiguousarray(reciprocals.transpose(order), dtype).reshape(1, -1)
    diagonal = DiagonalOperator(get_backend("numpy"), values)
    periodic = tuple(k for k, axis in enumerate(order) if axes[axis].kind == "periodic")
    inverse: Operator = Periodic(diagonal, tuple(grid[k] for k in order), periodic) if periodic else diagonal
    for wrap in reversed(around):
        inverse = wrap(inverse)
    return inverse


def _by_kind(axes: list[_Axis], together: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Axes with sines and cosines, the last one first; those of one kind together where the library has that."""
    found: dict[Any, tuple[str, tuple[int, ...]]] = {}
    for axis, (kind, *_) in reversed(list(enumerate(axes))):
        if kind is not None and kind != "periodic":
            key = kind if together else axis
            found[key] = kind, (axis, *found.get(key, (kind, ()))[1])
    return list(found.values())


def _dense(matrix: np.ndarray) -> Dense:
    return Dense(get_backend("numpy"), matrix, matrix)


def _zeros(values: np.ndarray, parts: Separable, eps: float) -> tuple[np.ndarray, ...]:
    """Where eigenvalues of a singular matrix are zero, but for rounding.

    Those that only the matrix's own rounding may have made are so if there is one of them, and A maps constants to
    zero, too.

    Raises:
        UnsupportedOperation: there are others, as of very different axes in single precision.
    """
    if values.dtype.kind == "f":  # mostly definite, which takes no array of absolute values
        low, high = np.min(values), np.max(values)
        if min(abs(low), abs(high)) > max(_LAPACK, eps) * max(abs(low), abs(high)) and (low > 0) == (high > 0):
            return (np.zeros(0, np.intp),) * values.ndim
    sizes = np.abs(values)
    largest = np.max(sizes, initial=0)
    small = np.nonzero(sizes <= max(_LAPACK, eps) * largest)
    of_small = sizes[small]
    zero = of_small <= _LAPACK * largest
    count = np.count_nonzero((of_small <= eps * largest) & ~zero)
    if not count:
        return tuple(index[zero] for index in small)
    if count == 1 and not zero.any() and parts.maps_constants_to_zero(8 * eps):
        return small
    raise _refusal(
        f"{count} of its eigenvalues cannot be told from zero in this precision: the smallest is "
        f"{np.min(of_small[~zero]):.1e}, the largest {largest:.1e}. Use double precision"
    )


def _matrix_of(A: Operator) -> Matrix:
    try:
        return as_matrix(A)
    except UnsupportedOperation as error:
        raise _refusal(
            f"{str(error).split('. ')[0].rstrip('.')}: its matrix is not found here; give the matrix, or a solver of "
            "krylix.prepare"
        ) from error


def _refusal(why: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A fast direct solve needs A = sum of matrices along the axes of a grid, as a Laplacian with constant "
        f"coefficients is, but {why}. Use CG with a preconditioner, or scipy-direct."
    )
