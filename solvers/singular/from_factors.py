"""Detection of singularity from factors, for dense, sparse and banded matrices, one or a batch, in two steps.

First a system with a random right-hand side, scaled like the rows, is solved, because the inverse of a singular matrix
amplifies it. Matrices that seem singular may only be badly scaled. Inverse iteration with shifted factors then looks
for null vectors, in double precision where the library has it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse.analysis.canonical import row_maxima
from ...sparse.analysis.equilibrate import equilibrated, scales
from ...sparse.analysis.matching import greedy_matching, maximum_matching
from ...sparse.fingerprint import fingerprint
from ..factors.cyclic_reduction import BlockTridiagonal, CyclicReduction, reduced
from ..factors.protocol import ExactlySingular, Factors
from .null_vectors import Equations, both_null_vectors


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


_SWEEPS = 20  # of equilibration
_MOST_COMPILED = 8  # most null vectors in a compiled program
_MOST_IN_BANDS = 2  # the same for bands, where each solve projects all of them out
_MOST = 64  # most null vectors otherwise, for matrices of more than _FEW unknowns
_FEW = 256
_NUMBERS = 2 * 10**7  # most entries of all null vectors of a sparse matrix
_NOTHING = 1e-10  # entries of unit vectors below are rounding errors
_BLOWN = 1e4  # growth of a random vector, times the shift, above which the shifted matrix is still singular
_GROWN = 0.1  # growth of a random vector under the inverse of a singular matrix, in units of 1 / eps
_SLACK = 10  # see `growth_limit`
_INACCURATE = 1e-4  # relative residual of a random solve with a band above which the matrix is examined
_REGULAR, _ILL, _SINGULAR = (int(s) for s in (Singularity.REGULAR, Singularity.ILL_CONDITIONED, Singularity.SINGULAR))


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
        most, inverse, blown = _largest(bk, size, 1 / size, bk.abs(image))
        sound = (most * inverse * (n * eps) < 1) & (blown < growth_limit(n, bk.dtype(matrix)))
    return bk.negated(sound), image


def _largest(bk: Backend, *rows: Array) -> list[Array]:
    """`max_abs` of each array by one reduction, for which XLA compiles one program."""
    found = bk.max_abs(bk.concat(rows, 0))
    systems = int(rows[0].shape[0])
    return [found[k * systems : (k + 1) * systems, :] for k in range(len(rows))]


@lru_cache(maxsize=64)
def probe_vector(n: int, dtype: str) -> np.ndarray:
    """`(1, n)` random entries of either sign and about unit size. A column may be proportional to signs alone."""
    rng = np.random.default_rng(2)
    found: np.ndarray = (rng.choice([-1.0, 1.0], (1, n)) * rng.uniform(0.5, 1.5, (1, n))).astype(dtype)
    found.flags.writeable = False
    return found


def examined_factors(bk: Backend, matrix: Array, factors: tuple[Array, ...], suspect: Array) -> tuple[Array, ...]:
    """Return factors of the equilibrated R A C if A seems singular, shifted if it is, and null vectors.

    Equilibration by powers of two makes the decision independent of row and column scaling.

    Returns:
        The factors; the diagonals of R and C as `(n or systems * n, 1)`; orthonormal null vectors of A and of its
        adjoint, `(systems or 1, most, n)`; values of `Singularity`, `(systems or 1, 1)`.
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
    """Null vectors of A and its adjoint by inverse iteration with the shifted R A C in one loop."""
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

    return both_null_vectors(bk, (A, inverse, rows, columns), equations, turned, where, most, (bk.dtype(A), given))


def _like(bk: Backend, mask: Array, array: Array) -> Array:
    """Reshape `(systems or 1, 1)` to select whole matrices, or rows of pivots."""
    lead = int(mask.shape[0])
    return bk.reshape(mask, (lead, *(1,) * (len(array.shape) - 1)))


def _is_ill_conditioned(bk: Backend, matrix: Array, factors: tuple[Array, ...], image: Array) -> Array:
    """Is the reciprocal condition number below the rounding unit?

    Args:
        image: the inverse times a random vector, from which a solve with the adjoint estimates the norm of the inverse.
    """
    n, eps = int(matrix.shape[-1]), float(np.finfo(bk.dtype(matrix)).eps)
    size = bk.norm(image)
    back = bk.conj(bk.linalg.lu_solve(factors, bk.conj(bk.times(1 / size, image)), True))
    rows = bk.sum(bk.abs(matrix), -1)
    return bk.negated(bk.norm(back) * bk.max_abs(bk.reshape(rows, (-1, n))) * eps < 1)


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
    rows = bk.reshape(bk.max_abs(bk.reshape(matrix, (-1, n))), (-1, n))
    return bk.where(rows > 0, rows, bk.full_like(rows, 1))


def _scales(bk: Backend, matrix: Array, where: Array) -> tuple[Array, Array]:
    """Scales of rows and columns by powers of two, `(systems * n, 1)`; see `sparse.analysis.equilibrate.scales`.

    Args:
        where: `(systems, 1)`, the systems to equilibrate. The scales of the others are 1.
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
        solve = factors.solve_transposed if transposed else factors.solve
        if self.scales is None:
            x = np.ascontiguousarray(solve(np.ascontiguousarray(b.T)).T, b.dtype)
        else:
            first, last = self.scales[::-1] if transposed else self.scales
            with np.errstate(over="ignore"):  # the solve detects infinities
                wide = np.result_type(b.dtype, np.float64)
                x = np.ascontiguousarray(solve(np.ascontiguousarray((b * first).T, wide)).T * last)
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
    """Factorise in the precision of the matrix, or R A C in double precision if it seems singular.

    R and C are powers of two that equilibrate A, because a badly scaled matrix also looks singular.

    Args:
        matrix: CSC, of finite numbers.
        factorise, factorise_scaled, factorise_shifted: make factors of A, of R A C, and of that with a shift; they
            raise `ExactlySingular`.
    """
    dtype = matrix.dtype
    limit = growth_limit(matrix.shape[0], dtype, _SLACK)
    lu, blown = _factors(matrix, factorise)
    if blown < limit:
        return MatrixFactors(lu)
    own, double = scales(matrix), matrix.astype(np.result_type(dtype, np.float64))
    wide = equilibrated(double, *own)
    lu, blown = _factors(wide, factorise_scaled)
    if not blown < limit:
        try:
            shifted = MatrixFactors(shifted_factors(wide, dtype, factorise_shifted), own)
        except ExactlySingular:
            return MatrixFactors(None, singularity=Singularity.SINGULAR)
        right, left, singularity = null_vectors_of_sparse(double, shifted.solve, own, dtype)
        if len(right) or len(left):
            return shifted._replace(singularity=singularity, null=(right, left))
        if not blown < _GROWN / np.finfo(wide.dtype).eps:
            kind = Singularity.SINGULAR if blown == np.inf else Singularity.ILL_CONDITIONED
            return shifted._replace(singularity=kind)
    ill = not blown < limit and _estimated_condition(wide, lu) * np.finfo(dtype).eps >= 1
    return MatrixFactors(lu, own, singularity=Singularity.ILL_CONDITIONED if ill else Singularity.REGULAR)


def _factors(matrix: Any, factorise: Callable[[Any], Factors]) -> tuple[Any, float]:
    """Factors, and the growth of a random vector under the inverse; None and infinity if a pivot is zero."""
    try:
        lu = factorise(matrix)
    except ExactlySingular:
        return None, np.inf
    return lu, growth(matrix, lu.solve)


def _estimated_condition(matrix: Any, lu: Factors) -> float:
    v = np.random.default_rng(2).uniform(-1, 1, matrix.shape[0]).astype(matrix.dtype)
    image = lu.solve(v)
    back = lu.solve_transposed((image / np.linalg.norm(image)).conj())
    return float(np.linalg.norm(back) * abs(matrix).sum(axis=1).max())


def growth(matrix: Any, solve: Callable[[np.ndarray], np.ndarray]) -> float:
    """Largest entry of the inverse times a random vector of about unit size."""
    rows = row_maxima(matrix)
    v = probe_vector(matrix.shape[0], "d")[0] * np.where(rows > 0, rows, 1)
    return _largest_entry(solve(v.astype(matrix.dtype)))


def _largest_entry(x: np.ndarray) -> float:
    """Absolute value of the largest entry; infinity where one is no number."""
    largest = float(np.max(np.abs(x), initial=0))
    return np.inf if np.isnan(largest) else largest


def shifted_factors(matrix: Any, given: np.dtype, factorise: Callable[[Any], Factors]) -> Factors:
    """Factors of the matrix plus a sparse shift proportional to the row sizes.

    The shift is diagonal, which is enough where null vectors resemble those of the adjoint. If their supports are
    disjoint, it lies at the positions of a matching of rows and columns, completed to a permutation.

    If neither keeps A off zero, the factors are those whose inverse is smaller. Some null vectors may then be missed,
    but none is wrong, because each is checked by a product with A.

    Raises:
        ExactlySingular: a pivot is zero with either shift.
    """
    n, rows = matrix.shape[0], row_maxima(sp.csr_array(matrix))
    shift = _size_of_shift(float(np.finfo(given).eps), float(np.finfo(matrix.dtype).eps))
    rng = np.random.default_rng(6)
    amount = shift * np.where(rows > 0, rows, 1) * rng.uniform(0.75, 1.25, n)
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
        A: CSC, in double precision.
        solve: (rows b, transposed) -> rows x, with factors of A shifted.
        scales: the diagonals of R and C that equilibrate A.
        given: precision of the given entries.
    """
    bk, n, (rows, columns) = get_backend("numpy"), A.shape[0], scales
    most = n if n <= _FEW else max(1, min(_MOST, _NUMBERS // n))

    def equations(sides: tuple[Any, ...]) -> Equations:
        (matrix, solve, units), _ = sides
        sizes = (abs(matrix) @ units)[None]
        return Equations(lambda x: (matrix @ x.T).T, solve, sizes, units[None])

    own = A, lambda b: solve(b, False), columns
    other = sp.csc_array(A.conj().T), lambda b: solve(b.conj(), True).conj(), rows
    everywhere = np.full((1, 1), True)
    found = both_null_vectors(
        bk, (own, other), equations, lambda sides: sides[::-1], everywhere, most, (A.dtype, given)
    )
    right, left = (vectors[0][np.any(vectors[0], axis=1)] for vectors in found)
    size = abs(A)
    empty = (size.sum(axis=0) == 0) & (size.sum(axis=1) == 0)  # for example obstacles on a grid
    elsewhere = np.max(np.abs(right[:, ~empty]), initial=0)
    return right, left, Singularity.KNOWN if elsewhere <= _NOTHING else Singularity.SINGULAR


# --- bands


def examined_blocks(
    bk: Backend, matrix: BlockTridiagonal, inverse: CyclicReduction, given: np.dtype
) -> tuple[Array, Array, Array] | None:
    """Orthonormal null vectors of A and of its adjoint, `(systems or 1, most, n)`, and numbers of `Singularity`.

    None where all systems are regular.

    Args:
        given: precision of the given entries.

    Cost: a product and an application of the inverse; about 60 of each for one null vector of a singular matrix.
    """
    suspect = _band_seems_singular(bk, matrix, inverse, given)
    compiled = bk.compiled(matrix.on)
    if not compiled and not bool(bk.any(suspect)):
        return None
    systems, n, dtype = int(matrix.on.shape[0]), matrix.size, bk.dtype(matrix.on)
    most = min(n, _MOST_IN_BANDS if compiled else _MOST)
    none = bk.zeros((systems, most, n), dtype, matrix.on)
    look = partial(_band_null_vectors, size=n, most=most, given=given)

    def found(*_: Array) -> tuple[Array, ...]:
        """Run by NumPy where a program may call the host, which saves two thirds of the compile time."""
        arrays = [bk.constant(part) for part in (*matrix.parts, suspect)]
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
    rows = matrix.sizes(bk).product(bk, one)
    rows = bk.where(rows > 0, rows, one)
    vector = rows * bk.asarray(probe_vector(matrix.size, np.dtype(bk.dtype(rows)).char), like=rows)
    image = inverse.apply(bk.astype(vector, bk.dtype(matrix.on)))
    missed = bk.max_abs((matrix.product(bk, image) - vector) / bk.astype(rows, bk.dtype(matrix.on)))
    return ~((missed < _INACCURATE) & (bk.max_abs(image) < growth_limit(matrix.size, given)))


def _band_null_vectors(
    bk: Backend, before: Array, on: Array, after: Array, suspect: Array, size: int, most: int, given: np.dtype
) -> list[Array]:
    """Null vectors of the block matrix and of its adjoint, computed in double precision where the library has it."""
    dtype, batch = bk.dtype(on), int(on.shape[0]) > 1
    if bk.on_host and not suspect.any():  # under vmap, where only other elements of the batch are suspect
        return [np.zeros((len(on), most, size), dtype)] * 2
    wide = bk.stored_dtype(np.result_type(dtype, np.float64))

    def operands(parts: tuple[Array, ...]) -> tuple[BlockTridiagonal, CyclicReduction, Array, Array]:
        before, on, after, *reduction, rows, columns = parts
        inverse = CyclicReduction(
            bk, **dict(zip(CyclicReduction.parts, reduction, strict=True)), size=size, batch=batch
        )
        return BlockTridiagonal(before, on, after, size), inverse, rows, columns

    def turned(parts: tuple[Array, ...]) -> tuple[Array, ...]:
        matrix, inverse, rows, columns = operands(parts)
        back: Any = inverse.transpose().conj()
        return *matrix.adjoint(bk).parts, *map(back.array, back.parts), columns, rows

    def equations(parts: tuple[Array, ...]) -> Equations:
        matrix, inverse, _, columns = operands(parts)
        sizes = matrix.sizes(bk).product(bk, columns)
        return Equations(lambda x: matrix.product(bk, x), inverse.apply, sizes, columns)

    with bk.errstate():
        matrix = BlockTridiagonal(before, on, after, size).astype(bk, wide)
        inverse, sizes = reduced(bk, *matrix.parts, size, batch, wide), matrix.sizes(bk)
        adjoint = sizes.adjoint(bk)
        one = bk.zeros((int(on.shape[0]), size), bk.dtype(sizes.on), matrix.on) + 1
        scales = balanced(bk, lambda x: sizes.product(bk, x), lambda x: adjoint.product(bk, x), one, matrix.on)
        finite = bk.isfinite(bk.max_abs(sizes.product(bk, one)))
        own = *matrix.parts, *map(inverse.array, inverse.parts), *scales
        found = both_null_vectors(bk, own, equations, turned, suspect & finite, most, (wide, given))
        return [bk.astype(basis, dtype) for basis in found]
