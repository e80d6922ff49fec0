"""Transforms along the axes of a grid: eleven orthonormal kinds of DCT and DST, and operators made of them.

    y_k = s_k sum over j of f(pi (2 j + a) (2 k + b) x_j / (4 n + c)),    j, k = 0 ... n - 1,    f = sin or cos

"periodic" is the twelfth, with sin + cos (Hartley's transform) over 2 n, which is real like the others. All are
computed by Fourier transforms:

| kinds | how | length |
|---|---|---|
| DCT-II, III | Makhoul: even positions first, then the odd ones backwards | n |
| DST-II, III | DCT-II, III with alternating signs, backwards | n |
| DCT-IV, DST-IV | odd frequencies of DCT-II of twice as many numbers | 2 n |
| DST-I | the odd continuation | 2 n + 2 |
| DST-V, VI, VII, DCT-VIII | the odd continuation | 2 n + 1 |
| periodic | sums of real and imaginary parts | n |

Source: Strang, The Discrete Cosine Transform, SIAM Review 41 (1999); Makhoul, IEEE Trans. ASSP 28 (1980); Martucci,
IEEE Trans. Signal Process. 42 (1994), for the kinds V to VIII.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Composed, Dense, Operator, storable
from ..diagonal import DiagonalOperator

_PASSES, _MOST_FACTORS = 20, 150  # overhead of a Fourier transform, and its cost by Bluestein's algorithm


class TransformKind(NamedTuple):
    """Parameters of the sum above, and length of the Fourier transform, in which `(a, b)` stands for `a n + b`."""

    f: Callable[[np.ndarray], np.ndarray]
    a: int
    b: int
    whole: tuple[int, int]
    length: tuple[int, int]
    inverse: str


def _sin_plus_cos(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(x) + np.cos(x))


KINDS = {
    "DST-I": TransformKind(np.sin, 2, 2, (4, 4), (2, 2), "DST-I"),
    "DST-II": TransformKind(np.sin, 1, 2, (4, 0), (1, 0), "DST-III"),
    "DST-III": TransformKind(np.sin, 2, 1, (4, 0), (1, 0), "DST-II"),
    "DST-IV": TransformKind(np.sin, 1, 1, (4, 0), (2, 0), "DST-IV"),
    "DST-V": TransformKind(np.sin, 2, 2, (4, 2), (2, 1), "DST-V"),
    "DST-VI": TransformKind(np.sin, 1, 2, (4, 2), (2, 1), "DST-VII"),
    "DST-VII": TransformKind(np.sin, 2, 1, (4, 2), (2, 1), "DST-VI"),
    "DCT-II": TransformKind(np.cos, 1, 0, (4, 0), (1, 0), "DCT-III"),
    "DCT-III": TransformKind(np.cos, 0, 1, (4, 0), (1, 0), "DCT-II"),
    "DCT-IV": TransformKind(np.cos, 1, 1, (4, 0), (2, 0), "DCT-IV"),
    "DCT-VIII": TransformKind(np.cos, 1, 1, (4, 2), (2, 1), "DCT-VIII"),
    "periodic": TransformKind(_sin_plus_cos, 0, 0, (2, 0), (1, 0), "periodic"),
}


def angles(kind: str, n: int) -> np.ndarray:
    """`(n,)`: phase increment of the k-th wave from one point to the next."""
    _, _, b, (times, plus), *_ = KINDS[kind]
    found: np.ndarray = 2 * np.pi * (2 * np.arange(n) + b) / (times * n + plus)
    return found


@lru_cache(maxsize=8)
def transform_matrix(kind: str, n: int) -> np.ndarray:
    """`(n, n)`: the transform as an orthogonal matrix, read-only."""
    f, a, b, (times, plus), _, inverse = KINDS[kind]
    if kind in ("DST-III", "DCT-III"):  # their first or last column is shorter
        return transform_matrix(inverse, n).T
    j = np.arange(n)
    whole = times * n + plus
    matrix = f(np.pi / whole * (np.outer(2 * j + b, 2 * j + a) % (2 * whole)))  # integers are reduced without rounding
    matrix /= np.sqrt(np.sum(matrix**2, axis=1, keepdims=True))
    matrix.flags.writeable = False
    return matrix


def is_fast(bk: Backend, kind: str, n: int) -> bool:
    """Whether the fast transform of n numbers is faster than a product with its matrix."""
    return n > fast_cost(bk, kind, n)


def fast_cost(bk: Backend, kind: str, n: int) -> float:
    """Cost per number of the fast transform of n numbers, relative to n for the dense product.

    The time of a Fourier transform is proportional to the sum of the prime factors of its length, up to a limit for
    lengths without small factors, and that of a product to n. Their ratio depends on the library.
    """
    times, plus = KINDS[kind].length
    factors = min(_sum_of_prime_factors(times * n + plus), _MOST_FACTORS)
    return bk.fourier.cost * times * (factors + _PASSES)


def _sum_of_prime_factors(n: int) -> int:
    total, p = 0, 2
    while p * p <= n:
        while n % p == 0:
            n, total = n // p, total + p
        p += 1
    return total + (n if n > 1 else 0)


def trigonometric_transform(bk: Backend, kind: str, x: Array, axes: Sequence[int]) -> Array:
    """Transform `x` along these axes in turn.

    Cost: a Fourier transform of each line, with the length in the table above; two for complex x.
    """
    found = bk.fourier.trigonometric(kind, x, axes)
    if found is not None:
        return found
    if bk.dtype(x).kind == "c":
        return bk.fourier.complex(*(trigonometric_transform(bk, kind, part, axes) for part in bk.fourier.parts(x)))
    rank = len(x.shape)
    for axis in axes:
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]  # its own inverse
        moved = axis % rank != rank - 1
        # Otherwise XLA would transpose twice, because the lines are read twice, and hold two more copies.
        lines = _lines(bk, kind, bk.materialize(bk.permute_dims(x, order)) if moved else x)
        x = bk.permute_dims(lines, order) if moved else lines
    return x


def _lines(bk: Backend, kind: str, x: Array) -> Array:
    """Transform the last axis of a real array."""
    if kind in ("DST-I", "DST-V"):
        return _odd(bk, x, zeros=2 if kind == "DST-I" else 1)
    if kind == "DCT-II":
        return _cosines(bk, x)
    if kind == "DCT-III":
        return _of_cosines(bk, x)
    if kind == "periodic":
        return _of_period(bk, x)
    if kind == "DCT-IV":
        return _cosines(bk, bk.concat([x, -_backwards(bk, x)], -1))[..., 1::2] * float(np.sqrt(0.5))
    other, steps = _BY_OTHERS[kind]
    for step in steps:
        x = _lines(bk, other, x) if step == "transform" else _STEPS[step](bk, x)
    return x


def _backwards(bk: Backend, x: Array) -> Array:
    return bk.flip(x, (len(x.shape) - 1,))


def _alternating(bk: Backend, x: Array) -> Array:
    return x * _constant(bk, 1.0 - 2 * (np.arange(int(x.shape[-1])) % 2), x)


_STEPS = {"backwards": _backwards, "alternating": _alternating}
_BY_OTHERS = {
    "DST-II": ("DCT-II", ("alternating", "transform", "backwards")),
    "DST-III": ("DCT-III", ("backwards", "transform", "alternating")),
    "DST-IV": ("DCT-IV", ("backwards", "transform", "alternating")),
    "DST-VI": ("DST-V", ("backwards", "transform", "alternating")),
    "DST-VII": ("DST-V", ("alternating", "transform", "backwards")),
    "DCT-VIII": ("DST-VII", ("backwards", "transform", "alternating")),
}


def _constant(bk: Backend, values: np.ndarray, x: Array) -> Array:
    return bk.asarray(values, bk.dtype(x), like=x)


def _odd(bk: Backend, x: Array, zeros: int) -> Array:
    n = int(x.shape[-1])
    zero = bk.zeros((*x.shape[:-1], 1), bk.dtype(x), x)
    continued = bk.concat([zero, x, *([zero] if zeros == 2 else []), -_backwards(bk, x)], -1)
    _, imaginary = bk.fourier.parts(bk.fourier.forward(continued, (-1,)))
    return imaginary[..., 1 : n + 1] * float(-1 / np.sqrt(2 * n + zeros))


def _of_period(bk: Backend, x: Array) -> Array:
    n = int(x.shape[-1])
    real, imaginary = bk.fourier.parts(bk.fourier.forward(x, (-1,)))
    last = (real + imaginary)[..., 1 : (n + 1) // 2]
    return bk.concat([real - imaginary, _backwards(bk, last)], -1) * float(1 / np.sqrt(n))


def _cosines(bk: Backend, x: Array) -> Array:
    n = int(x.shape[-1])
    if n == 1:
        return x
    scales, waves = _scales_and_phases(n)
    mixed = bk.concat([x[..., ::2], _backwards(bk, x[..., 1::2])], -1)
    real, imaginary = bk.fourier.parts(bk.fourier.forward(mixed, (-1,)))
    cos, sin = (_constant(bk, scales * f(waves), x) for f in (np.cos, np.sin))
    first, last = real * cos + imaginary * sin, real * sin - imaginary * cos
    return bk.concat([first, _backwards(bk, last[..., 1 : (n + 1) // 2])], -1)


def _of_cosines(bk: Backend, x: Array) -> Array:
    n = int(x.shape[-1])
    if n == 1:
        return x
    scales, waves = _scales_and_phases(n)
    cos, sin = (_constant(bk, f(waves) / scales, x) for f in (np.cos, np.sin))
    first = x[..., : n // 2 + 1]
    last = bk.concat([bk.zeros((*x.shape[:-1], 1), bk.dtype(x), x), _backwards(bk, x)[..., : n // 2]], -1)
    spectrum = bk.fourier.complex(first * cos + last * sin, first * sin - last * cos)
    mixed = bk.fourier.backward(spectrum, (-1,), n)
    half = (n + 1) // 2
    odd = _backwards(bk, mixed[..., half:])
    if n % 2:
        odd = bk.concat([odd, odd[..., :1]], -1)
    lead = tuple(x.shape[:-1])
    pairs = bk.concat([bk.reshape(part, (*lead, half, 1)) for part in (mixed[..., :half], odd)], -1)
    return bk.reshape(pairs, (*lead, 2 * half))[..., :n]


def _scales_and_phases(n: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(n // 2 + 1, dtype=np.float64)
    # torch.compile would convert the result of `where`, or integers, to single precision.
    return np.sqrt(np.minimum(k + 1.0, 2.0) / n), np.pi * k / (2 * n)


# --- operators along the axes of a grid around one core: dense, trigonometric and Fourier transforms


@storable("along an axis")
@dataclass(eq=False, repr=False)
class AlongAxis(Composed):
    """`vectors @ inner @ inverse` with dense matrices along one axis of the grid.

    Attributes:
        inner: operator on all unknowns.
        vectors, inverse: `(n_k, n_k)`.
        grid: lengths of the axes.
        axis: index of the axis.
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
        """Multiply all lines along the axis, for rows `(batch, n)`."""
        bk, n = self.bk, self.grid[self.axis]
        before = int(x.shape[0]) * math.prod(self.grid[: self.axis])
        after = math.prod(self.grid[self.axis + 1 :])
        if after == 1:
            image = bk.product(matrix.matrix, bk.reshape(x, (before, n)))
        elif before == 1:  # the transpose is a view that libraries pass to BLAS
            image = bk.product(bk.matrix_transpose(bk.reshape(x, (n, after))), matrix.matrix)
        else:
            lines = bk.permute_dims(bk.reshape(x, (before, n, after)), (0, 2, 1))
            image = bk.product(matrix.matrix, bk.reshape(lines, (before * after, n)))
            image = bk.permute_dims(bk.reshape(image, (before, after, n)), (0, 2, 1))
        return bk.reshape(image, tuple(x.shape))

    def transpose(self) -> AlongAxis:
        inner = self.inner.transpose()
        return AlongAxis(inner, self.inverse.transpose(), self.vectors.transpose(), self.grid, self.axis)


@storable("waves along axes")
@dataclass(eq=False, repr=False)
class AlongTrigonometric(Composed):
    """Trigonometric transforms of one kind along some axes around `inner`.

    Attributes:
        inner: operator on all unknowns; if `swapped`, on the grid with the last axis and the single one here swapped.
        kind: of the transform, see `KINDS`.
        grid: lengths of the axes.
        axes: indices of the axes.
        swapped: for libraries that only transform the last axis, so that other axes are moved there once, not twice.
    """

    inner: Operator
    kind: str
    grid: tuple[int, ...]
    axes: tuple[int, ...]
    swapped: bool

    def apply(self, x: Array) -> Array:
        bk, batch, rank = self.bk, int(x.shape[0]), len(self.grid)
        order, axes = list(range(rank + 1)), tuple(axis + 1 for axis in self.axes)
        if self.swapped:
            order[axes[0]], order[rank] = rank, axes[0]  # its own inverse
            axes = (rank,)
        lines = bk.reshape(x, (batch, *self.grid))
        lines = bk.permute_dims(lines, order) if self.swapped else lines
        shape = tuple(lines.shape)
        found = trigonometric_transform(bk, self.kind, lines, axes)
        found = bk.reshape(self.inner.apply(bk.reshape(found, (batch, -1))), shape)
        found = trigonometric_transform(bk, KINDS[self.kind].inverse, found, axes)
        return bk.reshape(bk.permute_dims(found, order) if self.swapped else found, (batch, -1))

    def transpose(self) -> AlongTrigonometric:  # the transform is orthonormal
        return replace(self, inner=self.inner.transpose())


@storable("periodic axes")
@dataclass(eq=False, repr=False)
class Periodic(Composed):
    """A diagonal between Fourier transforms along periodic axes, symmetric in the frequencies of each.

    Attributes:
        inner: the diagonal, for all frequencies; real vectors need half of them.
        grid: lengths of the axes.
        axes: the periodic ones.
    """

    inner: DiagonalOperator
    grid: tuple[int, ...]
    axes: tuple[int, ...]

    def apply(self, x: Array) -> Array:
        bk, batch, last = self.bk, int(x.shape[0]), self.axes[-1]
        values = bk.reshape(self.inner.array("values"), (-1, *self.grid))
        if bk.dtype(values).kind == "c":
            x = bk.astype(x, bk.dtype(values))
        length = None if bk.dtype(x).kind == "c" else self.grid[last]
        if length is not None:
            half = [slice(None)] * (last + 1) + [slice(0, length // 2 + 1)]
            values = values[tuple(half)]
        groups = _groups(tuple(axis + 1 for axis in self.axes))
        waves = bk.reshape(x, (batch, *self.grid))
        for axes in groups:
            waves = bk.fourier.forward(waves, axes)
        waves = bk.astype(values, bk.dtype(waves)) * waves
        for axes in reversed(groups[1:]):
            waves = bk.fourier.backward(waves, axes, None)
        return bk.reshape(bk.fourier.backward(waves, groups[0], length), (batch, -1))

    def transpose(self) -> Periodic:
        return self


def _groups(axes: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    """Groups of as many axes as libraries transform at once. The last axes come first and transform real arrays."""
    return [axes[max(0, end - 3) : end] for end in range(len(axes), 0, -3)]
