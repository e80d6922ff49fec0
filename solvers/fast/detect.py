"""Detection of Kronecker sums along the axes of a grid, and the Kronecker sum nearest to a matrix.

    A = A_0 (x) I (x) I + I (x) A_1 (x) I + I (x) I (x) A_2 + shift * I

Examples are Laplacians with constant coefficients, or with spacings and coefficients that depend only on their own
axis, with any boundary conditions that are constant along a side. `separable` reads the terms from a line along each
axis. The diagonals, or one product with a random vector, then verify that A has no other entries.

`nearby` splits other matrices into differences of neighbours and row sums,

    (A u)(x) = sum over s of a_s(x) (u(x + s) - u(x)) + rho(x) u(x).

Couplings of neighbours along an axis are averaged over the other axes, and rho becomes a sum of functions of one
coordinate each. A diagonal coupling counts for each of its axes, because u(x + s) - u(x) is about a sum of differences
along them. A Kronecker sum is therefore reproduced exactly.

Coefficients that vary by large factors are first removed by scaling: with D the mean of the couplings around a point,
D^-1/2 A D^-1/2 has nearly constant couplings, and the variation of the coefficients remains in rho (Concus and Golub).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import get_backend
from ...backends.host_math import cores
from ...backends.numpy.vectors import square_sum
from ...sparse import DIA, Matrix, Operator, SparseMatrix, Stencil
from ...sparse.analysis.singular import ROWS, half_units, of_region
from ...sparse.formats.entries.integers import points, row_strides
from ...sparse.operators.couplings import Couplings, Shift, sum_of_terms

_ROUNDING = 100  # allowed difference in rounding units of the sum of |a_ij| over a row
_FAR = 10  # multiple of that, which no product could miss
_BLOCK = 16384  # numbers that are compared at a time
_FEW = 8  # diagonals, up to which separate products are faster
_COMPARED = 65536  # entries of diagonals that are compared at a time
PART = 2**17  # couplings that are processed at a time; with fewer, threads wait for each other
_NEGLIGIBLE = 1e-12  # distance of couplings
_TINY = float(np.finfo(float).tiny)  # the smallest number whose reciprocal is in range
_PLAIN = 2.0**300  # sums of squares are in range for sizes between the reciprocal and this
_PLANES = 9  # planes of each axis that are examined first, plus one
_AS_NEAR = 1.5  # allowed ratio of the distances with constants along an axis, which have fast transforms, and without

Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns and values of entries along an axis
Diagonal = tuple[int, int, Any]  # axis, offset, and a number or an array along the axis


@dataclass(frozen=True)
class Separable:
    """Kronecker sum of matrices along the axes of a grid.

    Attributes:
        grid: lengths of the axes.
        along: a matrix `(n_k, n_k)` for each axis.
        shift: multiple of the identity that is added.
        dtype: of the stored entries.
    """

    grid: tuple[int, ...]
    along: tuple[sp.csr_array, ...]
    shift: Any
    dtype: np.dtype

    @cached_property
    def allowed(self) -> np.ndarray:
        """Bound of each row sum by rounding of the entries, `(n_0, n_1, ...)`."""
        return self.row_sums(self._half_units)

    @property
    def most_allowed(self) -> float:
        """Largest entry of `allowed`, without the array."""
        of_axes = (np.max(_mapped(A, self._half_units).sum(axis=1), initial=0) for A in self.along)
        return float(sum(of_axes, self._half_units(self.shift)))

    def _half_units(self, values: Any) -> np.ndarray:
        return half_units(get_backend("numpy"), np.asarray(values, self.dtype)).astype(np.float64)

    @property
    def maps_constants_to_zero(self) -> bool:
        """Whether all row sums are zero up to rounding of the entries."""
        sums = self.row_sums(lambda values: np.asarray(values, np.result_type(self.dtype, np.float64)))
        each = np.all(np.abs(sums) <= ROWS * self.allowed)
        return bool(each and np.abs(np.sum(sums)) <= of_region(self.dtype) * np.sum(self.allowed))

    def row_sums(self, function: Callable[[Any], Any]) -> np.ndarray:
        """Row sums of a function of the entries of all terms, `(n_0, n_1, ...)`."""
        total = np.asarray(function(self.shift))
        for axis, A in enumerate(self.along):
            total = total + on_axis(_mapped(A, function).sum(axis=1), axis, len(self.grid))
        return total


def separable(matrix: Matrix, host: Operator) -> Separable | str:
    """Return a known square matrix as a Kronecker sum, or the reason why it is none, in words.

    Args:
        matrix: the matrix, in any library.
        host: the same matrix in NumPy.

    Cost: one product with A, one with the sum, and the entries of a line along each axis.
    """
    grid = matrix.in_shape
    if len(grid) < 2 or matrix.out_shape != grid:
        return f"it maps arrays of the shape {grid} to {matrix.out_shape}; expected one shape of two axes or more"
    if matrix.systems is not None:
        return "it is a batch of matrices"
    along, shift = [], None
    for axis, n in enumerate(grid):
        rows, cols, values = _line(matrix, axis)
        A = sp.csr_array(sp.coo_array((values, (rows, cols)), shape=(n, n)))
        first = A[0, 0]
        shift = first if shift is None else shift  # the same corner of the grid lies on all these lines
        along.append(sp.csr_array(A - first * sp.eye_array(n, dtype=A.dtype)))
    found = Separable(grid, tuple(along), shift, matrix.dtype)
    if isinstance(matrix, Stencil) and _is_sum_of_numbers(matrix):
        return found
    return _differs(host, found) or found


def _is_sum_of_numbers(matrix: Stencil) -> bool:
    """Does each entry depend only on the position along one axis? Stencils of numbers show that without a product."""
    structure: Any = matrix.structure
    grid, numbers = structure.in_grid, matrix.constant
    if numbers is None or not all(structure.numbers) or not grid == structure.out_grid == matrix.in_shape:
        return False
    if not sum(abs(complex(number)) for number in numbers) <= np.finfo(matrix.dtype).max / 4:  # and none is NaN
        return False
    for box in structure.boxes:
        whole = [(lo, first, n) == (0, 0, size) for lo, first, n, size in zip(box.lo, box.start, box.shape, grid)]
        if sum(whole) < len(grid) - 1:
            return False
    return True


def _differs(host: Operator, parts: Separable) -> str | None:
    """Reason why the matrix differs from the sum by more than rounding; None if it does not.

    Diagonals are compared entry by entry. If that is inconclusive, products with a random vector are compared.
    """
    with np.errstate(all="ignore"):
        lines, rest = _diagonals_of(parts)
        sizes = [on_axis(abs(A).sum(axis=1), axis, len(parts.grid)) for axis, A in enumerate(parts.along)]
        bound = _ROUNDING * np.finfo(host.dtype).eps
        values = host.known_values() if isinstance(host, DIA) and not rest else None
        most = abs(parts.shift) + sum(np.max(s) for s in sizes)  # of a row
        if values is not None and most <= np.finfo(host.dtype).max / 2:  # otherwise products may overflow
            structure: Any = host.structure  # type: ignore[attr-defined]
            same = equals_sum(values[0], structure.offsets, parts.grid, parts.shift, lines, _FAR * bound * most)
            if same is not None:
                return None if same else "its entries show that it is no sum of matrices along the axes"
    v = np.random.default_rng(7).random((1, host.shape[1]))
    v += 0.5  # because small numbers would hide entries
    v = v.astype(host.dtype, copy=False)
    with np.errstate(all="ignore"):
        image = host.apply(v).reshape(parts.grid)  # new memory
        if not np.isfinite(np.sum(image)) and not np.isfinite(image).all():  # the sum is faster, but may overflow
            return "it has entries that are NaN or infinite, or products that overflow"
        for axis, A in rest:
            first = np.moveaxis(v.reshape(parts.grid), axis, 0)  # with this axis in front
            image -= np.moveaxis((A @ first.reshape(len(first), -1)).reshape(first.shape), 0, axis)
        least = bound * (abs(parts.shift) + sum(np.min(s) for s in sizes))
        for rows, part in _differences(image, v.reshape(parts.grid), parts.shift, lines):
            if part.dtype.kind == "f" and max(part.max(), -part.min()) <= least:  # in one pass
                continue
            of_rows = sum((s if len(s) == 1 else s[rows] for s in sizes), abs(parts.shift))
            if not np.all(np.abs(part) <= bound * of_rows):
                return "a random vector shows that it is no sum of matrices along the axes"
    return None


def _differences(
    image: np.ndarray, v: np.ndarray, shift: Any, diagonals: list[Diagonal]
) -> Iterator[tuple[slice, Any]]:
    """`image - shift v - sum of diagonals`, in cache-sized blocks of the first axis."""
    n = len(v)
    size = max(1, _BLOCK * n // max(v.size, 1))
    room = np.empty((min(size, n), *v.shape[1:]), image.dtype)  # reused, to avoid allocations
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        part, own = image[rows], v[rows]
        part -= np.multiply(shift, own, out=room[: len(part)])
        for axis, offset, values in diagonals:
            bounds = (start, rows.stop) if axis == 0 else (0, v.shape[axis])
            lo, hi = max(bounds[0], -offset), min(bounds[1], v.shape[axis] - offset)
            if lo >= hi:
                continue
            lead = (slice(None),) * axis
            here, there = slice(lo - bounds[0], hi - bounds[0]), slice(lo + offset, hi + offset)
            factor = values if np.ndim(values) == 0 else values[(*lead, slice(lo, hi))]
            product, of = room[: len(part)][(*lead, here)], part[(*lead, here)]
            np.multiply(factor, (v if axis == 0 else own)[(*lead, there)], out=product)
            np.subtract(of, product, out=of)
        yield rows, part


def _diagonals_of(parts: Separable) -> tuple[list[Diagonal], list[tuple[int, sp.csr_array]]]:
    """Diagonals of terms with few of them, and the other terms unchanged."""
    found: list[Diagonal] = []
    others = []
    for axis, A in enumerate(parts.along):
        entries, n = sp.coo_array(A), A.shape[0]
        steps = entries.col.astype(np.int64) - entries.row
        offsets = np.unique(steps)
        if len(offsets) > _FEW:
            others.append((axis, A))
            continue
        for offset in offsets.tolist():
            values = np.zeros(n, A.dtype)
            values[entries.row[steps == offset]] = entries.data[steps == offset]
            inside = values[max(0, -offset) : n - max(0, offset)]
            same = np.all(inside == inside[0])
            found.append((axis, offset, inside[0] if same else on_axis(values, axis, len(parts.grid))))
    return found, others


def on_axis(values: Any, axis: int, rank: int) -> np.ndarray:
    """Reshape values along an axis for broadcasting on the grid."""
    return np.reshape(values, [-1 if k == axis else 1 for k in range(rank)])


def _mapped(A: sp.csr_array, function: Callable[[Any], Any]) -> sp.csr_array:
    return sp.csr_array((function(A.data), A.indices, A.indptr), A.shape)


def _line(matrix: Matrix, axis: int) -> Line:
    """Entries on the line along an axis on which all other indices are 0."""
    found = _of_boxes(matrix, axis) if isinstance(matrix, Stencil) else None
    if found is not None:
        return found
    grid: Any = matrix.in_shape
    shape = tuple(n if k == axis else 1 for k, n in enumerate(grid))
    places = points((0,) * len(grid), shape, grid)
    if isinstance(matrix, DIA):
        return _of_diagonals(matrix, places)
    known: Any = matrix.known()
    part = sp.coo_array(sp.csr_array(known)[places][:, places])
    return part.row, part.col, part.data


def _of_boxes(matrix: SparseMatrix, axis: int) -> Line | None:
    structure: Any = matrix.structure
    if structure.in_grid != matrix.in_shape or structure.out_grid != matrix.out_shape:  # for flattened arrays
        return None
    rows, cols, values = [], [], []
    for box, value in zip(structure.boxes, matrix.constant or ()):
        others = [k for k in range(len(box.lo)) if k != axis]
        if any(box.lo[k] or box.start[k] for k in others):
            continue
        n = box.shape[axis]
        rows.append(box.lo[axis] + np.arange(n))
        cols.append(box.start[axis] + np.arange(n))
        at = tuple(slice(None) if k == axis else 0 for k in range(len(box.lo)))
        values.append(np.broadcast_to(value[at] if np.ndim(value) else value, (n,)))
    if not rows:
        return None
    return np.concatenate(rows), np.concatenate(cols), np.concatenate(values)


def _of_diagonals(matrix: DIA, places: np.ndarray) -> Line:
    """Entries of a DIA matrix among these equally spaced rows and columns."""
    offsets: Any = matrix.structure.offsets  # type: ignore[attr-defined]
    diagonals = matrix.bk.to_numpy(matrix.arrays()[0]) if matrix.constant is None else matrix.constant[0]
    first, step = int(places[0]), int(places[1] - places[0]) if len(places) > 1 else 1
    rows, cols, values = [], [], []
    for offset, diagonal in zip(offsets, diagonals):
        steps, rest = divmod(int(offset), step)
        lo, hi = max(0, -steps), min(len(places), len(places) - steps)
        if rest or lo >= hi:
            continue
        rows.append(np.arange(lo, hi))
        cols.append(np.arange(lo, hi) + steps)
        values.append(diagonal[first + step * lo : first + step * hi : step])
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *cols]), np.concatenate([none, *values])


def equals_sum(
    diagonals: np.ndarray,
    offsets: Sequence[int],
    grid: tuple[int, ...],
    shift: Any,
    along: Iterable[Diagonal],
    far: float,
) -> bool | None:
    """Return True if all entries are equal, False if one differs by more than `far`, else None.

    Args:
        diagonals: `(k, n)`, with entry i in row i.
        shift: of the sum, in addition to the main diagonals of `along`.

    Cost: a pass over the entries, or over some of them if they differ.
    """
    expected: dict[int, list[Diagonal]] = {0: [(0, 0, shift)]}
    for axis, offset, values in along:
        expected.setdefault(offset * row_strides(grid)[axis], []).append((axis, offset, values))
    if not set(expected) <= set(offsets):
        return None
    same = True
    for offset, own in zip(offsets, diagonals):
        terms = expected.get(offset)
        if terms is None:  # entries inside the matrix must be zero; the rest is padding
            found = _compare(own[max(0, -offset) : own.size - max(0, offset)], [], far)
        else:
            found = _compare(own.reshape(grid), terms, far)
        if found is False:
            return False
        same = same and found is True
    return same or None


def _compare(own: np.ndarray, terms: list[Diagonal], far: float) -> bool | None:
    """Compare one diagonal with the sum of terms, which are zero where an offset leaves the grid."""
    inside = [slice(None)] * own.ndim
    for axis, offset, _ in terms:
        n = own.shape[axis]
        inside[axis] = slice(max(0, -offset), n - max(0, offset))
        ends = own[(slice(None),) * axis + (np.r_[: max(0, -offset), n - max(0, offset) : n],)]
        if np.any(ends):
            return None
    part = own[tuple(inside)]
    total = sum((_within(values, axis, inside) for axis, _, values in terms), own.dtype.type(0))
    total = np.broadcast_to(total, part.shape)
    rows, same = max(1, _COMPARED * len(part) // max(part.size, 1)), True
    for start in range(0, len(part), rows):
        a, b = part[start : start + rows], total[start : start + rows]
        if not np.array_equal(a, b):
            if np.max(np.abs(a - b)) > far:
                return False
            same = False
    return same or None


def _within(values: Any, axis: int, inside: list[slice]) -> Any:
    return values if np.ndim(values) == 0 else values[(slice(None),) * axis + (inside[axis],)]


# --- the nearest sum


class Nearby(NamedTuple):
    """Approximation `size D^1/2 sum D^1/2` of a matrix, with a diagonal matrix D.

    Attributes:
        size: a power of two, which makes the result independent of units.
        sum: Kronecker sum.
        root: D^1/2 as `(*grid)`; None for the identity.
        distance: error of couplings and row sums, relative to all couplings.
        spread: largest relative error of a coupling.
        left: root mean square of the error of row sums.
    """

    size: float
    sum: Separable
    root: np.ndarray | None
    distance: float
    spread: float
    left: float


def nearby(A: Couplings, most: float = np.inf) -> Nearby:
    """The nearest Kronecker sum among several candidates, for one real symmetric NumPy matrix.

    Args:
        most: largest useful spread. For a larger one only that fact is reliable.
    """
    size = _size(A)
    if not 1 / _PLAIN < size < _PLAIN:  # Units that are powers of two change no digit and keep squares in range.
        found = nearby(A.map(lambda a: a / size), most)
        return found._replace(size=found.size * size)
    root = np.sqrt(around(A, means(A)))
    roots = (None, root) if np.ptp(root) > 0 else (None,)
    return min((_nearest_sum(A, D, size, most) for D in roots), key=lambda one: one.distance)


def _size(A: Couplings) -> float:
    """Power of two below the largest entry; 1 for zeros."""
    upper = [A.values[s] for s in A.values if s >= A.here]
    largest = max(max(float(np.max(a, initial=0)), -float(np.min(a, initial=0))) for a in upper)
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def is_far(A: Couplings, most: float) -> bool:
    """Whether the spread is certainly larger than `most`, from a few planes of one real symmetric NumPy matrix.

    A single number cannot be near both the smallest and the largest coupling from one plane to the next.
    """
    plain = scaled = False
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = means(A)
        for axis, n in enumerate(A.grid):
            here = (slice(None),) * axis + (0,)
            for plane in np.unique(np.linspace(0, n - 1, _PLANES, dtype=int)[:-1]):
                part = planes(A, axis, int(plane), min(int(plane) + 2, n))
                inverse = inverse_with_rim(np.sqrt(around(part, sizes)), part.periodic)
                plain = plain or _spread(scaled_planes(part, None)[0][axis][here]) > most
                scaled = scaled or _spread(scaled_planes(part, inverse)[0][axis][here]) > most
                if plain and scaled:
                    return True
    return False


def _spread(a: np.ndarray) -> float:
    """Lower bound of the relative spread of numbers around any value; 0 if unknown."""
    low, high = float(np.min(a, initial=np.inf)), float(np.max(a, initial=-np.inf))
    low, high = min(abs(low), abs(high)), max(abs(low), abs(high))
    same = bool(np.all(a >= 0) or np.all(a <= 0))
    return (high - low) / (high + low) if same and 0 < high < np.inf else 0.0


def _nearest_sum(A: Couplings, root: np.ndarray | None, size: float, most: float) -> Nearby:
    """Averages along each axis, constant ones if they are about as near."""
    up, rows, lines = couplings_by_axis(A, root)
    general = simple = _compared(lines, up, rows)
    constant = [_constant_coefficients(line) for line in lines]
    is_simple = general[1] <= most
    if is_simple:
        simple = _compared(constant, up, rows)
        is_simple = simple[0] <= _AS_NEAR * general[0] + _NEGLIGIBLE
    along = tuple(_matrix(line, size) for line in (constant if is_simple else lines))
    distance, spread, left = simple if is_simple else general
    return Nearby(
        size, Separable(A.grid, along, A.diagonal.dtype.type(0), A.diagonal.dtype), root, distance, spread, left / size
    )


def _constant_coefficients(line: AxisCouplings) -> AxisCouplings:
    """Constant coefficients, with multiples of the coupling at the ends for boundary conditions."""
    n = len(line.up)
    if n < 3:
        return line
    inner = line.up if line.ring else line.up[:-1]
    up = np.full(n, inner.mean(), line.up.dtype)
    up[len(inner) :] = 0
    rows = np.zeros(n, line.rows.dtype)
    if not line.ring and up[0] != 0:
        middle = line.rows[1:-1].mean()
        for end in (0, -1):
            rows[end] = -up[0] * np.clip(np.round((line.rows[end] - middle) / -up[0]), 0, 2)
    return AxisCouplings(up, rows + (line.rows.mean() - rows.mean()), line.ring)


def _compared(lines: list[AxisCouplings], couplings: list[np.ndarray], rows: np.ndarray) -> tuple[float, float, float]:
    """Distance, spread and error of row sums, see Nearby, from a few planes at a time to stay in the cache."""
    rank, found = len(lines), []

    def compare(first: int, last: int) -> None:
        here = slice(first, last)
        left, size, spread, away = rows[here], 0.0, 0.0, 0.0
        for axis, (own, line) in enumerate(zip(couplings, lines)):
            of = here if axis == 0 else slice(None)
            near, left = on_axis(line.up[of], axis, rank), left - on_axis(line.rows[of], axis, rank)
            sizes, part = np.abs(near), own[here]
            size += square_sum(part)
            difference = part - near
            away += square_sum(difference)
            difference *= np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes >= _TINY)
            spread = max(spread, -float(difference.min(initial=0)), float(difference.max(initial=0)))
        found.append((first, away, size, spread, square_sum(left)))

    cores.in_blocks(compare, len(rows), planes_at_a_time(rows.shape))
    _, aways, sizes, spreads, lefts = zip(*sorted(found)) if found else ((0.0,),) * 5
    away, size, left = sum(aways), sum(sizes), sum(lefts)
    distance = float(np.sqrt((away + left) / size)) if size > 0 else 0.0
    return distance, max(spreads), float(np.sqrt(left / max(rows.size, 1)))


def _matrix(line: AxisCouplings, size: float) -> sp.csr_array:
    """Matrix along one axis, in units of `size`."""
    n = len(line.up)
    here = np.arange(n if line.ring else n - 1)
    there = (here + 1) % n
    values = line.up[here]
    off = sp.csr_array(sp.coo_array((np.r_[values, values], (np.r_[here, there], np.r_[there, here])), shape=(n, n)))
    return sp.csr_array((off + sp.diags_array(line.rows - off.sum(axis=1))) / size)


# --- couplings by axis


class AxisCouplings(NamedTuple):
    """Means along one axis: couplings of points i and i + 1 (mod n), and their part of the row sums, `(n,)`."""

    up: np.ndarray
    rows: np.ndarray
    ring: bool


def couplings_by_axis(
    A: Couplings, root: np.ndarray | None
) -> tuple[list[np.ndarray], np.ndarray, list[AxisCouplings]]:
    """Split D^-1/2 A D^-1/2 by axis, a few planes at a time to stay in the cache.

    Returns:
        For each axis the couplings to the next points, `(*grid)`; row sums, `(*grid)`; means over the other axes.
    """
    grid, rank = A.grid, len(A.grid)
    up, rows = [np.empty(grid, A.diagonal.dtype) for _ in grid], np.empty(grid, A.diagonal.dtype)
    inverse = None if root is None else inverse_with_rim(root, A.periodic)
    sums: list[tuple[int, list[list[np.ndarray]]]] = []

    def read(first: int, last: int) -> None:
        part = planes(A, 0, first, last)
        own, rest = scaled_planes(part, None if inverse is None else inverse[first : last + 2])
        for all_of_it, one in zip([*up, rows], [*own, rest]):
            all_of_it[first:last] = one
        sums.append((first, [[_sums_along(one, axis) for one in (own[axis], rest)] for axis in range(rank)]))

    cores.in_blocks(read, grid[0], planes_at_a_time(grid))
    found = [one for _, one in sorted(sums, key=lambda one: one[0])]
    lines: list[AxisCouplings] = []
    for axis, n in enumerate(grid):
        steps, own = (_joined([one[axis][k] for one in found], axis) / (rows.size / n) for k in range(2))
        lines.append(AxisCouplings(steps, own - own.mean() * (rank - 1) / rank, A.periodic[axis]))
    return up, rows, lines


def _joined(parts: list[np.ndarray], axis: int) -> np.ndarray:
    """Join sums of parts along the first axis."""
    return np.concatenate(parts) if axis == 0 else np.sum(parts, axis=0)


def inverse_with_rim(root: np.ndarray, periodic: Sequence[bool]) -> np.ndarray:
    """1 / root with halo points at both ends of each axis: wrapped if periodic, else 0."""
    found = np.zeros([n + 2 for n in root.shape])
    np.divide(1, root, out=found[(slice(1, -1),) * root.ndim])
    for axis, ring in enumerate(periodic):
        if ring:
            lines = np.moveaxis(found, axis, 0)
            lines[0], lines[-1] = lines[-2], lines[1]
    return found


def scaled_planes(A: Couplings, inverse: np.ndarray | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Couplings to the next points along each axis, and row sums, scaled by `inverse` with halo points."""
    up: list[np.ndarray | None] = [None] * len(A.grid)
    rows = np.zeros(A.grid, A.diagonal.dtype)
    for s, a in A.values.items():
        beside = tuple(slice(1 + step, 1 + step + n) for step, n in zip(s, A.grid))
        own = a[0] if inverse is None else a[0] * inverse[beside]
        rows += own
        for axis, step in enumerate(s):
            if step == 1:
                up[axis] = own if up[axis] is None else up[axis] + own
    found = [np.zeros_like(rows) if one is None else one for one in up]
    if inverse is None:
        return found, rows
    here = inverse[(slice(1, -1),) * len(A.grid)]
    return [here * one for one in found], here * rows


def _sums_along(a: np.ndarray, axis: int) -> np.ndarray:
    return a.sum(axis=tuple(k for k in range(a.ndim) if k != axis))


def means(A: Couplings) -> list[float]:
    """Mean magnitude of the non-zero couplings along each axis; 0 if there are none."""
    found = []
    for axis in range(len(A.grid)):
        values = [A.values[s] for s in shifts_along(A, axis) if s[axis] > 0 or not A.is_exactly_hermitian]
        parts = [part for a in values for part in _blocks(a)]
        count = sum(np.count_nonzero(part) for part in parts)
        found.append(float(sum(np.abs(part).sum() for part in parts)) / max(count, 1))
    return found


def _blocks(a: np.ndarray) -> list[np.ndarray]:
    """Views of an array in blocks that fit the cache."""
    if not a.flags.c_contiguous:
        return [a]
    flat = a.reshape(-1)
    return [flat[start : start + PART] for start in range(0, flat.size, PART)]


def around(A: Couplings, means: Sequence[float]) -> np.ndarray:
    """`(*grid)`: mean magnitude of the couplings of a point, relative to the mean of each axis; 1 if there are none."""
    found = np.empty(A.grid)

    def fill(first: int, last: int) -> None:
        found[first:last] = _around_few(planes(A, 0, first, last), means)

    cores.in_blocks(fill, A.grid[0], planes_at_a_time(A.grid))
    return found


def _around_few(A: Couplings, means: Sequence[float]) -> np.ndarray:
    sums, counts, some = np.zeros(A.grid), np.zeros(A.grid, np.int8), 0
    for axis, mean in enumerate(means):
        sizes = [np.abs(A.values[s][0]) for s in shifts_along(A, axis)]
        if mean > 0:
            both = np.logical_and.reduce([a > 0 for a in sizes])
            size = sum_of_terms(sizes)
            size /= np.where(both, len(sizes) * mean, mean)  # at most two
            sums += size
            counts += size > 0
            some += 1
    if some and counts.min(initial=some) == some:
        return sums / some
    return np.where(sums > 0, sums / np.maximum(counts, 1), 1)


def shifts_along(A: Couplings, axis: int) -> list[Shift]:
    """Offsets by one point along this axis."""
    return [s for s in A.values if s[axis] and not any(step for k, step in enumerate(s) if k != axis)]


def planes(A: Couplings, axis: int, first: int, last: int) -> Couplings:
    """Coefficients of points with an index from `first` to `last` - 1 along an axis."""
    at = (slice(None),) * (axis + 1) + (slice(first, last),)
    grid = (*A.grid[:axis], last - first, *A.grid[axis + 1 :])
    rings = (*A.periodic[:axis], False, *A.periodic[axis + 1 :])
    return replace(A, grid=grid, periodic=rings, values={s: a[at] for s, a in A.values.items()})


def planes_at_a_time(grid: Sequence[int]) -> int:
    """Number of planes of the first axis that fit the cache with their intermediates."""
    return max(1, PART * grid[0] // max(math.prod(grid), 1))
