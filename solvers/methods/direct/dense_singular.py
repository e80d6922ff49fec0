"""Singular dense matrices: told from badly scaled ones, with their null vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ....backends import Array, Backend
from .null_vectors import Equations, both_null_vectors
from .singular import Singularity, suspicious

_SWEEPS = 20  # of the scales
_MOST_COMPILED = 8  # most null vectors in a compiled program
_MOST = 64  # otherwise, of matrices of more unknowns than
_FEW = 256
_REGULAR, _ILL, _SINGULAR = (int(s) for s in (Singularity.REGULAR, Singularity.ILL_CONDITIONED, Singularity.SINGULAR))


def seems_singular(bk: Backend, matrix: Array, solve: Callable[[Array], Array], pivots: Array) -> tuple[Array, Array]:
    """Is a pivot zero to working precision, or does the inverse amplify a random vector as that of a singular one?

    Rows are equilibrated for that, columns are not, so a regular matrix may seem singular.

    Args:
        matrix: `(n, n)` or `(systems, n, n)`.
        solve: with its factors, for rows `(systems or 1, n)`.
        pivots: `(n,)` or `(systems, n)`.

    Returns:
        `(systems or 1, 1)`, and what the inverse makes of the vector, `(systems or 1, n)`.
    """
    n = int(matrix.shape[-1])
    eps = float(np.finfo(bk.dtype(matrix)).eps)
    rows = _row_maxima(bk, matrix)
    vector = bk.asarray(probe_vector(n, np.dtype(bk.dtype(rows)).char), like=rows)
    image = solve(bk.astype(rows * vector, bk.dtype(matrix)))
    size = bk.reshape(bk.abs(pivots), (-1, n))
    with bk.errstate():
        most, inverse, blown = _largest(bk, size, 1 / size, bk.abs(image))
        sound = (most * inverse * (n * eps) < 1) & (blown < suspicious(bk.dtype(matrix)) / (eps * n**0.5))
    return bk.negated(sound), image


def _largest(bk: Backend, *rows: Array) -> list[Array]:
    """`max_abs` of each, in one reduction, for which XLA compiles one program."""
    found = bk.max_abs(bk.concat(rows, 0))
    systems = int(rows[0].shape[0])
    return [found[k * systems : (k + 1) * systems, :] for k in range(len(rows))]


@lru_cache(maxsize=64)
def probe_vector(n: int, dtype: str) -> np.ndarray:
    """`(1, n)` numbers of either sign, none small; not plain signs, to which a column may be proportional."""
    rng = np.random.default_rng(2)
    found: np.ndarray = (rng.choice([-1.0, 1.0], (1, n)) * rng.uniform(0.5, 1.5, (1, n))).astype(dtype)
    found.flags.writeable = False
    return found


def examined_factors(bk: Backend, matrix: Array, factors: tuple[Array, ...], suspect: Array) -> tuple[Array, ...]:
    """Factors of R A C, equilibrated by powers of two if A seems singular, shifted if it is; and null vectors.

    Equilibration makes the decision independent of row and column scaling.

    Returns:
        The factors; the diagonals of R and C as `(n or systems * n, 1)`; orthonormal null vectors of A and of its
        adjoint, `(systems or 1, most, n)`; numbers of `Singularity`, `(systems or 1, 1)`.
    """
    n, systems, dtype = int(matrix.shape[-1]), int(suspect.shape[0]), bk.dtype(matrix)
    most = min(n, _MOST_COMPILED if bk.compiled(matrix) else n if n <= _FEW else _MOST)
    one = bk.full_like(bk.max_abs(bk.reshape(matrix, (-1, n))), 1)
    none = bk.zeros((systems, most, n), dtype, matrix)
    nothing = none, none, bk.zeros((systems, 1), np.dtype(np.int32), matrix)

    def again(*_: Array) -> tuple[Array, ...]:
        rows, columns = _scales(bk, matrix, suspect)
        scaled = bk.matrix_transpose(_scaled(bk, bk.matrix_transpose(_scaled(bk, matrix, rows)), columns))
        better = bk.linalg.lu_factor(scaled)
        still, image = seems_singular(bk, scaled, lambda b: bk.linalg.lu_solve(better, b), bk.diagonal(better[0]))

        def shifted(*_: Array) -> tuple[Array, ...]:
            return _shifted(bk, matrix, scaled, (rows, columns), better, still & suspect, image, most)

        def as_they_are(*_: Array) -> tuple[Array, ...]:
            return *better, *nothing

        # in a program one branch is enough: what is regular costs no step of a loop in it
        look = shifted() if bk.compiled(matrix) else bk.cond(bk.any(still & suspect), shifted, as_they_are)
        *found, right, left, singularity = look
        return *found, rows, columns, right, left, singularity

    return tuple(bk.cond(bk.any(suspect), again, lambda *_: (*factors, one, one, *nothing)))


def _shifted(
    bk: Backend,
    matrix: Array,
    scaled: Array,
    scales: tuple[Array, Array],
    factors: tuple[Array, ...],
    suspect: Array,
    image: Array,
    most: int,
) -> tuple[Array, ...]:
    """Factors of the scaled matrices, shifted for singular ones, their null vectors and `Singularity`.

    In double precision where the library has it, which tells singular from nearly singular in single precision.
    """
    n, dtype = int(matrix.shape[-1]), bk.dtype(matrix)
    wide = bk.stored_dtype(np.result_type(dtype, np.float64))
    A, B = bk.astype(matrix, wide), bk.astype(scaled, wide)
    shifted = B + _shift(bk, B, float(np.finfo(dtype).eps), float(np.finfo(wide).eps))
    rows, columns = (bk.astype(bk.reshape(s, (-1, n)), np.finfo(wide).dtype) for s in scales)
    finite = bk.isfinite(bk.max_abs(_row_maxima(bk, matrix)))
    right, left = _null_vectors(bk, A, shifted, (rows, columns), suspect & finite, most, dtype)
    blown = ~bk.isfinite(bk.max_abs(image)) & finite
    singular = suspect & (blown | (bk.max_abs(bk.fold(right)) > 0))
    ill = suspect & finite & _is_ill_conditioned(bk, scaled, factors, image)
    regular = bk.linalg.lu_factor(shifted)
    parts = [
        bk.where(_like(bk, singular, old), bk.astype(new, bk.dtype(old)), old)
        for new, old in zip(regular, factors, strict=True)
    ]
    none = bk.zeros(tuple(singular.shape), np.dtype(np.int32), matrix)
    number = bk.where(singular, none + _SINGULAR, bk.where(ill, none + _ILL, none + _REGULAR))
    return *parts, bk.astype(right, dtype), bk.astype(left, dtype), number


def _null_vectors(
    bk: Backend, A: Array, shifted: Array, scales: tuple[Array, Array], where: Array, most: int, given: np.dtype
) -> tuple[Array, Array]:
    """Null vectors of A and its adjoint by inverse iteration with the shifted R A C, both in one loop."""
    single = len(A.shape) == 2
    inverse = bk.linalg.inverse(shifted[None, ...] if single else shifted)
    inverse = inverse[0, ...] if single else inverse
    rows, columns = scales

    def adjoint(matrix: Array) -> Array:
        return bk.conj(bk.matrix_transpose(matrix))

    def turned(parts: tuple[Array, ...]) -> tuple[Array, ...]:
        A, inverse, rows, columns = parts
        return adjoint(A), adjoint(inverse), columns, rows

    def equations(parts: tuple[Array, ...]) -> Equations:
        A, inverse, rows, columns = parts
        sizes, dtype = bk.product(bk.abs(A), columns), bk.dtype(A)

        def solve(b: Array) -> Array:
            return bk.astype(columns, dtype) * bk.product(inverse, bk.astype(rows, dtype) * b)

        return Equations(lambda x: bk.product(A, x), solve, sizes, columns)

    first = adjoint(A), adjoint(inverse), columns, rows
    return both_null_vectors(bk, first, equations, turned, where, most, (bk.dtype(A), given))


def _like(bk: Backend, mask: Array, array: Array) -> Array:
    """Reshape `(systems or 1, 1)` to select whole matrices, or rows of pivots."""
    lead = int(mask.shape[0])
    return bk.reshape(mask, (lead, *(1,) * (len(array.shape) - 1)))


def _is_ill_conditioned(bk: Backend, matrix: Array, factors: tuple[Array, ...], image: Array) -> Array:
    """Is the reciprocal condition number below the rounding unit?

    Args:
        image: the inverse times a random vector; its adjoint times that estimates the norm.
    """
    n, eps = int(matrix.shape[-1]), float(np.finfo(bk.dtype(matrix)).eps)
    size = bk.norm(image)
    back = bk.conj(bk.linalg.lu_solve(factors, bk.conj(bk.times(1 / size, image)), True))
    rows = bk.sum(bk.abs(matrix), -1)
    return bk.negated(bk.norm(back) * bk.max_abs(bk.reshape(rows, (-1, n))) * eps < 1)


def _shift(bk: Backend, matrix: Array, given: float, own: float) -> Array:
    """Shift: a small diagonal in proportion to the row sizes, plus a dense part of about the same norm.

    A diagonal suffices where null vectors of A resemble those of its adjoint; but their supports may be disjoint.

    Args:
        given: rounding unit of the entries, below which singular values may lie that should be zero.
        own: that of the computation.
    """
    n = int(matrix.shape[-1])
    real = np.finfo(bk.dtype(matrix)).dtype
    rng = np.random.default_rng(5)
    form = np.diag(rng.uniform(0.75, 1.25, n)) + rng.uniform(-0.5, 0.5, (n, n)) / np.sqrt(n)
    amount = max(own**0.5, 64 * given if own < given else 0.0) * _row_maxima(bk, matrix)
    by_rows = bk.reshape(amount, (-1, n, 1)) * bk.asarray(form.astype(real), like=matrix)
    return bk.astype(bk.reshape(by_rows, tuple(matrix.shape)), bk.dtype(matrix))


def _row_maxima(bk: Backend, matrix: Array) -> Array:
    """`(systems or 1, n)`; 1 for rows of zeros."""
    n = int(matrix.shape[-1])
    rows = bk.reshape(bk.max_abs(bk.reshape(matrix, (-1, n))), (-1, n))
    return bk.where(rows > 0, rows, bk.full_like(rows, 1))


def _scales(bk: Backend, matrix: Array, where: Array) -> tuple[Array, Array]:
    """Equilibration by powers of two, `(systems * n, 1)` for rows and for columns, of some systems.

    Args:
        where: `(systems, 1)`; the scales of the others are 1.

    As `sparse.analysis.equilibrate.scales`, which says more.
    """
    n = int(matrix.shape[-1])
    sizes = bk.abs(matrix)
    largest = bk.binary_scale(bk.reshape(sizes, (-1, n * n)))  # (systems, 1)
    sizes = bk.reshape(bk.times(1 / largest, bk.reshape(sizes, (-1, n * n))), tuple(matrix.shape))
    turned = bk.matrix_transpose(sizes)
    one = bk.full_like(bk.broadcast_to(largest, (int(largest.shape[0]), n)), 1)
    rows, columns = balanced(bk, lambda x: bk.product(sizes, x), lambda x: bk.product(turned, x), one, matrix)
    rows = rows / largest
    rows, columns = bk.where(where, rows, one), bk.where(where, columns, one)
    return bk.binary_scale(bk.reshape(rows, (-1, 1))), bk.binary_scale(bk.reshape(columns, (-1, 1)))


def balanced(
    bk: Backend, product: Callable[[Array], Array], adjoint: Callable[[Array], Array], one: Array, like: Array
) -> tuple[Array, Array]:
    """Equilibrate: positive scales `(systems, n)` of rows and columns that make their sums about equal.

    Args:
        product, adjoint: products of |A| and its transpose with rows `(systems, n)`.
        one: `(systems, n)` ones.
    """

    def sweep(state: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, columns, count = state
        by_row, by_column = rows * product(columns), columns * adjoint(rows)
        return rows / _root(bk, by_row), columns / _root(bk, by_column), count + 1

    state = one, one, bk.asarray(np.int32(0), like=like)
    rows, columns, _ = bk.while_loop(lambda state: state[2] < _SWEEPS, sweep, state)
    return rows, columns


def _root(bk: Backend, sums: Array) -> Array:
    return bk.sqrt(bk.where(sums > 0, sums, bk.full_like(sums, 1)))


def _scaled(bk: Backend, matrix: Array, scales: Array) -> Array:
    rows = bk.reshape(matrix, (-1, int(matrix.shape[-1])))
    return bk.reshape(bk.times(scales, rows), tuple(matrix.shape))
