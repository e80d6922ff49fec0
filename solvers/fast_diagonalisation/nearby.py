"""The Kronecker sum nearest to a given matrix on a grid, by averages over the other axes.

The matrix is taken apart into differences of neighbours and the sums of its rows,

    (A u)(x) = sum over s of a_s(x) (u(x + s) - u(x)) + rho(x) u(x).

What couples neighbours along an axis is averaged over the other axes, and rho becomes a sum of functions of one
coordinate each. A coupling across a corner counts for each of its axes, as u(x + s) is about a sum of steps along them.
So a matrix that is a sum of matrices along the axes stays what it is.

Coefficients that vary by large factors are taken out before: D^-1/2 A D^-1/2, where D is the mean of the couplings
around a point, has couplings that are nearly constant, and what is left of the coefficients is in rho (Concus and
Golub).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends.cores import shared as cores
from ...backends.numpy.vectors import square_sum
from ...sparse.operators.couplings import Couplings
from .axis_couplings import (
    AxisCouplings,
    around,
    couplings_by_axis,
    inverse_with_rim,
    means,
    planes,
    planes_at_a_time,
    scaled_planes,
)
from .separable import Separable, on_axis

_ROUNDING = 1e-12
_TINY = float(np.finfo(float).tiny)  # the least number whose inverse is one, too
_PLAIN = 2.0**300  # sizes up to it, and down to its inverse, whose squares have a sum in range
_PLANES = 9  # of each axis, less one: those that are looked at first
_AS_NEAR = 1.5  # times the distance: constants along an axis, whose transforms are fast, may be so much farther away


class Nearby(NamedTuple):
    """`size D^1/2 sum D^1/2` is near the matrix, with the diagonal matrix D.

    Attributes:
        size: a power of two, so that units play no role.
        sum: of matrices along the axes.
        root: `(*grid)`, of D; None: of ones.
        distance: of the couplings and of the sums of rows, relative to the size of all couplings.
        spread: the largest difference of a coupling from the nearby one, relative to that.
        left: the root mean square of what is left of the sums of rows.
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
        most: the largest useful spread; above it only that fact is reliable.
    """
    size = _size(A)
    if not 1 / _PLAIN < size < _PLAIN:  # far from the ends of the range units of powers of two change no digit
        found = nearby(A.map(lambda a: a / size), most)
        return found._replace(size=found.size * size)
    root = np.sqrt(around(A, means(A)))
    roots = (None, root) if np.ptp(root) > 0 else (None,)
    return min((_of_lines(A, D, size, most) for D in roots), key=lambda one: one.distance)


def _size(A: Couplings) -> float:
    """The power of two below the largest entry; 1 for zeros."""
    upper = [A.values[s] for s in A.values if s >= A.here]
    largest = max(max(float(np.max(a, initial=0)), -float(np.min(a, initial=0))) for a in upper)
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def is_far(A: Couplings, most: float) -> bool:
    """Is the spread certainly larger than `most`? For one real symmetric NumPy matrix, from a few planes.

    Whatever number is near the couplings that lead on from a plane, it is as far from the least or the largest of them.
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
    """Lower bound of the spread of these numbers around any value; 0 if unknown."""
    low, high = float(np.min(a, initial=np.inf)), float(np.max(a, initial=-np.inf))
    low, high = min(abs(low), abs(high)), max(abs(low), abs(high))
    same = bool(np.all(a >= 0) or np.all(a <= 0))
    return (high - low) / (high + low) if same and 0 < high < np.inf else 0.0


def _of_lines(A: Couplings, root: np.ndarray | None, size: float, most: float) -> Nearby:
    """Averages along each axis; constant ones if about as near, unless both are too far."""
    up, rows, lines = couplings_by_axis(A, root)
    general = simple = _compared(lines, up, rows)
    constant = [_constant(line) for line in lines]
    is_simple = general[1] <= most
    if is_simple:
        simple = _compared(constant, up, rows)
        is_simple = simple[0] <= _AS_NEAR * general[0] + _ROUNDING
    along = tuple(_matrix(line, size) for line in (constant if is_simple else lines))
    distance, spread, left = simple if is_simple else general
    return Nearby(
        size, Separable(A.grid, along, A.diagonal.dtype.type(0), A.diagonal.dtype), root, distance, spread, left / size
    )


def _constant(line: AxisCouplings) -> AxisCouplings:
    """Constant coefficients, with a multiple of the coupling added at the ends for boundary conditions."""
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
    """Distance, spread and residual row sums, see Nearby; some planes at a time, in the cache."""
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
