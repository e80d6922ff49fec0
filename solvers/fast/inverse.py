"""Fast diagonalisation: the inverse of a Kronecker sum by eigenvectors along each axis.

It has three forms: transforms nested around the reciprocal eigenvalues; transforms around shifted tridiagonal solves by
elimination, which replace two transforms along the first axis (Hockney); and `SpectralInverse` on grids that are
distributed over devices, with all-to-all exchanges between the transforms.

Source: Lynch, Rice, Thomas, Numer. Math. 6 (1964); Hockney, J. ACM 12 (1965); Swarztrauber, SIAM Review 19 (1977).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import Array, Backend, Cut, get_backend
from ...sparse import Composed, Dense, Matrix, Operator, UnsupportedOperation, storable
from ...sparse.analysis.analysis import on_its_grid
from ...sparse.analysis.singular import of_region
from ...sparse.operators.concrete import as_matrix, from_host, is_known
from ..diagonal import DiagonalOperator
from .detect import Separable, on_axis, separable
from .exchanges import AxisCut, Layout, backward, exchanges, forward, piece, whole_axes
from .spectra import (
    AxisSpectrum,
    Reciprocal,
    Rule,
    Values,
    eigen,
    extremes_of,
    nearest_to_zero,
    sums_in_parts,
    trigonometric_eigenvectors,
)
from .transforms import (
    KINDS,
    AlongAxis,
    AlongTrigonometric,
    Periodic,
    fast_cost,
    is_fast,
    transform_matrix,
    trigonometric_transform,
)

_MOST_PER_UNKNOWN, _MOST = 4, 10**6  # most entries of all eigenvectors: per unknown, plus a constant
_DEVICES = 16  # parts of a vector, one of which must be larger than dense eigenvectors that have a fast transform
_SURE = 1e-9  # smallest eigenvalue relative to the largest, for which elimination is accurate
_LAPACK = 64 * float(np.finfo(float).eps)  # error of eigenvalues relative to the largest
_RANGE = 1e6  # largest ratio of the scales that make all couplings -1, far from the limits of single precision
_LEAST = 3  # points of a line
_COST = 100.0  # of both recurrences and their overhead, per unknown in the units of `Fourier.cost`


def fast_inverse(A: Operator) -> Operator:
    """Return the inverse of A, or the pseudo-inverse of a singular A.

    Raises:
        UnsupportedOperation: the values of A are not known, or it is no Kronecker sum along the axes of a grid.

    Cost: see `separable`, `trigonometric_eigenvectors` and `eigen`; stores n numbers, and `2 n_k^2` for each axis
    without a fast transform.

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
    parts = separable(matrix, make([matrix.bk.to_numpy(array) for array in arrays]))
    if isinstance(parts, str):
        raise _refusal(parts)
    return from_host(inverse_of_sum(parts, matrix.dtype, matrix.bk, _pseudo_inverse)[0], matrix)


def inverse_of_sum(
    parts: Separable, dtype: np.dtype, bk: Backend, rule: Rule, size: float = 1.0
) -> tuple[Operator, float]:
    """Return the inverse of `size` times the sum, in NumPy, and the smallest eigenvalue according to the rule.

    If the library may distribute arrays over devices, that is a `SpectralInverse`, which stores no arrays of the
    size of a vector.

    Args:
        rule: reciprocals for eigenvalues; not called if lines are eliminated along the first axis.

    Raises:
        UnsupportedOperation: the eigenvectors along an axis would need too much memory, or do not exist.
    """
    wide, eps = np.result_type(np.float64, parts.shift, *(A.dtype for A in parts.along)), float(np.finfo(dtype).eps)
    along = [A.astype(wide) for A in parts.along]
    unknowns = math.prod(parts.grid)
    room = _MOST_PER_UNKNOWN * unknowns + _MOST
    formulas = unknowns // _DEVICES if bk.spreads_arrays() else room
    axes: list[AxisSpectrum] = []
    waves = [trigonometric_eigenvectors(A, eps) for A in along]
    for k, A in enumerate(along[1:], 1):
        axes.append(_along(A, waves[k], k, eps, bk, room, formulas))
        room -= 0 if axes[-1].vectors is None else A.shape[0] ** 2
    spectra = [on_axis(axis.values, k, len(along)) for k, axis in enumerate(axes, 1)]
    bases, shift = [axis.base for axis in axes], np.asarray(parts.shift, wide)
    rings = any(axis.kind == "periodic" for axis in axes)  # their transforms store half of the frequencies
    elimination = None if rings else _eliminated(along[0], waves[0], sum(spectra, sum(bases, shift)), dtype, bk)
    if elimination is not None:
        lines, least = elimination
        lines = replace(lines, before=lines.before / lines.dtype.type(size))
        return _nested(lines, parts.grid, [None, *axes], bk), least
    first = _along(along[0], waves[0], 0, eps, bk, room, formulas)
    total = sum(bases, shift + first.base)
    if bk.spreads_arrays():
        axes = [first, *axes]
        reciprocal, least = rule(partial(sums_in_parts, [axis.values for axis in axes], total), parts, eps)
        matrices = [matrix for axis in axes if axis.kind is None for matrix in (axis.vectors, axis.inverse)]
        kinds, scaled = [axis.kind or "matrix" for axis in axes], [axis.values * size for axis in axes]
        return spectral_inverse(scaled, total * size, kinds, matrices, reciprocal.times(size), dtype), least
    values = sum(spectra, total + on_axis(first.values, 0, len(along)))
    reciprocal, least = rule(lambda: [values], parts, eps)
    reciprocal.invert(values)
    values /= size
    return _nested(values.astype(dtype, copy=False), parts.grid, [first, *axes], bk), least


def _eliminated(
    A: Any, waves: AxisSpectrum | None, others: np.ndarray, dtype: np.dtype, bk: Backend
) -> tuple[Eliminated, float] | None:
    """Elimination along the first axis and the least eigenvalue; None if A is indefinite or transforms are faster."""
    n, eps = A.shape[0], float(np.finfo(dtype).eps)
    if not others.size or others.dtype.kind != "f":
        return None
    transform = n if waves is None or waves.kind is None else min(n, fast_cost(bk, waves.kind, n))
    if not pays(bk, others.size, transform):
        return None
    ends = extremes(A, waves)
    if ends is None:
        return None
    low, high = ends[0] + float(np.min(others)), ends[1] + float(np.max(others))
    sign, least = (1, low) if low > 0 else (-1, -high)
    if not least > max(_SURE, eps) * max(abs(low), abs(high)):
        return None
    lines = eliminated(A, others, sign, dtype)
    return None if lines is None else (lines, least)


def _pseudo_inverse(values: Values, parts: Separable, eps: float) -> tuple[Reciprocal, float]:
    """Rule of a pseudo-inverse: zero instead of 1 / 0. A solve does not need the smallest eigenvalue."""
    limit, other = _zeros(values, parts, eps)
    return Reciprocal(max(limit, other / 2)) if limit >= 0 else Reciprocal(), 0.0


def _along(
    A: Any, waves: AxisSpectrum | None, axis: int, eps: float, bk: Backend, room: int, formulas: int
) -> AxisSpectrum:
    """Eigendecomposition along one axis, with fast transforms if these are faster than dense products.

    Args:
        waves: as from `trigonometric_eigenvectors`.
        room: most entries of eigenvectors.
        formulas: most entries of eigenvectors that have a fast transform.
    """
    n = A.shape[0]
    if waves is not None and waves.kind is not None:
        if is_fast(bk, waves.kind, n) or n * n > min(room, formulas):
            return waves
        matrix = transform_matrix(waves.kind, n)
        return AxisSpectrum(waves.base, waves.values, None, matrix.T, matrix)
    if n * n > room:
        raise _refusal(f"axis {axis} has {n} points, too many for eigenvectors without a formula")
    spectrum = eigen(A, eps)
    if spectrum is None:
        raise _refusal(f"its part along axis {axis} is neither Hermitian nor made so by a scaling of its rows")
    return spectrum


def _nested(
    core: Eliminated | np.ndarray, grid: tuple[int, ...], axes: list[AxisSpectrum | None], bk: Backend
) -> Operator:
    """Nest dense, trigonometric and Fourier transforms, from the outside, around the core.

    Args:
        core: reciprocal eigenvalues on the grid, or elimination along the first axis, which stays in place.
    """
    host, dtype = get_backend("numpy"), core.dtype
    kinds = [None if axis is None else axis.kind for axis in axes]
    around: list[Any] = []  # wrappers of the inner operator
    order = list(range(len(grid)))  # order of the axes after swaps
    for k, axis in enumerate(axes):
        if axis is not None and axis.vectors is not None:
            v, i = (Dense(host, m, m) for m in (a.astype(dtype, copy=False) for a in (axis.vectors, axis.inverse)))
            around.append(lambda A, v=v, i=i, k=k: AlongAxis(A, v, i, grid, k))
    waves: dict[Any, list[int]] = {}  # axes of trigonometric transforms, last first; those of one kind together if fast
    for k, kind in reversed(list(enumerate(kinds))):
        if kind is not None and kind != "periodic":
            waves.setdefault(kind if bk.fourier.along_any_axis else k, []).insert(0, k)
    for which in waves.values():
        now, places = tuple(grid[k] for k in order), tuple(map(order.index, which))
        swapped = not bk.fourier.along_any_axis and places != (len(grid) - 1,)
        kind = kinds[which[0]]
        around.append(lambda A, k=kind, g=now, p=places, s=swapped: AlongTrigonometric(A, k, g, p, s))
        if swapped:
            order[places[0]], order[-1] = order[-1], order[places[0]]
    inverse: Operator
    if isinstance(core, Eliminated):
        lines = np.ascontiguousarray(core.pivots.reshape(grid).transpose(order))
        inverse = replace(core, pivots=lines.reshape(core.pivots.shape))
    else:
        diagonal = DiagonalOperator(host, np.ascontiguousarray(core.transpose(order)).reshape(1, -1))
        periodic = tuple(k for k, axis in enumerate(order) if kinds[axis] == "periodic")
        inverse = Periodic(diagonal, tuple(grid[k] for k in order), periodic) if periodic else diagonal
    for wrap in reversed(around):
        inverse = wrap(inverse)
    return inverse


def _zeros(values: Values, parts: Separable, eps: float) -> tuple[float, float]:
    """Largest magnitude of eigenvalues that are zero up to rounding, or -1, and the smallest of the others.

    One eigenvalue at the level of rounding of the entries counts as zero if A maps constants to zero.

    Raises:
        UnsupportedOperation: there are more of these, for example for very different axes in single precision.
    """
    if all(part.dtype.kind == "f" for part in values()):  # usually definite, without absolute values
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
            f"{str(error).split('. ')[0].rstrip('.')}: its matrix cannot be found; give the matrix, or a solver of "
            "krylix.prepare"
        ) from error


def _refusal(why: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A fast direct solve needs a sum of matrices along the axes of a grid, such as a Laplacian with constant "
        f"coefficients, but {why}. Use CG with a preconditioner, or scipy-direct."
    )


# --- lines along the first axis, by elimination


@storable("lines by elimination")
@dataclass(eq=False, repr=False)
class Eliminated(Composed):
    """Inverse of `diag(1 / before) T diag(1 / after)`, T tridiagonal with off-diagonals -1 along the first axis.

    Only the pivots of forward elimination are stored, which are positive for positive definite matrices.

    Attributes:
        pivots: reciprocal pivots for the m lines of n points each, `(n, m)`.
        before, after: `(n,)`, or `(1,)` for the latter if the former has the whole scale.
    """

    parts = ("pivots", "before", "after")
    is_container = True

    bk: Backend
    pivots: Array
    before: Array
    after: Array

    def __post_init__(self) -> None:
        shapes = [tuple(map(int, part.shape)) for part in (self.pivots, self.before, self.after)]
        if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1] or shapes[2] not in (shapes[1], (1,)):
            raise ValueError(f"Pivots, and scales before and after, have the shapes {shapes}; expected (n, m), (n,).")
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(map(int, self.pivots.shape))
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.pivots).dtype(self.pivots))
        self.systems = None

    def apply(self, x: Array) -> Array:
        bk, pivots = self.bk, self.array("pivots")
        found = bk.reshape(x, (int(x.shape[0]), *map(int, pivots.shape)))
        found = bk.recurrence(pivots, found * (pivots * self.array("before")[:, None]))
        found = bk.recurrence(pivots, found, backward=True)
        if int(self.after.shape[0]) > 1:
            found = found * self.array("after")[:, None]
        return bk.reshape(found, (int(x.shape[0]), -1))

    def transpose(self) -> Eliminated:
        return self if int(self.after.shape[0]) == 1 else replace(self, before=self.after, after=self.before)


def pays(bk: Backend, lines: int, transform: float) -> bool:
    """Whether elimination is faster than two transforms of this cost per unknown, in units of `Fourier.cost`."""
    return _COST + bk.cost_of_step / max(lines, 1) < 2 * transform


def extremes(A: sp.csr_array, known: AxisSpectrum | None) -> tuple[float, float] | None:
    """Extreme eigenvalues of a matrix along an axis; None if elimination does not apply.

    It applies to tridiagonal, diagonally symmetrisable matrices without zero off-diagonal entries.
    """
    n = A.shape[0]
    if n < _LEAST or A.dtype.kind != "f" or (known is not None and known.kind == "periodic"):
        return None
    if known is not None:
        return float(known.base + np.min(known.values)), float(known.base + np.max(known.values))
    entries = sp.coo_array(A)
    product = A.diagonal(1) * A.diagonal(-1)
    if np.any(np.abs(entries.row - entries.col)[entries.data != 0] > 1) or not np.all(product > 0):
        return None
    d, off = A.diagonal(), np.sqrt(product)
    ends = (scipy.linalg.eigvalsh_tridiagonal(d, off, select="i", select_range=(k, k))[0] for k in (0, n - 1))
    low, high = map(float, ends)
    return low, high


def eliminated(A: sp.csr_array, others: np.ndarray, sign: int, dtype: np.dtype) -> Eliminated | None:
    """Inverses of A plus a shift for each line of the first axis; None if scales would overflow.

    Args:
        A: a matrix with `extremes`.
        others: `(m,)`, the shifts, with which A is definite.
        sign: of all eigenvalues.

    Cost: one division and two more operations per unknown.
    """
    scales = _scales(A.diagonal(1), A.diagonal(-1), sign)
    if scales is None:
        return None
    rows, columns = scales
    both = 1 / (rows * columns)
    own, lines = A.diagonal() * both, others.reshape(-1)
    pivots = np.empty((len(own), len(lines)))
    for i, pivot in enumerate(pivots):
        np.multiply(lines, both[i], out=pivot)
        pivot += own[i]
        if i:
            pivot -= pivots[i - 1]
        np.reciprocal(pivot, out=pivot)
    if not (np.isfinite(pivots[-1]).all() and np.min(pivots) > 0):
        return None
    same = bool(np.all(columns == columns[0]))
    before, after = (1 / (rows * columns[0]), np.ones(1)) if same else (1 / rows, 1 / columns)
    return Eliminated(get_backend("numpy"), *(part.astype(dtype, copy=False) for part in (pivots, before, after)))


def _scales(up: np.ndarray, low: np.ndarray, sign: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Scales of rows and columns: `low_i = -r_i c_(i-1)` and `up_i = -r_i c_(i+1)`, with r_i c_i of the given sign."""
    n = len(up) + 1
    rows, columns = np.empty(n), np.empty(n)
    columns[0], rows[0] = 1, sign * abs(up[0])
    with np.errstate(all="ignore"):
        for i in range(1, n):
            columns[i] = -up[i - 1] / rows[i - 1]
            rows[i] = -low[i - 1] / columns[i - 1]
        spread = [float(np.max(np.abs(part)) / np.min(np.abs(part))) for part in (rows, columns)]
    return (rows, columns) if max(spread) < _RANGE else None


# --- grids that are distributed over devices


@storable("transforms and eigenvalues of axes")
@dataclass(eq=False, repr=False)
class SpectralInverse(Composed):
    """`V diag(1 / (sum of spectra)) V^-1`, V the Kronecker product of eigenvectors along each axis.

    Cost: for one application on a distributed grid the exchanges of the plan, and as many back, without reductions. It
    needs three temporary vectors, and on each device `2 n_k^2` numbers for each axis without a fast transform.

    Attributes:
        spectra: eigenvalues of all axes in turn, `(n_0 + n_1 + ...,)`.
        matrices: eigenvectors and their inverse of each axis without a fast transform, `(2 n_k^2 + ...,)`.
        grid: lengths of the axes.
        kinds: the transform of each axis, see `transforms.KINDS`; "matrix" for those of `matrices`.
        limit, instead, sign: of `Reciprocal`.
        complex_vectors: whether it is for complex vectors.
        transposed: whether it is the transpose.
    """

    parts = ("spectra", "matrices")
    is_container = True
    keeps_grids = True

    bk: Backend
    spectra: Array
    matrices: Array
    grid: tuple[int, ...]
    kinds: tuple[str, ...]
    limit: float
    instead: float
    sign: int
    complex_vectors: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        dense = sum(2 * n * n for n, kind in zip(self.grid, self.kinds) if kind == "matrix")
        expected = (sum(self.grid),), (dense,)
        found = tuple(tuple(map(int, part.shape)) for part in (self.spectra, self.matrices))
        if found != expected or len(self.kinds) != len(self.grid) or not {*self.kinds} <= {"matrix", *KINDS}:
            raise ValueError(
                f"Spectra and matrices have the shapes {found} for a grid {self.grid}; expected {expected}."
            )
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(self.grid)
        dtypes = [self._library_of(part).dtype(part) for part in (self.spectra, self.matrices)]
        self.shape, self.systems = (n, n), None
        self.dtype = np.result_type(*dtypes, *([np.complex64] if self.complex_vectors else []))

    def apply(self, x: Array) -> Array:
        bk, cut = self.bk, self.bk.known_cut(x)
        own = None if cut is None else self._on_own_grid(cut, tuple(x.cells.shape[1:]))
        return bk.as_rows(self.on_cells(bk.cells(x, self.grid), own), x)

    def _on_own_grid(self, cut: Cut, given: tuple[int, ...]) -> Cut:
        own = cut.on(given, self.grid)
        if own is None:
            raise UnsupportedOperation(
                f"Fast transforms on the grid {self.grid} were asked for vectors of {given}, cut by {cut.names}: these "
                "blocks are no boxes of the grid. Give b as arrays of the grid's shape, or spread it in parts that "
                f"divide {self.grid[0]}."
            )
        return own

    def on_cells(self, u: Array, cut: Cut | None = None) -> Array:
        """The product with `(batch, *grid)`, distributed like `u`."""
        bk = self.bk
        parts = self.array("spectra"), self.array("matrices")
        kinds = [bk.dtype(part).kind for part in parts]
        if bk.dtype(u).kind == "c" and "c" not in kinds:  # one message for both parts
            both = self._mapped(cut, bk.stack(bk.fourier.parts(u)), parts)
            return bk.fourier.complex(both[0], both[1])
        wanted = np.result_type(self.dtype, bk.dtype(u))
        return self._mapped(cut, bk.astype(u, wanted)[None], parts)[0]

    def _mapped(self, cut: Cut | None, u: Array, parts: Sequence[Array]) -> Array:
        """The product with `(parts, batch, *grid)`."""
        if cut is None:
            return self._on_block(((),) * len(self.grid), u, *parts)
        layout = tuple((AxisCut(names, parts),) if parts > 1 else () for names, parts in zip(cut.names, cut.parts))
        function = partial(self._on_block, layout)
        return self.bk.map_parts(function, cut, [u, *parts], [2, None, None], 2)

    def _on_block(self, layout: Layout, u: Array, spectra: Array, matrices: Array) -> Array:
        bk, shape = self.bk, tuple(u.shape)
        plan = exchanges(layout, self.grid)
        axes = (whole_axes(layout), *(one.whole for one in plan))
        u = self._transformed(bk.reshape(u, (-1, *shape[2:])), axes[0], matrices)
        for exchange, whole in zip(plan, axes[1:]):
            u = self._transformed(forward(bk, u, exchange, self.grid), whole, matrices)
        u = u * self._reciprocals(spectra, plan[-1].after if plan else layout)
        for exchange, whole in zip(reversed(plan), reversed(axes)):
            u = backward(bk, self._transformed(u, whole, matrices, back=True), exchange, self.grid)
        return bk.reshape(self._transformed(u, axes[0], matrices, back=True), shape)

    def _transformed(self, u: Array, axes: Sequence[int], matrices: Array, back: bool = False) -> Array:
        """Transform into the eigenvectors of these axes, or back."""
        for axis in axes:
            kind = self.kinds[axis]
            if kind == "matrix":
                u = self._times(self._matrix(matrices, axis, back), u, axis)
            else:
                u = trigonometric_transform(self.bk, KINDS[kind].inverse if back else kind, u, (axis + 1,))
        return u

    def _matrix(self, matrices: Array, axis: int, back: bool) -> Array:
        """The inverse eigenvectors of an axis, or the eigenvectors to transform back; transposed for the transpose."""
        n = self.grid[axis]
        start = sum(2 * m * m for m, kind in zip(self.grid[:axis], self.kinds) if kind == "matrix")
        start += 0 if back != self.transposed else n * n
        matrix = self.bk.reshape(matrices[start : start + n * n], (n, n))
        return self.bk.matrix_transpose(matrix) if self.transposed else matrix

    def _times(self, matrix: Array, u: Array, axis: int) -> Array:
        """Multiply all lines along an axis by a matrix."""
        bk, order = self.bk, list(range(len(u.shape)))
        order[axis + 1], order[-1] = order[-1], order[axis + 1]  # its own inverse
        lines = bk.permute_dims(u, order)
        image = bk.product(matrix, bk.reshape(lines, (-1, lines.shape[-1])))
        return bk.permute_dims(bk.reshape(image, lines.shape), order)

    def _reciprocals(self, spectra: Array, layout: Layout) -> Array:
        bk, rank, total, start = self.bk, len(self.grid), 0, 0
        for axis, (n, levels) in enumerate(zip(self.grid, layout)):
            own = _own_piece(bk, spectra[start : start + n], levels)
            total = total + bk.reshape(own, tuple(-1 if k == axis else 1 for k in range(rank)))
            start += n
        return Reciprocal(self.limit, self.instead, self.sign).of(bk, total)

    def transpose(self) -> SpectralInverse:
        return replace(self, transposed=not self.transposed)

    def astype(self, dtype: np.dtype) -> SpectralInverse:
        is_complex = np.dtype(dtype).kind == "c"
        real = np.dtype(np.dtype(dtype).char.lower()) if is_complex else np.dtype(dtype)

        def cast(array: Array) -> Array:
            bk = self._library_of(array)
            return bk.astype(array, real if bk.dtype(array).kind == "f" else dtype)

        return replace(self._map(lambda A: A, cast), complex_vectors=is_complex)


def spectral_inverse(
    spectra: Sequence[np.ndarray],
    total: Any,
    kinds: Sequence[str],
    matrices: Sequence[np.ndarray],
    rule: Reciprocal,
    dtype: np.dtype,
) -> SpectralInverse:
    """Return the inverse for vectors of `dtype`, in NumPy arrays.

    Each spectrum is stored as differences from its term in the smallest sum, which is added to the first spectrum.
    Small eigenvalues then keep their digits in any precision.

    Args:
        spectra: eigenvalues of each axis, `(n_k,)`.
        total: shift of all sums of eigenvalues.
        matrices: eigenvectors and their inverse for each axis of the kind "matrix".
    """
    least, at = nearest_to_zero(spectra, total)
    differences = [values - values[place] for values, place in zip(spectra, at)]
    differences[0] = differences[0] + least
    flat = np.concatenate([np.zeros(0), *(matrix.reshape(-1) for matrix in matrices)])
    grid = tuple(len(values) for values in spectra)
    inverse = SpectralInverse(
        get_backend("numpy"), np.concatenate(differences), flat, grid, tuple(kinds), rule.limit, rule.instead, rule.sign
    )
    return inverse.astype(dtype)


def _own_piece(bk: Backend, values: Array, levels: Sequence[AxisCut]) -> Array:
    """The local piece of values along a distributed axis. The last value is repeated as padding."""
    for level in levels:
        size = piece(int(values.shape[0]), (level,))
        padding = size * level.parts - int(values.shape[0])
        if padding:
            values = bk.concat([values, bk.broadcast_to(values[-1:], (padding,))])
        values = bk.take_in_bounds(bk.reshape(values, (level.parts, size)), bk.part_index(level.names))
    return values
