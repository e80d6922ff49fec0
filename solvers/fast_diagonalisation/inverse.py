"""Fast diagonalisation: the inverse of a Kronecker sum by eigenvectors along each axis."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...backends import Backend, get_backend
from ...sparse import Dense, Matrix, Operator, UnsupportedOperation
from ...sparse.analysis.analysis import on_its_grid
from ...sparse.analysis.rounding import of_region
from ...sparse.operators.concrete import as_matrix, from_host, is_known
from ..diagonal import DiagonalOperator
from .eigenvectors import TrigonometricEigenvectors, eigen, trigonometric_eigenvectors
from .elimination import Eliminated, eliminated, extremes, pays
from .reciprocals import Reciprocal, Rule, Values, extremes_of, sums_in_parts
from .separable import Separable, on_axis, separable
from .spectral_inverse import spectral_inverse
from .transforms import AlongAxis, AlongTrigonometric, Periodic
from .trigonometric import fast_cost, is_fast
from .trigonometric import transform_matrix as waves_as_matrix

_MOST_PER_UNKNOWN, _MOST = 4, 10**6  # numbers of all eigenvectors
_DEVICES = 16  # parts of a vector, one of which is larger than eigenvectors that a fast transform could do without
_SURE = 1e-9  # of the largest eigenvalue: the smallest, that pivots show with digits to spare
_LAPACK = 64 * float(np.finfo(float).eps)  # relative to the largest eigenvalue


def fast_inverse(A: Operator) -> Operator:
    """The inverse of A; of a singular A the pseudo-inverse.

    Raises:
        UnsupportedOperation: the values of A are not known now, or it is no sum of matrices along the axes of a grid.

    Cost: see `separable`, `trigonometric_eigenvectors` and `eigen`; stores n numbers, and `2 n_k^2` for each
    axis without a fast transform.

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
    return from_host(inverse_of_sum(found, matrix.dtype, matrix.bk, _pseudo_inverse).operator, matrix)


class Inverse(NamedTuple):
    """Inverse of a Kronecker sum, in NumPy.

    Attributes:
        operator: the inverse.
        least: the smallest eigenvalue, as `inverse` of `inverse_of_sum` counts it.
    """

    operator: Operator
    least: float


class _Axis(NamedTuple):
    """Eigenvalues `base + values` of one axis, and its eigenvectors: a trigonometric transform, or matrices.

    Attributes:
        waves: eigenvectors by formula, if there is one.
        vectors, inverse: `(n_k, n_k)`; None where a fast transform is used.
    """

    base: Any
    values: np.ndarray
    waves: TrigonometricEigenvectors | None
    vectors: Any = None
    inverse: Any = None

    @property
    def kind(self) -> str | None:
        """Kind of the fast transform, if it is used."""
        return self.waves.kind if self.waves is not None and self.vectors is None else None


def inverse_of_sum(
    parts: Separable,
    dtype: np.dtype,
    bk: Backend,
    rule: Rule,
    size: float = 1.0,
) -> Inverse:
    """The inverse of `size` times the sum.

    Where a library may spread arrays over devices it is a `SpectralInverse`, which needs no numbers of the size of a
    vector.

    Args:
        rule: not called where lines of a definite matrix are eliminated along the first axis.

    Raises:
        UnsupportedOperation: the eigenvectors along an axis would need too much memory, or there are none.
    """
    wide, eps = np.result_type(np.float64, parts.shift, *(A.dtype for A in parts.along)), float(np.finfo(dtype).eps)
    along = [A.astype(wide) for A in parts.along]
    unknowns = math.prod(parts.grid)
    room = _MOST_PER_UNKNOWN * unknowns + _MOST
    formulas = unknowns // _DEVICES if bk.spreads_arrays() else room
    axes: list[_Axis] = []
    for A in along[1:]:
        axes.append(_along(A, len(axes) + 1, eps, bk, room, formulas))
        room -= 0 if axes[-1].vectors is None else A.shape[0] ** 2
    spectra = [on_axis(one.values, axis, len(along)) for axis, one in enumerate(axes, 1)]
    bases, shift = [one.base for one in axes], np.asarray(parts.shift, wide)
    rings = any(one.kind == "periodic" for one in axes)  # whose transforms leave half of the frequencies
    found = None if rings else _eliminated(along[0], sum(spectra, sum(bases, shift)), dtype, bk)
    if found is not None:
        lines, least = found
        lines = replace(lines, before=lines.before / lines.dtype.type(size))
        return Inverse(_nested(lines, parts.grid, [None, *axes], bk), least)
    first = _along(along[0], 0, eps, bk, room, formulas)
    total = sum(bases, shift + first.base)
    if bk.spreads_arrays():
        return _spectral([first, *axes], total, parts, rule, size, dtype)
    values = sum(spectra, total + on_axis(first.values, 0, len(along)))
    reciprocal, least = rule(lambda: [values], parts, eps)
    reciprocal.invert(values)
    values /= size
    return Inverse(_nested(values.astype(dtype, copy=False), parts.grid, [first, *axes], bk), least)


def _eliminated(A: Any, others: np.ndarray, dtype: np.dtype, bk: Backend) -> tuple[Eliminated, float] | None:
    """Elimination along the first axis and the smallest eigenvalue, if A is definite and that is the quickest."""
    n, eps = A.shape[0], float(np.finfo(dtype).eps)
    if not others.size or others.dtype.kind != "f":
        return None
    known = trigonometric_eigenvectors(A, eps)
    if not pays(bk, others.size, n if known is None else min(n, fast_cost(bk, known.kind, n))):
        return None
    ends = extremes(A, known)
    if ends is None:
        return None
    low, high = ends[0] + float(np.min(others)), ends[1] + float(np.max(others))
    sign, least = (1, low) if low > 0 else (-1, -high)
    if not least > max(_SURE, eps) * max(abs(low), abs(high)):
        return None
    lines = eliminated(A, others, sign, dtype)
    return None if lines is None else (lines, least)


def _spectral(axes: list[_Axis], total: Any, parts: Separable, rule: Rule, size: float, dtype: np.dtype) -> Inverse:
    spectra = [one.values for one in axes]
    reciprocal, least = rule(partial(sums_in_parts, spectra, total), parts, float(np.finfo(dtype).eps))
    matrices = [part for one in axes if one.kind is None for part in (one.vectors, one.inverse)]
    kinds = [one.kind or "matrix" for one in axes]
    scaled = [values * size for values in spectra]
    return Inverse(spectral_inverse(scaled, total * size, kinds, matrices, reciprocal.times(size), dtype), least)


def _pseudo_inverse(values: Values, parts: Separable, eps: float) -> tuple[Reciprocal, float]:
    """Zeros in the place of reciprocals of zero; the smallest eigenvalue is not needed by a solve."""
    limit, other = _zeros(values, parts, eps)
    return Reciprocal(max(limit, other / 2)) if limit >= 0 else Reciprocal(), 0.0


def _along(A: Any, axis: int, eps: float, bk: Backend, room: int, formulas: int) -> _Axis:
    """Eigendecomposition along one axis.

    Fast transforms of the library are used where they are quicker than dense products.

    Args:
        room: the most numbers of eigenvectors.
        formulas: of those that a fast transform could do without.
    """
    n, found = A.shape[0], trigonometric_eigenvectors(A, eps)
    if found is not None:
        if is_fast(bk, found.kind, n) or n * n > min(room, formulas):
            return _Axis(found.base, found.values, found)
        matrix = waves_as_matrix(found.kind, n)
        return _Axis(found.base, found.values, found, matrix.T, matrix)
    if n * n > room:
        raise _refusal(f"axis {axis} has {n} points, so many that eigenvectors without a formula do not pay")
    one = eigen(A, eps)
    if one is None:
        raise _refusal(f"its part along axis {axis} is neither Hermitian nor made so by a scaling of its rows")
    return _Axis(0, one.values, None, one.vectors, one.inverse)


def _nested(core: Eliminated | np.ndarray, grid: tuple[int, ...], axes: list[_Axis | None], bk: Backend) -> Operator:
    """Nest the transforms, from the outside: dense, trigonometric, Fourier, around the core.

    Args:
        core: reciprocal eigenvalues on the grid; or the elimination along the first axis.
    """
    dtype = core.dtype
    around: list[Any] = []  # wrappers of the inner operator
    order = list(range(len(grid)))  # order of the axes after swaps
    for axis, one in enumerate(axes):
        if one is not None and one.vectors is not None:
            v, i = (_dense(m.astype(dtype, copy=False)) for m in (one.vectors, one.inverse))
            around.append(lambda A, v=v, i=i, axis=axis: AlongAxis(A, v, i, grid, axis))
    for kind, which in _by_kind(axes, bk.fourier.along_any_axis):
        now, places = tuple(grid[k] for k in order), tuple(order.index(axis) for axis in which)
        swapped = not bk.fourier.along_any_axis and places != (len(grid) - 1,)
        around.append(lambda A, k=kind, g=now, p=places, s=swapped: AlongTrigonometric(A, k, g, p, s))
        if swapped:
            order[places[0]], order[-1] = order[-1], order[places[0]]
    inverse = _core(core, grid, axes, order)
    for wrap in reversed(around):
        inverse = wrap(inverse)
    return inverse


def _core(core: Eliminated | np.ndarray, grid: tuple[int, ...], axes: list[_Axis | None], order: list[int]) -> Operator:
    """The core for axes in this order; an eliminated first axis stays in place."""
    if isinstance(core, Eliminated):
        lines = core.pivots.reshape(grid).transpose(order)
        return replace(core, pivots=np.ascontiguousarray(lines).reshape(core.pivots.shape))
    values = np.ascontiguousarray(core.transpose(order)).reshape(1, -1)
    periodic = tuple(k for k, axis in enumerate(order) if _kind(axes[axis]) == "periodic")
    diagonal = DiagonalOperator(get_backend("numpy"), values)
    return Periodic(diagonal, tuple(grid[k] for k in order), periodic) if periodic else diagonal


def _kind(one: _Axis | None) -> str | None:
    return None if one is None else one.kind


def _by_kind(axes: list[_Axis | None], together: bool) -> list[tuple[str, tuple[int, ...]]]:
    """Axes of trigonometric transforms, last first; grouped by kind where the library transforms several at once."""
    found: dict[Any, tuple[str, tuple[int, ...]]] = {}
    for axis, kind in reversed(list(enumerate(map(_kind, axes)))):
        if kind is not None and kind != "periodic":
            key = kind if together else axis
            found[key] = kind, (axis, *found.get(key, (kind, ()))[1])
    return list(found.values())


def _dense(matrix: np.ndarray) -> Dense:
    return Dense(get_backend("numpy"), matrix, matrix)


def _zeros(values: Values, parts: Separable, eps: float) -> tuple[float, float]:
    """The largest magnitude of an eigenvalue that is zero up to rounding, -1 without any, and the least of others.

    One at the level of the matrix's own rounding counts if it is the only one, and A maps constants to zero.

    Raises:
        UnsupportedOperation: there are others, as of very different axes in single precision.
    """
    if all(part.dtype.kind == "f" for part in values()):  # mostly definite, which takes no array of absolute values
        low, high = extremes_of(values)
        if min(abs(low), abs(high)) > max(_LAPACK, eps) * max(abs(low), abs(high)) and (low > 0) == (high > 0):
            return -1.0, 0.0
    largest = max(float(np.max(np.abs(part), initial=0)) for part in values())
    rounding = of_region(parts.dtype) * parts.most_allowed
    top = max(_LAPACK * largest, rounding)
    of_small = np.concatenate([sizes[sizes <= top] for sizes in map(np.abs, values())])
    zero = of_small <= _LAPACK * largest
    count = np.count_nonzero((of_small <= rounding) & ~zero)
    if count and not (count == 1 and not zero.any() and parts.maps_constants_to_zero):
        raise _refusal(
            f"{count} of its eigenvalues cannot be told from zero in this precision: the smallest is "
            f"{np.min(of_small[~zero]):.1e}, the largest {largest:.1e}. Use double precision"
        )
    limit = float(np.max(of_small if count else of_small[zero], initial=-1.0))
    return limit, min(float(np.min(a, where=a > limit, initial=largest)) for a in map(np.abs, values()))


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
