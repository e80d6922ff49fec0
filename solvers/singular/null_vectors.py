"""Null vectors by inverse iteration with shifted factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend

_MOST_STEPS = 12  # of the iteration; mostly 3, more where other singular values lie near the shift
_ABOUT, _MORE = 1e4, 32  # tolerance of the first vectors: rounding units, and multiple of the final tolerance
_BY_DOUBLE, _BY_SINGLE = 4, 0.5  # relative error of a row sum by rounding of the entries, in rounding units
_SEED = 7  # of the start vectors, so that solves can be repeated


class Equations(NamedTuple):
    """A matrix and its shifted inverse, as functions of rows `(systems, n)`.

    Attributes:
        image: x -> A x.
        solve: r -> F r, with factors of A + S. A smaller shift S makes the iteration faster.
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

    Each side is accepted by itself: one may have more vectors where a singular value is about at the limit.

    Left null vectors are first computed roughly. Only S keeps the rounding errors of a solve in their direction from
    growing, and it may be nearly orthogonal to them. After projecting them out, those of A are accurate to the last
    digit, and with these the left ones are computed again.

    Args:
        own: operand of `equations` for A; in a compiled function a container of arrays.
        equations: makes the equations of an operand.
        turned: maps the operand of A to that of its adjoint, and back.
        where: `(systems, 1)`, the systems to examine.
        most: largest number of vectors.
        dtypes: of the vectors, and of the given entries.

    Cost: mostly 9 products and 9 solves for each vector, and as many to find that there are no more.
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

    Rounding the entries of a singular matrix to single precision changes each by half a rounding unit. With a larger
    bound regular matrices of long time steps would count as singular.
    """
    single = np.dtype(dtype).char in "fF"
    return (_BY_SINGLE if single else _BY_DOUBLE) * float(np.finfo(dtype).eps)


def _null_vectors(
    bk: Backend, equations: Equations, none: Array, where: Array, goal: float, limit: Array
) -> tuple[Array, Array]:
    """Orthonormal null vectors `(systems, most, n)`, padded with zeros, and the systems that have any.

    `z - F A z` removes from a random z what A does not map to zero, up to the fraction `S / (A + S)` of it. A vector
    counts as a null vector if its image is at most `limit` times the sum of the absolute values of the terms. `goal`
    ends the iteration.

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
        row = bk.where(found, number, bk.full_like(number, most))  # past the end, nothing is stored
        return bk.put_row(basis, row, z), number + 1, found

    number = bk.asarray(np.zeros((1, 1), np.int32), like=none)
    basis, *_ = bk.while_loop(goes_on, next_one, (bk.copy(none), number, where))
    return basis, bk.max_abs(bk.fold(basis)) > 0


def _converged(
    bk: Backend, equations: Equations, basis: Array, z: Array, going: Array, goal: float, limit: Array
) -> tuple[Array, Array]:
    """A unit null vector orthogonal to the basis, zeros if none was found, and whether one was found."""

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        z, image, _, steps = state
        z = z - equations.solve(image)
        for _ in range(2):  # once is not enough if z nearly lies in the span of the basis
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
