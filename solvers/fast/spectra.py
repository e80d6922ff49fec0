"""Eigendecompositions along one axis, by formula if there is one, else by LAPACK; reciprocals of their sums.

A tridiagonal matrix with constant diagonals, except for the ends of the main one, has sines or cosines as
eigenvectors. With d on the diagonal and c next to it, the ends determine the boundary condition:

| end | boundary |
|---|---|
| d | value 0 at the point behind the last |
| d + c | derivative 0 half a cell behind the last point |
| d - c | value 0 half a cell behind the last point |

So does a symmetric circulant matrix, for a periodic axis.

Source: Strang, The Discrete Cosine Transform, SIAM Review 41 (1999); Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7
(1970).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ...backends import Array, Backend
from .detect import Separable, on_axis
from .transforms import angles

_PART = 2**17  # eigenvalues that are processed at a time
_CLOSE = 100  # difference of equal entries, in rounding units of the largest entry
_ENDS = {  # (first end, last end), 1 for d + c and -1 for d - c -> transform into the eigenvectors
    (0, 0): "DST-I",
    (0, -1): "DST-V",
    (-1, 0): "DST-VI",
    (0, 1): "DST-VII",
    (1, 0): "DCT-VIII",
    (1, 1): "DCT-II",
    (-1, -1): "DST-II",
    (1, -1): "DCT-IV",
    (-1, 1): "DST-IV",
}


class AxisSpectrum(NamedTuple):
    """Eigenvalues `base + values` along one axis, with eigenvectors as a fast transform or as matrices.

    For sines and cosines `base` is the sum of an inner row, near the eigenvalues of smooth ones. If the sums of all
    axes cancel, as for Laplacians, they cancel exactly, and small eigenvalues keep their digits.

    Attributes:
        base: one number.
        values: `(n,)`.
        kind: of the transform into the eigenvectors, in `transforms.KINDS`; None if there are matrices.
        vectors, inverse: `(n, n)`, with `A = vectors @ diag(base + values) @ inverse`; None for a fast transform.
    """

    base: Any
    values: np.ndarray
    kind: str | None
    vectors: Any = None
    inverse: Any = None


def trigonometric_eigenvectors(A: sp.csr_array, eps: float) -> AxisSpectrum | None:
    """Eigenvalues by formula for (nearly) constant tridiagonal and circulant matrices; None for others.

    Args:
        A: in double precision.
        eps: rounding unit of the given entries.

    Cost: a few passes over the entries.
    """
    n, entries = A.shape[0], sp.coo_array(A)
    limit = _limit(A, eps)
    if n < 3:
        return None
    if np.all(np.abs(entries.row - entries.col) <= 1) and (A.dtype.kind == "f" or not np.any(A.data.imag)):
        return _of_constants(A.diagonal().real, A.diagonal(1).real, A.diagonal(-1).real, limit)
    return _of_period(entries, limit)


def eigen(A: sp.csr_array, eps: float) -> AxisSpectrum | None:
    """Eigendecomposition of a Hermitian matrix, or of a tridiagonal one that is diagonally similar to one; else None.

    Args:
        A, eps: as for `trigonometric_eigenvectors`.

    Cost: 10 n^3 operations.
    """
    A, n = A.real if A.dtype.kind == "c" and not np.any(A.data.imag) else A, A.shape[0]
    entries = sp.coo_array(A)
    if np.all(np.abs(entries.row - entries.col) <= 1) and A.dtype.kind == "f" and n > 1:
        return _of_tridiagonal(A.diagonal(), A.diagonal(1), A.diagonal(-1), eps)
    dense = A.toarray()
    if np.max(np.abs(dense - dense.conj().T), initial=0) > _limit(A, eps):
        return None
    values, vectors = np.linalg.eigh(dense)
    return AxisSpectrum(0, values, None, vectors, np.ascontiguousarray(vectors.conj().T))


def _limit(A: sp.csr_array, eps: float) -> float:
    return _CLOSE * eps * float(np.max(np.abs(A.data), initial=0))


def _of_constants(d: np.ndarray, up: np.ndarray, low: np.ndarray, limit: float) -> AxisSpectrum | None:
    n, c, middle = len(d), up[0], d[len(d) // 2]
    if np.any(np.abs(up - c) > limit) or np.any(np.abs(low - c) > limit) or c == 0:
        return None
    if np.any(np.abs(d[1:-1] - middle) > limit):
        return None
    ends = []
    for end in (d[0], d[-1]):
        multiples = [k for k in (0, 1, -1) if abs(end - middle - k * c) <= limit]
        if not multiples:
            return None
        ends.append(multiples[0])
    kind = _ENDS[ends[0], ends[1]]
    return AxisSpectrum(middle + 2 * c, -4 * c * np.sin(angles(kind, n) / 2) ** 2, kind)


def _of_period(entries: sp.coo_array, limit: float) -> AxisSpectrum | None:
    n = entries.shape[0]
    kept = np.abs(entries.data) > limit
    rows, steps, values = entries.row[kept], (entries.col[kept] - entries.row[kept]) % n, entries.data[kept]
    order = np.lexsort((steps, rows))
    if not len(order) or len(order) % n:
        return None
    rows, steps, values = (a[order].reshape(n, -1) for a in (rows, steps, values))
    mirrored = np.roll(values[0][::-1], 1 if steps[0, 0] == 0 else 0)
    if np.any(rows != np.arange(n)[:, None]) or np.any(steps != steps[0]) or np.any(np.sort(-steps[0] % n) != steps[0]):
        return None
    if np.any(np.abs(values - values[0]) > limit) or np.any(np.abs(mirrored - values[0]) > limit):
        return None
    half = angles("periodic", n) / 2
    of_waves = sum(-2 * c * np.sin(half * step) ** 2 for c, step in zip(values[0], steps[0], strict=True))
    return AxisSpectrum(values[0].sum(), of_waves, "periodic")


def _of_tridiagonal(d: np.ndarray, up: np.ndarray, low: np.ndarray, eps: float) -> AxisSpectrum | None:
    """Use a diagonal S that makes `S^-1 A S` symmetric, for off-diagonal pairs of equal sign."""
    product = up * low
    if np.any(product < 0) or np.any((product == 0) & ((up != 0) | (low != 0))):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(product > 0, np.log(np.abs(low) / np.abs(up)) / 2, 0)
    logs = np.concatenate([[0], np.cumsum(steps)])
    logs -= (logs.max() + logs.min()) / 2
    if np.max(np.abs(logs)) > -np.log(eps) / 4:  # the vectors would lose too many digits
        return None
    values, vectors = scipy.linalg.eigh_tridiagonal(d, np.sign(up) * np.sqrt(product))
    scale = np.exp(logs)[:, None]
    return AxisSpectrum(0, values, None, scale * vectors, (vectors / scale).T)


# --- reciprocals of sums of eigenvalues, with exceptions for those that are zero or unwanted


class Reciprocal(NamedTuple):
    """`1 / v`, but `instead` where `sign v <= limit`, or `|v| <= limit` if `sign` is 0; with `limit >= 0`."""

    limit: float = -1.0
    instead: float = 0.0
    sign: int = 0

    def invert(self, values: np.ndarray) -> None:
        """Replace values by their reciprocals, in NumPy."""
        small = None if self.limit < 0 else np.nonzero(self._size(np, values) <= self.limit)
        if small is not None:
            values[small] = 1
        np.divide(1, values, out=values)
        if small is not None:
            values[small] = self.instead

    def of(self, bk: Backend, values: Array) -> Array:
        """Reciprocals as a new array of any library."""
        if self.limit < 0:
            return 1 / values
        small = self._size(bk, values) <= self.limit
        return bk.where(small, self.instead, 1 / bk.where(small, 1, values))

    def times(self, factor: float) -> Reciprocal:
        """Rule for eigenvalues multiplied by a positive factor."""
        return Reciprocal(self.limit * factor, self.instead / factor, self.sign)

    def _size(self, bk: Any, values: Array) -> Array:
        return self.sign * values if self.sign else bk.abs(values)


Values = Callable[[], Iterable[np.ndarray]]  # each call returns the eigenvalues, part by part
Rule = Callable[[Values, Separable, float], tuple[Reciprocal, float]]
"""(eigenvalues, their sum, rounding unit) -> their reciprocals, and the smallest eigenvalue."""


def sums_in_parts(spectra: Sequence[np.ndarray], total: Any) -> Iterator[np.ndarray]:
    """Yield the sums of `total` and an eigenvalue of each axis, `(*grid)`, some planes of the first axis at a time."""
    first, *others = spectra
    rest = sum((on_axis(values, axis, len(spectra)) for axis, values in enumerate(others, 1)), np.asarray(total))
    planes = max(1, _PART // max(math.prod(map(len, others)), 1))
    for start in range(0, len(first), planes):
        yield on_axis(first[start : start + planes], 0, len(spectra)) + rest


def extremes_of(values: Values) -> tuple[float, float]:
    """Smallest and largest real eigenvalue."""
    ends = [(float(np.min(part)), float(np.max(part))) for part in values() if part.size]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0.0, 0.0)


def nearest_to_zero(spectra: Sequence[np.ndarray], total: Any) -> tuple[Any, tuple[int, ...]]:
    """The sum of smallest magnitude, and its position on the grid."""
    found: tuple[Any, tuple[int, ...]] = (np.inf, ())
    start = 0
    for part in sums_in_parts(spectra, total):
        at = np.unravel_index(np.argmin(np.abs(part)), part.shape)
        if abs(part[at]) < abs(found[0]):
            found = part[at], (start + int(at[0]), *map(int, at[1:]))
        start += len(part)
    return found
