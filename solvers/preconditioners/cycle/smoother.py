"""Polynomial smoothers: x + p(D⁻¹ A) D⁻¹ (b - A x), where D is the identity for a matrix scaled to a unit diagonal.

Both are the two-term recurrence d <- alpha_k d + beta_k D⁻¹ r, x <- x + d, r <- r - A d, with the coefficients
`steps[k] = (alpha_k, beta_k)` and `weights[k] = -beta_k D⁻¹`, so that the transpose of a smoother is the same one with
the transpose of A, and for a Hermitian A with eigenvalues below 1.4 times the bound they were made for, smoothing
reduces the error in the norm of A.
"""

from __future__ import annotations

from collections.abc import Callable

from ....backends import Array, Backend
from ....sparse import Operator

_LOWER, _UPPER = 0.35, 1.05  # the interval of Chebyshev's polynomials, of the bound of the eigenvalues


def smoothed_from_zero(
    bk: Backend, A: Operator, steps: Array, e: Array, weights: Array | None = None
) -> tuple[Array, Array]:
    """Smooth from x = 0, where e = -b; returns new arrays x and A x - b. Cost: one product with A per step.

    e may be overwritten.
    """
    x, d = None, None
    for k, pair in enumerate(_coefficients(bk, steps, int(e.shape[0]))):
        d = _direction(bk, pair, None if weights is None else weights[k], e, d)
        e = bk.materialize(A.add_to(e, d))
        x = d if x is None else add_in_place(bk, x, d)
    return x, e


def corrected(
    bk: Backend, A: Operator, steps: Array, x: Array, e: Array, change: Array, weights: Array | None = None
) -> Array:
    """Smooth from x + change, where e = A x - b; returns the new x. Cost: one product with A per step.

    x and e may be overwritten.
    """
    d = change
    for k, pair in enumerate(_coefficients(bk, steps, int(x.shape[0]))):
        x, e = add_in_place(bk, x, d), bk.materialize(A.add_to(e, d))
        d = _direction(bk, pair, None if weights is None else weights[k], e, d if k else None)
    return add_in_place(bk, x, d)


def _direction(bk: Backend, pair: tuple[Array, Array], weights: Array | None, e: Array, before: Array | None) -> Array:
    """A new array `alpha d - beta D⁻¹ e`, where d is the one before; 0 for the first."""
    alpha, beta = pair
    if weights is not None:
        found = weights * e
        return found if before is None else bk.axpy(alpha, before, found)
    return bk.times(-beta, e) if before is None else bk.axpy(-beta, e, bk.times(alpha, before))


def negated(bk: Backend, x: Array) -> Array:
    """`-x` as a new array."""
    return bk.times(bk.full_like(x[:, :1], -1), x)


def add_in_place(bk: Backend, x: Array, y: Array) -> Array:
    """`x + y`; may overwrite x."""
    return bk.axpy(bk.full_like(x[:, :1], 1), y, x)


def _coefficients(bk: Backend, steps: Array, rows: int) -> list[tuple[Array, Array]]:
    """Coefficients `(rows, 1)`, from one for all rows or one for each."""
    pairs = ((steps[k, 0], steps[k, 1]) for k in range(int(steps.shape[0])))
    each = ([bk.broadcast_to(c[:, None], (rows, 1)) for c in pair] for pair in pairs)
    return [(alpha, beta) for alpha, beta in each]


def chebyshev_coefficients(rho: Array, degree: int) -> list[tuple[Array, Array]]:
    """Chebyshev coefficients for the upper two thirds of the eigenvalues up to `rho`.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., Algorithm 12.1; Adams, Brezina, Hu and Tuminaro,
    Parallel multigrid smoothing: polynomial versus Gauss-Seidel, J. Comput. Phys. 188 (2003).
    """
    centre, half = (_UPPER + _LOWER) / 2, (_UPPER - _LOWER) / 2
    sigma = centre / half
    ratio, found = 1 / sigma, [(0 * rho, 1 / (centre * rho))]
    for _ in range(degree - 1):
        new = 1 / (2 * sigma - ratio)
        found.append((new * ratio + 0 * rho, 2 * new / (half * rho)))
        ratio = new
    return found


def jacobi_coefficients(rho: Array, degree: int) -> list[tuple[Array, Array]]:
    """Coefficients of damped Jacobi: the largest eigenvalue, `rho`, is reduced as much as a quarter of it.

    Source: Saad, section 13.2.2, for the damping.
    """
    return [(0 * rho, 4 / (3 * rho))] * degree


SMOOTHERS: dict[str, Callable[[Array, int], list[tuple[Array, Array]]]] = {
    "chebyshev": chebyshev_coefficients,
    "jacobi": jacobi_coefficients,
}
"""Name -> coefficients from a bound of the eigenvalues and the degree."""


def steps_for(bk: Backend, smoother: str, rho: Array, degree: int) -> Array:
    """Coefficients `(degree, 2, systems or 1)` of a smoother from eigenvalue bounds `(systems or 1,)`."""
    return bk.stack([bk.stack(pair) for pair in SMOOTHERS[smoother](rho, degree)])
