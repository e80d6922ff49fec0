"""Kernels of the array API standard: dense factorisations made of products of matrices, Fourier transforms.

One matrix, and one right-hand side, after the other: a batch then has the digits of its single systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array
from ..interface.kernels import Fourier, Linalg
from .segments import in_order


class ArrayApiLinalg(Linalg):
    """LU and Cholesky by halves; eigenvalues by the library's own `linalg`."""

    def __init__(self, namespace: Any, is_complex: Callable[[Array], bool]) -> None:
        self.namespace, self._is_complex = namespace, is_complex

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        xp = self.namespace
        index = xp.arange(int(matrix.shape[-1]), dtype=xp.int64, device=matrix.device)
        with np.errstate(all="ignore"):  # of libraries that compute with NumPy
            found = [lu(xp, one, index) for one in _each(xp, matrix)]
        return self._whole(matrix, [f for f, _ in found]), self._whole(matrix, [order for _, order in found])

    def lu_solve(self, factors: tuple[Array, ...], b: Array, transposed: bool = False) -> Array:
        return super().lu_solve(factors, in_order(self.namespace, b), transposed)

    def solve_triangular(self, matrix: Array, b: Array, lower: bool) -> Array:
        return super().solve_triangular(matrix, in_order(self.namespace, b), lower)

    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        return super().cholesky_solve(factor, in_order(self.namespace, b))

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        xp = self.namespace

        def solve(one: Array, order: Array, b: Array) -> Array:
            if not transposed:
                return solve_upper(xp, one, solve_lower(xp, one, xp.take(b, order, axis=0), unit=True))
            turned = xp.matrix_transpose(one)
            found = solve_upper(xp, turned, solve_lower(xp, turned, b), unit=True)
            return xp.take(found, xp.argsort(order), axis=0)

        return self._columns(solve, factors, columns)

    def inverse(self, matrix: Array) -> Array:
        xp, n = self.namespace, int(matrix.shape[-1])
        identity = xp.eye(n, dtype=matrix.dtype, device=matrix.device)
        return self._lu_columns(self.lu_factor(matrix), xp.broadcast_to(identity, tuple(matrix.shape)), False)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        xp, solve = self.namespace, solve_lower if lower else solve_upper
        return self._columns(lambda one, b: solve(xp, one, b), (matrix,), columns)

    def cholesky(self, matrix: Array) -> Array | None:
        xp, is_complex = self.namespace, self._is_complex(matrix)
        with np.errstate(all="ignore"):
            found = self._whole(matrix, [cholesky(xp, one, is_complex) for one in _each(xp, matrix)])
        return found if bool(xp.all(xp.isfinite(found))) else None

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        xp = self.namespace

        def solve(one: Array, b: Array) -> Array:
            adjoint = xp.matrix_transpose(xp.conj(one) if self._is_complex(one) else one)
            return solve_upper(xp, adjoint, solve_lower(xp, one, b))

        return self._columns(solve, (factor,), columns)

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = self.namespace.linalg.eigh(matrix)
        return values, vectors

    def _turned(self, rows: Array) -> Array:
        return self.namespace.matrix_transpose(rows)

    def _columns(self, solve: Callable[..., Array], factors: tuple[Array, ...], columns: Array) -> Array:
        """`solve(*factors, column)`, column by column, of one matrix or of several."""
        xp = self.namespace
        with np.errstate(all="ignore"):
            if len(factors[0].shape) == 2:
                found = [solve(*factors, columns[:, i : i + 1]) for i in range(int(columns.shape[1]))]
                return xp.concat(found, axis=1) if found else columns
            systems = range(int(columns.shape[0]))
            several = [self._columns(solve, tuple(f[i, ...] for f in factors), columns[i, ...]) for i in systems]
        return xp.stack(several) if several else columns

    def _whole(self, matrix: Array, found: list[Array]) -> Array:
        """What was found of each matrix, with the axes of a batch in front."""
        if len(matrix.shape) == 2:
            return found[0]
        rest = tuple(found[0].shape) if found else tuple(matrix.shape)[-1:]
        return self.namespace.reshape(self.namespace.stack(found), (*tuple(matrix.shape)[:-2], *rest))


def _each(xp: Any, matrix: Array) -> Iterator[Array]:
    shape = tuple(int(n) for n in matrix.shape)
    stack = xp.reshape(matrix, (-1, *shape[-2:]))
    return (stack[i, ...] for i in range(int(stack.shape[0])))


# --- Triangular solves and factorisations of one matrix by halves: products of matrices, and single rows at the end ---
# `linalg` of the array API standard has no LU, no triangular solve, and what it has raises for singular matrices. Here
# divisions by zero give what they give. Matrices and right-hand sides are `(n, n)` and `(n, k)`.


def solve_lower(xp: Any, matrix: Array, b: Array, unit: bool = False) -> Array:
    """Solve with the lower triangle; `unit`: with ones on its diagonal, whatever is stored there."""
    n = int(matrix.shape[0])
    if n < 2:
        return b if unit or not n else b / matrix
    h = n // 2
    first = solve_lower(xp, matrix[:h, :h], b[:h, :], unit)
    rest = b[h:, :] - xp.matmul(matrix[h:, :h], first)
    return xp.concat([first, solve_lower(xp, matrix[h:, h:], rest, unit)], axis=0)


def solve_upper(xp: Any, matrix: Array, b: Array, unit: bool = False) -> Array:
    """Solve with the upper triangle."""
    n = int(matrix.shape[0])
    if n < 2:
        return b if unit or not n else b / matrix
    h = n // 2
    last = solve_upper(xp, matrix[h:, h:], b[h:, :], unit)
    rest = b[:h, :] - xp.matmul(matrix[:h, h:], last)
    return xp.concat([solve_upper(xp, matrix[:h, :h], rest, unit), last], axis=0)


def lu(xp: Any, matrix: Array, index: Array) -> tuple[Array, Array]:
    """LU with partial pivoting of `(m, k)`, m >= k >= 1: both triangles in one array, and the order of the rows.

    Args:
        index: integers 0 ... m - 1.
    """
    m, k = (int(size) for size in matrix.shape)
    if k == 1:
        return _pivoted(xp, matrix, index)
    h = k // 2
    left, order = lu(xp, matrix[:, :h], index)
    right = xp.take(matrix[:, h:], order, axis=0)
    upper = solve_lower(xp, left[:h, :], right[:h, :], unit=True)
    below, swapped = lu(xp, right[h:, :] - xp.matmul(left[h:, :], upper), index[: m - h])
    lower = xp.take(left[h:, :], swapped, axis=0)
    factors = xp.concat([xp.concat([left[:h, :], lower], axis=0), xp.concat([upper, below], axis=0)], axis=1)
    return factors, xp.concat([order[:h], xp.take(order[h:], swapped, axis=0)], axis=0)


def _pivoted(xp: Any, column: Array, index: Array) -> tuple[Array, Array]:
    """One column: the largest entry comes first, and the others are divided by it, unless all are zero."""
    best = xp.argmax(xp.abs(column[:, 0]))
    order = xp.where(index == 0, best, xp.where(index == best, xp.zeros_like(index), index))
    column = xp.take(column, order, axis=0)
    pivot = column[:1, :]
    return xp.concat([pivot, column[1:, :] / xp.where(pivot == 0, xp.ones_like(pivot), pivot)], axis=0), order


def cholesky(xp: Any, matrix: Array, is_complex: bool) -> Array:
    """Lower factor of the lower triangle `(n, n)`, n >= 1; NaN where the matrix is not positive definite."""
    n = int(matrix.shape[0])
    if n == 1:
        return _root(xp, matrix, is_complex)
    h = n // 2
    first = cholesky(xp, matrix[:h, :h], is_complex)
    own = xp.conj(first) if is_complex else first
    below = solve_lower(xp, own, xp.matrix_transpose(matrix[h:, :h]))
    below = xp.matrix_transpose(below)
    adjoint = xp.matrix_transpose(xp.conj(below) if is_complex else below)
    last = cholesky(xp, matrix[h:, h:] - xp.matmul(below, adjoint), is_complex)
    above = xp.zeros((h, n - h), dtype=matrix.dtype, device=matrix.device)
    return xp.concat([xp.concat([first, above], axis=1), xp.concat([below, last], axis=1)], axis=0)


def _root(xp: Any, number: Array, is_complex: bool) -> Array:
    """Of one entry, whose imaginary part does not count."""
    if not is_complex:
        return xp.sqrt(number)  # NaN of a negative one
    return xp.astype(xp.sqrt(xp.real(number)), number.dtype)


# --- Fast Fourier transforms by the `fft` extension of the array API standard -----------------------------------------


class ArrayApiFourier(Fourier):
    """The library's own transforms, which need its `fft`."""

    cost = 5.0
    along_any_axis = True

    def __init__(self, namespace: Any, is_complex: Callable[[Array], bool]) -> None:
        self.namespace, self._is_complex = namespace, is_complex

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        fft = self.namespace.fft
        return (fft.fftn if self._is_complex(x) else fft.rfftn)(x, axes=tuple(axes))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        fft = self.namespace.fft
        if length is None:
            return fft.ifftn(x, axes=tuple(axes))
        lengths = (*(int(x.shape[axis]) for axis in axes[:-1]), length)
        return fft.irfftn(x, s=lengths, axes=tuple(axes))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return self.namespace.real(x), self.namespace.imag(x)

    def complex(self, real: Array, imaginary: Array) -> Array:
        xp = self.namespace
        dtype = xp.result_type(real.dtype, xp.complex64)
        return xp.astype(real, dtype) + xp.astype(imaginary, dtype) * 1j
