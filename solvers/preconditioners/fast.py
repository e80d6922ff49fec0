"""The fast preconditioner: fast diagonalisation of a nearby Kronecker sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...sparse import Composed, Dense, Matrix, Operator, UnsupportedOperation
from ...sparse.operators.concrete import from_host, is_known
from ...sparse.operators.couplings import Couplings
from ..fast.detect import Nearby, Separable, is_far, nearby
from ..fast.inverse import Eliminated, SpectralInverse, inverse_of_sum
from ..fast.spectra import Reciprocal, Values, extremes_of
from ..fast.transforms import AlongTrigonometric, Periodic
from .checks import check_finite
from .multigrid.coarsest import exact_inverse
from .multigrid.couplings import couplings_of
from .multigrid.cycle import numbers_stored
from .operators import (
    DiagonallyScaled,
    Preconditioner,
    Recast,
    Spread,
    check_precision,
    inner_dtype,
    note_on_precision,
    precision_as_setting,
)
from .pipeline import check_square, entries_of, grid_of, stored_entries

_SMALL = 64  # unknowns up to which it is the inverse itself
_NEGATIVE = (
    0.5  # of the smallest positive eigenvalue: one below minus that is not due to averaging, but to an indefinite A
)
_EXACT = 1e-3  # spread up to which it is the inverse but for rounding
_SPREAD, _LEFT = 0.2, 15  # limits within which CG takes at most about twenty iterations to 1e-8


def fast(A: Operator, *, grid: Sequence[int] | None = None, precision: str | None = None) -> Preconditioner:
    """The inverse of a nearby Kronecker sum, by fast transforms along the axes of a grid.

    For coefficients that vary smoothly, even by large factors: a scaling removes the variation, and the remaining
    coefficients are averaged along each axis. The number of iterations does not depend on the number of points. For
    jumping coefficients use `multigrid`. For a non-symmetric A the symmetric part is inverted. M is symmetric, and
    definite if A is; for waves (an indefinite A) it has the signs of the nearby matrix. Up to 64 unknowns it is the
    inverse of A.

    Args:
        grid: shape of the grid of the unknowns, last axis fastest; needed where A neither declares nor shows it.
        precision: "single" computes in single precision where A is in double precision: three quarters of the memory,
            half of the time, and as many iterations, unless M is nearly the inverse.

    Raises:
        UnsupportedOperation: the values of A are not known before the program runs, it couples points that are no
            neighbours, or it is a batch of matrices.
        ValueError: an entry is infinite or NaN, or there is no such precision.

    Stores 2 numbers per unknown, and `2 n_k^2` for each axis along which coefficients vary. An application costs two
    transforms along each axis: about 3 log2(n_k) multiplications per unknown, or 2 n_k; or 4 along the first axis,
    whose lines are eliminated where that is faster.

    Source: Concus and Golub, SIAM J. Numer. Anal. 10 (1973), 1103-1120; Lynch, Rice, Thomas, Numer. Math. 6 (1964).
    """
    return _fast(A, grid, precision, None)


def fast_on_cut_grid(
    A: Operator, *, spread: Spread, grid: Sequence[int] | None = None, precision: str | None = None
) -> Preconditioner | None:
    """`fast` for vectors spread over a device mesh; None where their blocks are no boxes of the grid."""
    shape = grid_of(entries_of(A), grid, find=True)
    cut = spread.cut.on(spread.shape, shape)
    return None if cut is None else _fast(A, shape, precision, Spread(shape, cut))


def _fast(A: Operator, grid: Sequence[int] | None, precision: str | None, spread: Spread | None) -> Preconditioner:
    check_precision(precision)
    check_square(A)
    matrix = entries_of(A)
    shape = grid_of(matrix, grid, find=True)
    if matrix.shape[0] <= _SMALL:
        inverse, hermitian = exact_inverse(matrix, "fast")
        return Preconditioner(inverse, "fast", hermitian, inverse.nnz, inverse.nnz, stored_entries(A))
    if matrix.systems is not None or not is_known(matrix):
        what = "a batch of matrices" if matrix.systems is not None else "values that are computed when a program runs"
        raise UnsupportedOperation(
            f"fast was asked for {what}; expected one matrix whose values are known. Use 'multigrid' or 'jacobi'."
        )
    inner = _inverse(nearby(_real_symmetric_part(couplings_of(matrix, shape))), matrix, precision)[0]
    return _with_costs(inner, matrix, A, precision, spread)


def fast_where_near(A: Operator, precision: str | None = None) -> Preconditioner | None:
    """`fast` for a known matrix if few iterations are expected, else None, after a few passes over the values."""
    matrix = entries_of(A)
    couplings = couplings_of(matrix, grid_of(matrix, None, find=True))
    if is_far(_real(couplings), _SPREAD):
        return None
    near = nearby(_real_symmetric_part(couplings), _SPREAD)
    if near.spread > _SPREAD:
        return None
    precision = precision if near.spread > _EXACT else None
    inner, least = _inverse(near, matrix, precision)
    return _with_costs(inner, matrix, A, precision) if near.left <= _LEFT * least else None


def _real_symmetric_part(couplings: Couplings) -> Couplings:
    check_finite("fast", couplings.is_finite())
    return _real(couplings).astype(np.dtype(np.float64)).symmetrised()


def _real(couplings: Couplings) -> Couplings:
    return couplings.map(np.real) if couplings.bk.dtype(couplings.diagonal).kind == "c" else couplings


def _inverse(near: Nearby, matrix: Matrix, precision: str | None) -> tuple[Operator, float]:
    """Inverse of the nearby sum, in NumPy, and its smallest eigenvalue; 0 for an indefinite one."""
    within = inner_dtype(precision, matrix.dtype)
    narrow = within != matrix.dtype
    size = 1.0 if narrow else near.size  # Its inverse may overflow in single precision.
    inner, least = inverse_of_sum(near.sum, matrix.dtype, matrix.bk, _regular, size)
    factor = 1 / near.size if narrow else 1.0
    if narrow:
        inner = Recast(inner.astype(within), matrix.dtype.name, factor if near.root is None else 1.0)
    if near.root is not None:
        scale = (1 / near.root).reshape(1, -1).astype(matrix.dtype)
        # The factor is a power of two, so that the inverse stays symmetric to the last digit.
        inner = DiagonallyScaled(inner, factor * scale, scale)
    return inner, least


def _regular(values: Values, _: Separable, eps: float) -> tuple[Reciprocal, float]:
    """Rule for finite reciprocals, of one sign unless indefinite, and the smallest |value|; 0 for indefinite ones."""
    sign = 1 if sum(part.sum() for part in values()) >= 0 else -1
    ends = extremes_of(values)
    low, tiny = min(sign * end for end in ends), eps * max(map(abs, ends))
    least = min(float(np.min(v, where=v > tiny, initial=np.inf)) for v in (sign * part for part in values()))
    least = least if np.isfinite(least) else 1.0
    waves = low < -max(_NEGATIVE * least, tiny)
    return Reciprocal(tiny, sign / least, 0 if waves else sign), 0.0 if waves else least


def _with_costs(
    inner: Operator, matrix: Matrix, A: Operator, precision: str | None, spread: Spread | None = None
) -> Preconditioner:
    costs = numbers_stored(inner), _work_of(inner), stored_entries(A)
    settings, note = precision_as_setting(precision), note_on_precision(inner)
    if spread is None or not isinstance(inner, DiagonallyScaled):
        return Preconditioner(from_host(inner, matrix), "fast", True, *costs, settings, note)
    left, right = (
        matrix.bk.spread_over(side.reshape(1, *spread.shape), spread.cut, 1) for side in (inner.left, inner.right)
    )
    return Preconditioner(
        DiagonallyScaled(from_host(inner.inner, matrix), left, right), "fast", True, *costs, settings, note
    )


def _work_of(M: Operator) -> int:
    """Multiplications per application: 1.5 log2(n_k) per unknown and transform, or n_k."""
    n = M.shape[1]
    if isinstance(M, Eliminated):
        return 4 * n
    if isinstance(M, SpectralInverse):
        lines = zip(M.grid, M.kinds)
        return n * (1 + sum(2 * m if kind == "matrix" else int(3 * math.log2(max(m, 2))) for m, kind in lines))
    if not isinstance(M, Composed):
        return n
    parts = [getattr(M, name) for name in M.parts]
    work = sum(
        n * part.shape[0] if isinstance(part, Dense) else _work_of(part) for part in parts if isinstance(part, Operator)
    )
    if isinstance(M, AlongTrigonometric | Periodic):
        work += sum(int(3 * n * math.log2(max(M.grid[axis], 2))) for axis in M.axes)
    return work + 2 * n * isinstance(M, DiagonallyScaled)
