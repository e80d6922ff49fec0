"""Triangular solves and factorisations of one matrix by halves: products of matrices, and single rows at the end.

`linalg` of the array API standard has no LU, no triangular solve, and what it has raises for singular matrices. Here
divisions by zero give what they give. Matrices and right-hand sides are `(n, n)` and `(n, k)`.
"""

from __future__ import annotations

from typing import Any

from ..interface.arrays import Array


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
