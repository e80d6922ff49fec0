"""Null vectors by inverse iteration with shifted factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend

_MOST_STEPS = 12  # of the iteration; mostly 3, more where other singular values lie near the shift
_ABOUT, _MORE = 1e4, 32  # tolerance of the first guess: rounding units, and multiple of the final one
_BY_DOUBLE, _BY_SINGLE = 4, 0.5  # rounding units of the entries that may make the sum over a row what it is
_SEED = 7  # of the first vectors, so that solves can be repeated


class Equations(NamedTuple):
    """A matrix and its shifted inverse, as functions of rows `(systems, n)`.

    Attributes:
        image: x -> A x.
        solve: r -> F r, with factors of A + S; the smaller S, the faster the iteration.
        sizes: `(systems, n)`, the sum of `|a_ij| scales_j` over each row.
        scales: `(systems, n)`, column scaling.
    """

    image: Callable[[Array], Array]
    solve: Callable[[Array], Array]
    sizes: Array
    scales: Array


def both_null_vectors(
    bk: Backend,
    own: Any,
    equations: Callable[[Any], Equations],
    turned: Callable[[Any], Any],
    where: Array,
    most: int,
    dtypes: tuple[np.dtype, np.dtype],
) -> tuple[Array, Array]:
    """Orthonormal null vectors of A and of its adjoint, each `(systems, most, n)`, padded with zeros.

    First about those of the adjoint. Rounding errors of a solve in these are all that S then stands against, and it may
    be nearly orthogonal to them; without them those of A are found to the last digit, and with these those again.

    Args:
        own: the operand of `equations` for A; in a compiled function a container of arrays.
        equations: makes the equations of it.
        turned: from A to its adjoint, and back.
        where: `(systems, 1)`: for which systems to look.
        most: vectors to look for, at most.
        dtypes: of vectors, and of the entries of the matrix as it was given.

    Cost: per vector mostly 9 products and 9 solves, and once more as much to see that there are no more.
    """
    (dtype, given), adjoint = dtypes, turned(own)
    real, like = np.finfo(dtype).dtype, equations(adjoint).sizes
    strict = rounding_of_entries(given)
    limit = bk.asarray(np.full((1, 1), max(_MORE * strict, _ABOUT * float(np.finfo(dtype).eps)), real), like=like)
    none = bk.zeros((int(where.shape[0]), most, int(like.shape[1])), dtype, like)

    def side(state: tuple[Any, ...]) -> tuple[Any, ...]:
        parts, _, other, where, limit = state
        own = equations(parts)
        own = own._replace(solve=lambda r: equations(parts).solve(_off(bk, other, r)))
        basis, found = _null_vectors(bk, own, none, where, strict, limit)
        return turned(parts), other, basis, found, 0 * limit + strict

    _, right, left, *_ = bk.for_loop(3, side, (adjoint, none, none, where, limit))
    return right, left


def rounding_of_entries(dtype: np.dtype) -> float:
    """Bound of the product with a null vector, relative to the sum of the absolute values of its terms.

    Rounding the entries of a singular matrix to single precision makes half a unit of each. More would take matrices
    for singular that are not, as of long time steps.
    """
    single = np.dtype(dtype).char in "fF"
    return (_BY_SINGLE if single else _BY_DOUBLE) * float(np.finfo(dtype).eps)


def _null_vectors(
    bk: Backend, equations: Equations, none: Array, where: Array, goal: float, limit: Array
) -> tuple[Array, Array]:
    """Orthonormal null vectors `(systems, most, n)`, padded with zeros, and the systems that have any.

    `z - F A z` takes off a random z what A does not map to zero, but for the part `S / (A + S)` of it. A vector counts
    if what A makes of it is no more than `limit` times the sum of the absolute values of the terms; `goal` ends the
    iteration.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 7.6.1; Peters and Wilkinson, SIAM Rev. 21 (1979).
    """
    _, most, n = map(int, none.shape)
    dtype = bk.dtype(none)
    numbers = np.random.default_rng(_SEED).uniform(-1, 1, (n, most))
    starts = bk.asarray(numbers.astype(np.finfo(dtype).dtype), like=none)
    places = bk.asarray(np.arange(most, dtype=np.int32)[None], like=none)

    def goes_on(state: tuple[Array, ...]) -> Any:
        _, number, going = state
        return bk.any(going & (number < most))

    def next_one(state: tuple[Array, ...]) -> tuple[Array, ...]:
        basis, number, going = state
        start = bk.product(starts, bk.astype(places == number, bk.dtype(starts)))
        z, found = _converged(bk, equations, basis, bk.astype(equations.scales * start, dtype), going, goal, limit)
        row = bk.where(found, number, bk.full_like(number, most))  # beyond the end: dropped
        return bk.put_row(basis, row, z), number + 1, found

    number = bk.asarray(np.zeros((1, 1), np.int32), like=none)
    basis, *_ = bk.while_loop(goes_on, next_one, (bk.copy(none), number, where))
    return basis, bk.max_abs(bk.fold(basis)) > 0


def _converged(
    bk: Backend, equations: Equations, basis: Array, z: Array, going: Array, goal: float, limit: Array
) -> tuple[Array, Array]:
    """A unit vector orthogonal to those of the basis, and whether A maps it to zero; zeros if it does not."""

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, image, _, steps = state
        z = z - equations.solve(image)
        for _ in range(2):  # once is not enough for what nearly lies in the basis
            z = _off(bk, basis, z)
        norm = bk.norm(z)
        z = bk.times(bk.safe_divide(bk.full_like(norm, 1), norm), z)
        image = equations.image(z)
        largest = bk.max_abs(z / bk.astype(equations.scales, bk.dtype(z)))
        left = bk.max_abs(bk.safe_divide(bk.abs(image), equations.sizes * largest))
        return z, image, bk.where(largest > 0, left, bk.full_like(left, np.inf)), steps + 1

    def goes_on(state: tuple[Array, ...]) -> Any:
        _, _, left, steps = state
        return bk.any(going & bk.negated(left <= goal) & (steps < _MOST_STEPS))

    image, steps = equations.image(z), bk.asarray(np.zeros((1, 1), np.int32), like=limit)
    z, _, left, _ = bk.while_loop(goes_on, step, (z, image, bk.full_like(bk.max_abs(z), np.inf), steps))
    found = (left <= limit) & going
    return bk.where(found, z, bk.zeros_like(z)), found


def _off(bk: Backend, basis: Array, x: Array) -> Array:
    """Project orthonormal vectors `(systems, k, n)` out of x."""
    return x - bk.product(bk.matrix_transpose(basis), bk.product(bk.conj(basis), x))
