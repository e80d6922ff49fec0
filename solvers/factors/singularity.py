"""Singularity as factors show it, for dense, sparse and banded matrices, one or a batch, and null vectors.

First a system with a random right-hand side, scaled like the rows, is solved, because the inverse of a singular matrix
amplifies it. Matrices that seem singular may only be badly scaled. Inverse iteration with shifted factors then looks
for null vectors, in double precision where the library has it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Dense
from ...sparse.analysis.canonical import balanced, equilibrated, row_maxima, scales
from ...sparse.analysis.graph import greedy_matching, maximum_matching
from ...sparse.content import fingerprint
from ..preconditioners.operators import DiagonallyScaled
from .cyclic_reduction import BlockTridiagonal, CyclicReduction, reduced, sizes_or_one
from .protocol import ExactlySingular, Factors


class Singularity(IntEnum):
    """Singularity of a matrix as far as it is known, as stored in results."""

    REGULAR = 0
    ILL_CONDITIONED = 1
    SINGULAR = 2  # a pivot is zero up to rounding
    # Null vectors were given, or found before. Rows and columns of a sparse matrix that are both empty count as known
    # if its factors show them: they are left empty on purpose, as for obstacles on a grid, so there is no warning.
    # Factors of dense matrices and bands do not look for them, because that would cost every compiled solve a pass.
    KNOWN = 3


def growth_limit(n: int, dtype: Any, slack: float = np.inf) -> float:
    """Growth of a random vector under the inverse of `(n, n)` above which the matrix is examined.

    The random vector may be nearly orthogonal to the left null vectors. The limit is therefore far below the growth
    that pivots of rounding size usually cause.

    Args:
        slack: largest factor for the size. Sparse matrices need one: the growth of regular ones increases with n, and
            in single precision a grid of 800 x 800 would be factorised twice.
    """
    units = 0.03 if np.dtype(dtype).char in "fF" else 1e-4
    return units / (float(np.finfo(dtype).eps) * min(n**0.5, slack))


_SWEEPS = 20  # of equilibration, in programs
_MOST_COMPILED = 8  # most null vectors in a compiled program
_MOST_IN_BANDS = 2  # the same for bands, where each solve projects all of them out
_MOST = 64  # most null vectors otherwise, for matrices of more than _FEW unknowns
_FEW = 256
_NUMBERS = 2 * 10**7  # most entries of all null vectors of a sparse matrix
_NOTHING = 1e-10  # entries of unit vectors below are rounding errors
_BLOWN = 1e4  # growth of a random vector, times the shift, above which the shifted matrix is still singular
GROWN = 0.1  # growth of a random vector under the inverse of a singular matrix, in units of 1 / eps
_SLACK = 10  # see `growth_limit`
_INACCURATE = 1e-4  # relative residual of a random solve with a band above which the matrix is examined


def seems_singular(bk: Backend, matrix: Array, solve: Callable[[Array], Array], pivots: Array) -> tuple[Array, Array]:
    """Is a pivot zero to working precision, or does the inverse amplify a random vector as for a singular matrix?

    Rows are equilibrated for this test but columns are not, so a regular matrix may seem singular.

    Args:
        matrix: `(n, n)` or `(systems, n, n)`.
        solve: solves with its factors for rows `(systems or 1, n)`.
        pivots: `(n,)` or `(systems, n)`.

    Returns:
        `(systems or 1, 1)`, and the inverse times the vector, `(systems or 1, n)`.
    """
    n = int(matrix.shape[-1])
    eps = float(np.finfo(bk.dtype(matrix)).eps)
    rows = _row_maxima(bk, matrix)
    vector = bk.asarray(probe_vector(n, np.dtype(bk.dtype(rows)).char), like=rows)
    image = solve(bk.astype(rows * vector, bk.dtype(matrix)))
    size = bk.reshape(bk.abs(pivots), (-1, n))
    with bk.errstate():
        sides, systems = (size, 1 / size, bk.abs(image)), int(size.shape[0])
        found = bk.max_abs(bk.concat(sides, 0))  # by one reduction, for which XLA compiles one program
        most, inverse, blown = (found[k * systems : (k + 1) * systems, :] for k in range(3))
        sound = (most * inverse * (n * eps) < 1) & (blown < growth_limit(n, bk.dtype(matrix)))
    return bk.negated(sound), image


@lru_cache(maxsize=64)
def probe_vector(n: int, dtype: str) -> np.ndarray:
    """`(1, n)` random entries of either sign and about unit size. A column may be proportional to signs alone."""
    rng = np.random.default_rng(2)
    found: np.ndarray = (rng.choice([-1.0, 1.0], (1, n)) * rng.uniform(0.5, 1.5, (1, n))).astype(dtype)
    found.flags.writeable = False
    return found


def examined_factors(bk: Backend, matrix: Array, factors: tuple[Array, ...], suspect: Array) -> tuple[Array, ...]:
    """Factors of the equilibrated R A C if A seems singular, shifted if it is, and null vectors.

    Equilibration by powers of two makes the decision independent of row and column scaling.

    Returns:
        The factors; the diagonals of R and C as `(n or systems * n, 1)`; null vectors as `null_vectors` returns them;
        values of `Singularity`, `(systems or 1, 1)`.
    """
    n, systems, dtype = int(matrix.shape[-1]), int(suspect.shape[0]), bk.dtype(matrix)
    most = min(n, _MOST_COMPILED if bk.compiled(matrix) else n if n <= _FEW else _MOST)
    one = bk.full_like(bk.max_abs(bk.reshape(matrix, (-1, n))), 1)
    none = bk.zeros((systems, most, n), dtype, matrix)
    nothing = none, none, bk.zeros((systems, 1), np.dtype(np.int32), matrix)

    def scaled_rows(matrix: Array, scales: Array) -> Array:
        return bk.reshape(bk.times(scales, bk.reshape(matrix, (-1, n))), tuple(matrix.shape))

    def again(*_: Array) -> tuple[Array, ...]:
        rows, columns = _scales(bk, matrix, suspect)
        scaled = bk.matrix_transpose(scaled_rows(bk.matrix_transpose(scaled_rows(matrix, rows)), columns))
        better = bk.linalg.lu_factor(scaled)
        still, image = seems_singular(bk, scaled, lambda b: bk.linalg.lu_solve(better, b), bk.diagonal(better[0]))

        def shifted(*_: Array) -> tuple[Array, ...]:
            return _shifted(bk, matrix, scaled, (rows, columns), better, still & suspect, image, most)

        # In a program one branch is enough, because regular systems cost no step of its loop.
        if bk.compiled(matrix):
            look = shifted()
        else:
            look = bk.cond(bk.any(still & suspect), shifted, lambda *_: (*better, *nothing))
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

    Double precision, where the library has it, tells singular from nearly singular matrices in single precision.
    """
    n, dtype = int(matrix.shape[-1]), bk.dtype(matrix)
    wide = bk.stored_dtype(np.result_type(dtype, np.float64))
    A, B = bk.astype(matrix, wide), bk.astype(scaled, wide)
    shifted = B + _shift(bk, B, float(np.finfo(dtype).eps), float(np.finfo(wide).eps))
    rows, columns = (bk.astype(bk.reshape(s, (-1, n)), np.finfo(wide).dtype) for s in scales)
    finite = bk.isfinite(bk.max_abs(_row_maxima(bk, matrix)))
    inverse = bk.linalg.inverse(shifted if len(shifted.shape) == 3 else shifted[None, ...])
    B_inverse = Dense(bk, inverse if len(shifted.shape) == 3 else inverse[0, ...])
    F = DiagonallyScaled(B_inverse, bk.astype(columns, wide), bk.astype(rows, wide))
    sizes = bk.product(bk.abs(A), columns), bk.product(bk.abs(bk.matrix_transpose(A)), rows)
    sides = both_sides(Dense(bk, A), F, sizes, (columns, rows))
    right, left = null_vectors(bk, sides, suspect & finite, most, (wide, dtype))
    blown = ~bk.isfinite(bk.max_abs(image)) & finite
    singular = suspect & (blown | (bk.max_abs(bk.fold(right)) > 0))
    sums = bk.reshape(bk.sum(bk.abs(scaled), -1), (-1, n))
    condition = _condition(bk, sums, image, lambda b: bk.linalg.lu_solve(factors, b, True))
    ill = suspect & finite & bk.negated(condition * float(np.finfo(dtype).eps) < 1)
    regular = bk.linalg.lu_factor(shifted)

    def chosen(new: Array, old: Array) -> Array:
        mask = bk.reshape(singular, (int(singular.shape[0]), *(1,) * (len(old.shape) - 1)))
        return bk.where(mask, bk.astype(new, bk.dtype(old)), old)

    parts = [chosen(new, old) for new, old in zip(regular, factors, strict=True)]
    none = bk.zeros(tuple(singular.shape), np.dtype(np.int32), matrix)
    number = bk.where(ill, none + int(Singularity.ILL_CONDITIONED), none)
    number = bk.where(singular, none + int(Singularity.SINGULAR), number)
    return *parts, bk.astype(right, dtype), bk.astype(left, dtype), number


def _condition(bk: Backend, sums: Array, image: Array, solve_transposed: Callable[[Array], Array]) -> Array:
    """`(systems or 1, 1)`: estimate of the condition number.

    Args:
        sums: `(systems or 1, n)`, of the absolute values of each row.
        image: the inverse times a random vector, from which a solve with the adjoint estimates the norm of the inverse.
    """
    back = solve_transposed(bk.conj(bk.times(1 / bk.norm(image), image)))
    return bk.norm(back) * bk.max_abs(sums)


def _shift(bk: Backend, matrix: Array, given: float, own: float) -> Array:
    """Shift: a small diagonal proportional to the row sizes, plus a dense part of about the same norm.

    A diagonal alone suffices where null vectors of A resemble those of its adjoint, but their supports may be disjoint.

    Args:
        given: rounding unit of the entries, which bounds the singular values that should be zero.
        own: rounding unit of the computation.
    """
    n = int(matrix.shape[-1])
    real = np.finfo(bk.dtype(matrix)).dtype
    rng = np.random.default_rng(5)
    form = np.diag(rng.uniform(0.75, 1.25, n)) + rng.uniform(-0.5, 0.5, (n, n)) / np.sqrt(n)
    amount = _size_of_shift(given, own) * _row_maxima(bk, matrix)
    by_rows = bk.reshape(amount, (-1, n, 1)) * bk.asarray(form.astype(real), like=matrix)
    return bk.astype(bk.reshape(by_rows, tuple(matrix.shape)), bk.dtype(matrix))


def _size_of_shift(given: float, own: float) -> float:
    """Relative to the row sizes, for the rounding units `given` of the entries and `own` of the computation."""
    return max(own**0.5, 64 * given)


def _row_maxima(bk: Backend, matrix: Array) -> Array:
    """`(systems or 1, n)`; 1 for rows of zeros."""
    n = int(matrix.shape[-1])
    return sizes_or_one(bk, bk.reshape(bk.max_abs(bk.reshape(matrix, (-1, n))), (-1, n)))


def _scales(bk: Backend, matrix: Array, where: Array) -> tuple[Array, Array]:
    """Scales of rows and columns by powers of two, `(systems * n, 1)`; see `sparse.analysis.canonical.scales`.

    Args:
        where: `(systems, 1)`, the systems to equilibrate. The scales of the others are 1.
    """
    n = int(matrix.shape[-1])
    sizes = bk.abs(matrix)
    largest = bk.binary_scale(bk.reshape(sizes, (-1, n * n)))  # (systems, 1)
    sizes = bk.reshape(bk.times(1 / largest, bk.reshape(sizes, (-1, n * n))), tuple(matrix.shape))
    turned = bk.matrix_transpose(sizes)
    one = bk.full_like(bk.broadcast_to(largest, (int(largest.shape[0]), n)), 1)
    rows, columns = balanced(
        bk, lambda x: bk.product(sizes, x), lambda x: bk.product(turned, x), (one, one), _SWEEPS, matrix
    )
    rows, columns = bk.where(where, rows / largest, one), bk.where(where, columns, one)
    return bk.binary_scale(bk.reshape(rows, (-1, 1))), bk.binary_scale(bk.reshape(columns, (-1, 1)))


# --- null vectors, by inverse iteration with shifted factors

_MOST_STEPS = 12  # of the iteration; mostly 3, more where other singular values lie near the shift
_ABOUT, _MORE = 1e4, 32  # tolerance of the first vectors: rounding units, and multiple of the final tolerance
_BY_DOUBLE, _BY_SINGLE = 4, 0.5  # relative error of a row sum by rounding of the entries, in rounding units
_SEED = 7  # of the start vectors, so that solves can be repeated


class Side(NamedTuple):
    """A matrix, or its adjoint, and its shifted inverse, which are applied to rows `(systems, n)`.

    Attributes:
        A, F: operators; F has factors of A + S, and a smaller shift S makes the iteration faster.
        sizes: `(systems, n)`, the sum of `|a_ij| scales_j` over each row.
        scales: `(systems, n)`, column scaling.
    """

    A: Any
    F: Any
    sizes: Array
    scales: Array


def both_sides(A: Any, F: Any, sizes: tuple[Array, Array], scales: tuple[Array, Array]) -> tuple[Side, Side]:
    """A matrix and its adjoint, with the sizes of the rows and columns, and the scales of the columns and rows."""
    adjoint = A.transpose().conj(), F.transpose().conj()
    return Side(A, F, sizes[0], scales[0]), Side(*adjoint, sizes[1], scales[1])


def null_vectors(
    bk: Backend, sides: tuple[Side, Side], where: Array, most: int, dtypes: tuple[np.dtype, np.dtype]
) -> tuple[Array, Array]:
    """Orthonormal null vectors of A and of its adjoint, each `(systems, most, n)`, padded with zeros.

    Each side is accepted by itself: one may have more vectors where a singular value is about at the limit.

    Left null vectors are first computed roughly. Only S keeps the rounding errors of a solve in their direction from
    growing, and it may be nearly orthogonal to them. After projecting them out, those of A are accurate to the last
    digit, and with these the left ones are computed again.

    Args:
        where: `(systems, 1)`, the systems to examine.
        most: largest number of vectors.
        dtypes: of the vectors, and of the given entries.

    Cost: mostly 9 products and 9 solves for each vector, and as many to find that there are no more.
    """
    (dtype, given), (_, adjoint) = dtypes, sides
    real, like = np.finfo(dtype).dtype, adjoint.sizes
    strict = rounding_of_entries(given)
    limit = bk.asarray(np.full((1, 1), max(_MORE * strict, _ABOUT * float(np.finfo(dtype).eps)), real), like=like)
    none = bk.zeros((int(where.shape[0]), most, int(like.shape[1])), dtype, like)
    unpack = tuple if bk.is_eager else bk.flatten(sides)[1]  # a compiled loop takes arrays only

    def packed(*sides: Side) -> tuple[Any, ...]:
        return sides if bk.is_eager else tuple(bk.flatten(sides)[0])

    def side(state: tuple[Any, ...]) -> tuple[Any, ...]:
        arrays, _, opposite, where, limit = state
        this, that = unpack(arrays)
        basis, found = _null_vectors(bk, this, opposite, none, where, strict, limit)
        return packed(that, this), opposite, basis, found, 0 * limit + strict

    _, right, left, *_ = bk.for_loop(3, side, (packed(*sides[::-1]), none, none, where, limit))
    return right, left


def rounding_of_entries(dtype: np.dtype) -> float:
    """Bound of the product with a null vector, relative to the sum of the absolute values of its terms.

    Rounding the entries of a singular matrix to single precision changes each by half a rounding unit. With a larger
    bound regular matrices of long time steps would count as singular.
    """
    single = np.dtype(dtype).char in "fF"
    return (_BY_SINGLE if single else _BY_DOUBLE) * float(np.finfo(dtype).eps)


def _null_vectors(
    bk: Backend, side: Side, opposite: Array, none: Array, where: Array, goal: float, limit: Array
) -> tuple[Array, Array]:
    """Orthonormal null vectors `(systems, most, n)`, padded with zeros, and the systems that have any.

    `z - F A z` removes from a random z what A does not map to zero, up to the fraction `S / (A + S)` of it. A vector
    counts as a null vector if its image is at most `limit` times the sum of the absolute values of the terms. `goal`
    ends the iteration, and `opposite` are null vectors of the adjoint.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 7.6.1; Peters and Wilkinson, SIAM Rev. 21 (1979).
    """
    _, most, n = map(int, none.shape)
    dtype = bk.dtype(none)
    numbers = np.random.default_rng(_SEED).uniform(-1, 1, (n, most))
    starts = bk.asarray(numbers.astype(np.finfo(dtype).dtype), like=none)
    places = bk.asarray(np.arange(most, dtype=np.int32)[None], like=none)

    def without(basis: Array, x: Array) -> Array:
        return x - bk.product(bk.matrix_transpose(basis), bk.product(bk.conj(basis), x))

    def converged(basis: Array, z: Array, going: Array) -> tuple[Array, Array]:
        """A unit null vector orthogonal to the basis, zeros if none was found, and whether one was found."""

        def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
            z, image, _, steps = state
            z = z - side.F.apply(without(opposite, image))
            for _ in range(2):  # once is not enough if z nearly lies in the span of the basis
                z = without(basis, z)
            norm = bk.norm(z)
            z = bk.times(bk.safe_divide(bk.full_like(norm, 1), norm), z)
            image = side.A.apply(z)
            largest = bk.max_abs(z / bk.astype(side.scales, bk.dtype(z)))
            left = bk.max_abs(bk.safe_divide(bk.abs(image), side.sizes * largest))
            return z, image, bk.where(largest > 0, left, bk.full_like(left, np.inf)), steps + 1

        def goes_on(state: tuple[Array, ...]) -> Any:
            _, _, left, steps = state
            return bk.any(going & bk.negated(left <= goal) & (steps < _MOST_STEPS))

        image, steps = side.A.apply(z), bk.asarray(np.zeros((1, 1), np.int32), like=limit)
        z, _, left, _ = bk.while_loop(goes_on, step, (z, image, bk.full_like(bk.max_abs(z), np.inf), steps))
        found = (left <= limit) & going
        return bk.where(found, z, bk.zeros_like(z)), found

    def has_more(state: tuple[Array, ...]) -> Any:
        _, number, going = state
        return bk.any(going & (number < most))

    def another(state: tuple[Array, ...]) -> tuple[Array, ...]:
        basis, number, going = state
        start = bk.product(starts, bk.astype(places == number, bk.dtype(starts)))
        z, found = converged(basis, bk.astype(side.scales * start, dtype), going)
        row = bk.where(found, number, bk.full_like(number, most))  # past the end, nothing is stored
        return bk.put_row(basis, row, z), number + 1, found

    number = bk.asarray(np.zeros((1, 1), np.int32), like=none)
    basis, *_ = bk.while_loop(has_more, another, (bk.copy(none), number, where))
    return basis, bk.max_abs(bk.fold(basis)) > 0


# --- sparse matrices, on the host
# Scales, shift and condition estimate are those of arrays above, in SciPy: a dense shift would fill the factors, and
# matrices are factorised one after the other, which needs no batches.


class MatrixFactors(NamedTuple):
    """Factors of one matrix, or of R A C in double precision, and its singularity.

    Attributes:
        factors: None where an entry is not finite, or no shift makes the matrix regular. Then x is NaN.
        scales: the diagonals of R and C.
        border: whether `[[A, 1], [c 1ᵀ, -1]]` is factorised instead of A + c 1 1ᵀ, which is dense.
        singularity: a value of `Singularity`.
        null: orthonormal null vectors of A and of its adjoint, `(k, n)` each; with `border` those of the bordered
            matrix, `(k, n + 1)`, which no projection of A is made of.
    """

    factors: Factors | None
    scales: tuple[np.ndarray, np.ndarray] | None = None
    border: bool = False
    singularity: int = Singularity.REGULAR
    null: tuple[np.ndarray, np.ndarray] | None = None

    def solve(self, b: np.ndarray, transposed: bool) -> np.ndarray:
        """Solve for rows b, in double precision where A was scaled."""
        factors, n = self.factors, b.shape[1]
        if factors is None:
            return np.full_like(b, np.nan)
        if self.border:  # The last unknown is y = c 1^T x; transposed, y = 1^T x.
            b = np.concatenate([b, np.zeros((len(b), 1), b.dtype)], axis=1)
        if self.scales is None:
            x = np.ascontiguousarray(factors.solve(np.ascontiguousarray(b.T), transposed).T, b.dtype)
        else:
            first, last = self.scales[::-1] if transposed else self.scales
            with np.errstate(over="ignore"):  # the solve detects infinities
                wide = np.result_type(b.dtype, np.float64)
                x = np.ascontiguousarray(factors.solve(np.ascontiguousarray((b * first).T, wide), transposed).T * last)
        if self.border and self.null is not None:
            basis = self.null[1].conj() if transposed else self.null[0]
            x = x - (x @ basis.conj().T) @ basis
        return x[:, :n]


def examined_sparse(
    matrix: Any,
    factorise: Callable[[Any], Factors],
    factorise_scaled: Callable[[Any], Factors],
    factorise_shifted: Callable[[Any], Factors],
) -> MatrixFactors:
    """Factorise A in CSC format in its precision, or R A C in double precision if it seems singular.

    R and C are powers of two that equilibrate A, because a badly scaled matrix also looks singular. The three functions
    make factors of A, of R A C, and of that with a shift; they raise `ExactlySingular`.
    """
    dtype = matrix.dtype
    limit = growth_limit(matrix.shape[0], dtype, _SLACK)
    lu, blown, _ = _factors(matrix, factorise)
    if blown < limit:
        return MatrixFactors(lu)
    own, double = scales(matrix), matrix.astype(np.result_type(dtype, np.float64))
    wide = equilibrated(double, *own)
    lu, blown, image = _factors(wide, factorise_scaled)
    if not blown < limit:
        try:
            shifted = MatrixFactors(shifted_factors(wide, dtype, factorise_shifted), own)
        except ExactlySingular:
            return MatrixFactors(None, singularity=Singularity.SINGULAR)
        right, left, singularity = null_vectors_of_sparse(double, shifted.solve, own, dtype)
        if len(right) or len(left):
            return shifted._replace(singularity=singularity, null=(right, left))
        if not blown < GROWN / np.finfo(wide.dtype).eps:
            kind = Singularity.SINGULAR if blown == np.inf else Singularity.ILL_CONDITIONED
            return shifted._replace(singularity=kind)
    if blown < limit:
        return MatrixFactors(lu, own)
    bk, sums = get_backend("numpy"), np.asarray(abs(wide).sum(axis=1)).reshape(1, -1)
    condition = _condition(bk, sums, image[None], lambda b: lu.solve(b[0], True)[None])
    ill = not condition * np.finfo(dtype).eps < 1
    return MatrixFactors(lu, own, singularity=Singularity.ILL_CONDITIONED if ill else Singularity.REGULAR)


def _factors(matrix: Any, factorise: Callable[[Any], Factors]) -> tuple[Any, float, Any]:
    """Factors, and the inverse times a random vector with its largest entry; None and infinity if a pivot is zero."""
    try:
        lu = factorise(matrix)
    except ExactlySingular:
        return None, np.inf, None
    vector = probe_vector(matrix.shape[0], "d")[0] * sizes_or_one(get_backend("numpy"), row_maxima(matrix))
    image = lu.solve(vector.astype(matrix.dtype))
    return lu, _largest_entry(image), image


def _largest_entry(x: np.ndarray) -> float:
    """Absolute value of the largest entry; infinity where one is no number."""
    largest = float(np.max(np.abs(x), initial=0))
    return np.inf if np.isnan(largest) else largest


def shifted_factors(matrix: Any, given: np.dtype, factorise: Callable[[Any], Factors]) -> Factors:
    """Factors of the matrix plus a sparse shift proportional to the row sizes.

    The shift is diagonal, which is enough where null vectors resemble those of the adjoint. If their supports are
    disjoint, it lies at the positions of a matching of rows and columns, completed to a permutation.

    If neither keeps A off zero, the factors are those whose inverse is smaller. Some null vectors may then be missed,
    but none is wrong, because each is checked by a product with A. `given` is the precision of the given entries.
    """
    n, rows = matrix.shape[0], sizes_or_one(get_backend("numpy"), row_maxima(sp.csr_array(matrix)))
    shift = _size_of_shift(float(np.finfo(given).eps), float(np.finfo(matrix.dtype).eps))
    rng = np.random.default_rng(6)
    amount = shift * rows * rng.uniform(0.75, 1.25, n)
    v = rng.choice([-1.0, 1.0], n) * rng.uniform(0.5, 1.5, n) * amount / shift
    factors, least, failed = None, np.inf, None
    for places in (np.arange(n), _matched(matrix)):
        entries = sp.csc_array((amount.astype(matrix.dtype), (np.arange(n), places)), shape=matrix.shape)
        try:
            lu = factorise(sp.csc_array(matrix + entries))
        except ExactlySingular as error:
            failed = error
            continue
        blown = _largest_entry(lu.solve(v.astype(matrix.dtype)))
        if factors is None or blown < least:
            factors, least = lu, blown
        if least < _BLOWN / shift:
            break
    if factors is None:
        raise ExactlySingular("Factor is exactly singular, with either shift") from failed
    return factors


def _matched(matrix: Any) -> np.ndarray:
    """`(n,)`: a matching of rows with columns, completed to a permutation."""
    entries = sp.csr_array(matrix, copy=True)
    entries.eliminate_zeros()
    n = entries.shape[0]
    columns = maximum_matching(entries.indptr, entries.indices, n)
    if columns is None:  # A greedy matching has nearly as many entries.
        row_of = greedy_matching(np.repeat(np.arange(n), np.diff(entries.indptr)), entries.indices, n)
        columns = np.full(n, -1)
        columns[row_of[row_of >= 0]] = np.flatnonzero(row_of >= 0)
    columns[columns < 0] = np.setdiff1d(np.arange(n), columns)
    return columns


def null_vectors_of_sparse(
    A: Any, solve: Callable[[np.ndarray, bool], np.ndarray], scales: tuple[np.ndarray, np.ndarray], given: np.dtype
) -> tuple[np.ndarray, np.ndarray, Singularity]:
    """Null vectors of A and of its adjoint, `(k, n)` each, and the singularity that they show.

    Args:
        A: in double precision.
        solve: (rows b, transposed) -> rows x, with factors of A shifted.
        scales: the diagonals of R and C that equilibrate A.
        given: precision of the given entries.
    """
    bk, n, size = get_backend("numpy"), A.shape[0], abs(A)
    most = n if n <= _FEW else max(1, min(_MOST, _NUMBERS // n))

    def side(matrix: Any, solve: Callable[[np.ndarray], np.ndarray], sizes: Any, scales: np.ndarray) -> Side:
        image = SimpleNamespace(apply=lambda x: (matrix @ x.T).T)
        return Side(image, SimpleNamespace(apply=solve), (sizes @ scales)[None], scales[None])

    own = side(A, lambda b: solve(b, False), size, scales[1])
    adjoint = side(sp.csc_array(A.conj().T), lambda b: solve(b.conj(), True).conj(), size.T, scales[0])
    found = null_vectors(bk, (own, adjoint), np.full((1, 1), True), most, (A.dtype, given))
    right, left = (vectors[0][np.any(vectors[0], axis=1)] for vectors in found)
    empty = (size.sum(axis=0) == 0) & (size.sum(axis=1) == 0)  # for example obstacles on a grid
    elsewhere = np.max(np.abs(right[:, ~empty]), initial=0)
    return right, left, Singularity.KNOWN if elsewhere <= _NOTHING else Singularity.SINGULAR


# --- bands


def examined_blocks(
    bk: Backend, matrix: BlockTridiagonal, inverse: CyclicReduction, given: np.dtype
) -> tuple[Array, Array, Array] | None:
    """Orthonormal null vectors of A and of its adjoint, `(systems or 1, most, n)`, and numbers of `Singularity`.

    None where all systems are regular.

    Cost: a product and an application of the inverse; about 60 of each for one null vector of a singular matrix.
    """
    suspect = _band_seems_singular(bk, matrix, inverse, given)
    compiled = bk.compiled(matrix.on)
    if not compiled and not bool(bk.any(suspect)):
        return None
    systems, n, dtype = int(matrix.on.shape[0]), matrix.size, matrix.dtype
    most = min(n, _MOST_IN_BANDS if compiled else _MOST)
    none = bk.zeros((systems, most, n), dtype, matrix.on)
    look = partial(_band_null_vectors, size=n, most=most, given=given)

    def found(*_: Array) -> tuple[Array, ...]:
        """Run by NumPy where a program may call the host, which saves two thirds of the compile time."""
        arrays = [bk.constant(part) for part in (matrix.before, matrix.on, matrix.after, suspect)]
        returns = [((systems, most, n), dtype)] * 2
        return tuple(bk.by_host(partial(look, get_backend("numpy")), partial(look, bk), returns, *arrays, name=name))

    def name() -> str | None:
        return fingerprint("null vectors of banded matrices", n, most, given, dtype)

    right, left = bk.cond(bk.any(suspect), found, lambda *_: (none, none))
    regular = bk.zeros((systems, 1), np.dtype(np.int32), matrix.on)
    singular = bk.max_abs(bk.fold(right)) > 0
    return right, left, bk.where(singular, regular + int(Singularity.SINGULAR), regular)


def _band_seems_singular(bk: Backend, matrix: BlockTridiagonal, inverse: CyclicReduction, given: np.dtype) -> Array:
    """`(systems or 1, 1)`: does the inverse amplify a random vector, or lose part of it, as for a singular matrix?

    Zero pivots were replaced, which loses the component of a vector outside the range. For regular matrices with an
    unstable elimination some of it is lost, too.
    """
    one = bk.zeros((int(matrix.on.shape[0]), matrix.size), bk.dtype(bk.abs(matrix.on)), matrix.on) + 1
    rows = sizes_or_one(bk, matrix.absolute().apply(one))
    vector = rows * bk.asarray(probe_vector(matrix.size, np.dtype(bk.dtype(rows)).char), like=rows)
    image = inverse.apply(bk.astype(vector, bk.dtype(matrix.on)))
    missed = bk.max_abs((matrix.apply(image) - vector) / bk.astype(rows, bk.dtype(matrix.on)))
    return ~((missed < _INACCURATE) & (bk.max_abs(image) < growth_limit(matrix.size, given)))


def _band_null_vectors(
    bk: Backend, before: Array, on: Array, after: Array, suspect: Array, size: int, most: int, given: np.dtype
) -> list[Array]:
    """Null vectors of the block matrix and of its adjoint, computed in double precision where the library has it."""
    dtype, batch = bk.dtype(on), int(on.shape[0]) > 1
    if bk.on_host and not suspect.any():  # under vmap, where only other elements of the batch are suspect
        return [np.zeros((len(on), most, size), dtype)] * 2
    wide = bk.stored_dtype(np.result_type(dtype, np.float64))
    with bk.errstate():
        matrix: Any = BlockTridiagonal(bk, before, on, after, size, batch).astype(wide)
        magnitudes = matrix.absolute()
        turned = magnitudes.transpose()
        one = bk.zeros((int(on.shape[0]), size), magnitudes.dtype, matrix.on) + 1
        rows, columns = balanced(bk, magnitudes.apply, turned.apply, (one, one), _SWEEPS, matrix.on)
        finite = bk.isfinite(bk.max_abs(magnitudes.apply(one)))
        sizes = magnitudes.apply(columns), turned.apply(rows)
        sides = both_sides(matrix, reduced(matrix, wide), sizes, (columns, rows))
        return [bk.astype(basis, dtype) for basis in null_vectors(bk, sides, suspect & finite, most, (wide, given))]
