"""The Chebyshev preconditioner: a polynomial of the matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...backends import Array
from ...sparse import Composed, CutRows, Matrix, Operator, as_operator, storable
from ...sparse.analysis.analysis import analysis_of
from ...sparse.analysis.spectrum import absolute_row_sums, largest_eigenvalue, largest_row_sum
from ...sparse.operators.concrete import kept
from .checks import MOST_STEPS, check_finite, check_integer, check_number
from .jacobi import reciprocal
from .operators import Preconditioner
from .pipeline import Target, of_operator

_NOISE = 1e-6  # admissible imaginary part of a Hermitian diagonal, due to rounding
_MARGIN = 1.1  # ten steps of Lanczos may underestimate the largest eigenvalue by this factor


@storable("chebyshev")
@dataclass(eq=False, repr=False)
class ChebyshevOperator(Composed):
    """`degree` steps of Chebyshev's iteration for `A z = r` from zero, with the eigenvalues of `D^-1 A` in an interval.

    Attributes:
        A: the matrix.
        inverse: 1 / D, `(1, n)` or one row per system.
        largest: the upper end of the interval, `(1, 1)` or `(systems, 1)`.
        degree: degree of the polynomial 1 - z p(z), which is small on the interval; M = p(D^-1 A) D^-1.
        ratio: ratio of the ends of the interval.
    """

    parts = ("A", "inverse", "largest")

    A: Operator
    inverse: Array
    largest: Array
    degree: int
    ratio: float

    def __post_init__(self) -> None:
        check_integer("degree", self.degree, 1, MOST_STEPS)
        check_number("ratio", self.ratio, 1)
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        bk, inverse = self.bk, self.array("inverse")
        largest = bk.astype(self.array("largest"), bk.dtype(inverse))
        scaled = inverse / largest
        centre, radius = (1 + 1 / self.ratio) / 2, (1 - 1 / self.ratio) / 2  # in units of the largest eigenvalue
        sigma, one = centre / radius, bk.full_like(largest[:1, ...], 1)

        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            z, d, rho = state
            new = 1 / (2 * sigma - rho)
            d = (new * rho) * d + (2 / radius) * new * (scaled * (x - self.A.apply(z)))
            return z + d, d, new

        d = (1 / centre) * (scaled * x)
        # In an unrolled chain XLA would compute a product again wherever it is read.
        return bk.for_loop(self.degree - 1, step, (d, d, one / sigma))[0]

    def transpose(self) -> ChebyshevOperator:
        # p(D^-1 A) D^-1 = D^-1 p(A D^-1), whose transpose has the same form.
        return self._map(lambda A: A.transpose())


@of_operator(needs_entries=False)
def chebyshev(own: Operator, target: Target, *, degree: int = 4, ratio: float = 30.0) -> Preconditioner:
    """The polynomial in `D^-1 A`, D the diagonal of A, that comes closest to the inverse on an interval.

    The interval ends a tenth above the largest eigenvalue as estimated by ten steps of Lanczos' method, or at the bound
    of Gershgorin's circles if that is lower and A has entries. For a positive definite A, M is positive definite if the
    eigenvalues are below `1 + 1 / ratio` times that end for an even degree, and always for an odd one. A function that
    cannot be traced is not scaled by its diagonal.

    Args:
        A: a matrix, or a function.
        degree: degree of the polynomial that multiplies the error. CG takes about `1 / degree` of the iterations.
        ratio: ratio of the ends of the interval.

    Raises:
        ValueError: a setting is invalid, an entry is infinite or NaN, or the diagonal is not of one sign, without which
            `D^-1 A` cannot have positive eigenvalues only.

    Stores n + 1 numbers in addition to A, and costs `degree - 1` products with A.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., algorithm 12.1.
    """
    degree, ratio = check_integer("degree", degree, 1, MOST_STEPS), check_number("ratio", ratio, 1)
    if isinstance(own, Matrix):
        inverse, note = _inverse_diagonal(own), None
    else:
        inverse = own.bk.full((1, own.shape[0]), 1, own.dtype, target.like)
        note = f"{degree - 1} products with A per application, not scaled by its diagonal"
    ends = target.placed(inverse), target.placed(_interval_end(own, inverse))
    operator = ChebyshevOperator(kept(target.A), *ends, degree, ratio)
    count = math.prod(tuple(inverse.shape))
    work = (degree - 1) * (own.nnz + 2 * count) + count if isinstance(own, Matrix) else None
    hermitian = analysis_of(own).hermitian
    if hermitian is False:
        note = "A is not symmetric, and the polynomial is for real eigenvalues"
    settings = (("degree", degree), ("ratio", ratio))
    return Preconditioner(operator, "chebyshev", hermitian, count + 1, work, None, settings, note)


def chebyshev_by_parts(A: CutRows, *, degree: int = 4, ratio: float = 30.0) -> Preconditioner:
    """`chebyshev` of a matrix whose rows are cut; an application exchanges ghost values `degree - 1` times."""
    degree, ratio = check_integer("degree", degree, 1, MOST_STEPS), check_number("ratio", ratio, 1)
    known, inverse = A.known(), _inverse_diagonal(A)
    if known is None:
        end = _interval_end(A, inverse)
    else:
        matrix = as_operator(known)
        end = A.bk.asarray(_interval_end(matrix, _inverse_diagonal(matrix)))
    operator = ChebyshevOperator(A, inverse, end, degree, ratio)
    settings = (("degree", degree), ("ratio", ratio))
    return Preconditioner(operator, "chebyshev", analysis_of(A).hermitian, A.shape[0] + 1, settings=settings)


def _inverse_diagonal(A: Operator) -> Array:
    """`(1, n)` or `(systems, n)`; 1 where the diagonal is zero."""
    bk, diagonal = A.bk, A.diagonals()
    if bk.on_host and isinstance(A, Matrix):
        real, sums = np.real(diagonal), absolute_row_sums(A)
        check_finite("chebyshev", bool(np.isfinite(sums).all()))
        empty = sums == 0
        one_sign = np.all((real > 0) | empty, axis=1) | np.all((real < 0) | empty, axis=1)
        if not np.all(one_sign) or np.any(np.abs(np.imag(diagonal)) > _NOISE * np.abs(real)):
            raise ValueError(
                f"The Chebyshev preconditioner needs a matrix whose diagonal is real and of one sign; got one from "
                f"{diagonal.min():.3g} to {diagonal.max():.3g}. Use 'ilu', or 'jacobi'."
            )
    return reciprocal(bk, diagonal)


def _interval_end(A: Operator, inverse: Array) -> Array:
    """`(1, 1)` or `(systems, 1)`: upper bound of the eigenvalues of D^-1 A, if these are real."""
    bk, rows = A.bk, A.together or 1
    root = bk.sqrt(bk.abs(inverse))
    left, right = (
        inverse / bk.astype(root, A.dtype),
        bk.astype(root, A.dtype),
    )  # similar to D^-1 A, and symmetric where A is
    start = bk.scatter_numbers(A.shape[0], bk.dtype(root), root)
    start = bk.broadcast_to(bk.astype(start, A.dtype)[None], (rows, A.shape[0]))
    end = _MARGIN * largest_eigenvalue(bk, lambda v: left * A.apply(right * v), start)
    if isinstance(A, Matrix):
        bound = largest_row_sum(A, inverse)
        end = bk.where(end < bound, end, bound)
    return bk.where(end > 0, end, bk.full_like(end, 1))
