"""Methods that minimise `|b - A x|`, for matrices of any shape: CGLS and LSMR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import NormalOperator, Operator
from .method import Goal, Method, apply
from .shared import growth, to_unit_size


@dataclass(frozen=True)
class LeastSquares(Method):
    """Method for `min |b - A x|^2 + damp^2 |x|^2`. The M of `init` and `step` is the adjoint of A.

    A square system without damping is solved as given. Otherwise the operator is the `NormalOperator` of A with its two
    factors, and the residual is that of the normal equations.
    """

    damp: float = 0.0

    keeps_grids = True
    least_squares = True
    needs_transpose = True
    takes_preconditioner = False
    minimises_residual = True
    products_per_step = 2

    def __post_init__(self) -> None:
        number = isinstance(self.damp, (int, float, np.integer, np.floating)) and not isinstance(self.damp, bool)
        if not number or not np.isfinite(self.damp) or self.damp < 0:
            raise ValueError(f"{self.name} needs a finite number damp >= 0; got {self.damp!r}.")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator:
        return A.adjoint_inner if isinstance(A, NormalOperator) else A.H


class CGLSState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1). A stands for A / size."""

    x: Array  # solution of the system with A / size
    r: Array  # b - A x of a square system, else the normal residual
    p: Array  # search direction
    gamma: Array  # |normal residual|^2
    rr: Array  # <r, r>
    size: Array  # power of two near the size of A, which keeps squares in range
    broken: Array


@dataclass(frozen=True)
class CGLS(LeastSquares):
    """Least squares, `min |b - A x|^2 + damp^2 |x|^2`, by conjugate gradients on the normal equations, not formed.

    For any matrix, rectangular or square, of any rank. From a zero start it finds the solution of least norm. It is
    cheaper per step than LSMR, with the same convergence, but the normal residual is not monotonic. For a square system
    (damp = 0) the residual is `b - A x` itself.

    Cost: 4 vectors of n numbers and 1 of m (m equations, n unknowns); per iteration 1 product with A and 1 with its
    adjoint, and 1 at the start of each round.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952), section 10; Bjorck, Numerical Methods for Least Squares
    Problems (1996), Algorithm 7.4.1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CGLS
        >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
        >>> np.round(linear_solve(A, b, method=CGLS()).x, 6)  # the line 1 + 2 t
        array([1., 2.])
    """

    products_at_start = 1

    @property
    def name(self) -> str:
        return "CGLS"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGLSState:
        if isinstance(A, NormalOperator):
            s = bk.copy(r)
            size = growth(bk, A.inner.apply(s), s)
        else:
            s = apply(M, r)
            size = growth(bk, s, r)
            s = bk.times(1 / size, s)
        rr = bk.square_norm(r)
        return CGLSState(bk.zeros_like(s), r, s, bk.square_norm(s), rr, size, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGLSState) -> CGLSState:
        matrix, damping = _matrix_and_damp(A)
        dtype, damp = bk.dtype(s.x), damping / s.size
        q = bk.times(1 / s.size, matrix.apply(s.p))
        square = bk.square_norm(q) + (damp * damp * bk.square_norm(s.p) if damping else 0)
        alpha = bk.astype(bk.safe_divide(s.gamma, square), dtype)
        if isinstance(A, NormalOperator):
            x = bk.axpy(bk.astype(1 / s.size, dtype) * alpha, s.p, s.x)  # divided by the square of size in two steps
            image = bk.times(1 / s.size, apply(M, q))
            if damping:
                image = bk.axpy(bk.astype(damp * damp, dtype), s.p, image)
            r, rr = bk.axpy_norm(-alpha, image, s.r)
            normal, gamma, broken = r, rr, square == 0
        else:
            x = bk.axpy(alpha, s.p, s.x)
            r, rr = bk.axpy_norm(-alpha, q, s.r)
            normal = bk.times(1 / s.size, apply(M, r))
            gamma = bk.square_norm(normal)
            # If A^H r is rounding noise but r is not small, A x = b has no solution.
            noise = float(np.finfo(bk.dtype(rr)).eps)
            broken = (square == 0) | (gamma <= noise * noise * rr)
        p = bk.xpay(normal, bk.astype(bk.safe_divide(gamma, s.gamma), dtype), s.p)
        return CGLSState(x, r, p, gamma, rr, s.size, broken)

    def solution(self, bk: Backend, M: Operator | None, state: CGLSState) -> Array:
        return bk.times(1 / state.size, state.x)


class LSMRState(NamedTuple):
    """Vectors v, h are (batch, n), p (batch, m), scalars (batch, 1), all real. A stands for A / size."""

    x: Array  # solution of the system with A / size
    r: Any  # b - A x of a square system, else ()
    v: Array  # right vector of the bidiagonalisation, of length 1
    p: Array  # left vector, of length 1
    below: Any  # part of p that belongs to the damping, (batch, n); () without damping
    h: Array
    h_bar: Array
    images: Any  # A h and A h_bar, to update r; () without r
    rho: Array  # last diagonal entry of R, where A V = P R
    scaled: Array  # rho_{k-1} rho_bar_{k-1}
    c_bar: Array  # the last rotation of the second factorisation
    s_bar: Array
    zeta_bar: Array  # norm of the normal residual, signed
    rr: Array  # squared norm of the residual of A x = b, or of the normal equations
    size: Array  # power of two near the size of A, which keeps squares in range
    broken: Array


@dataclass(frozen=True)
class LSMR(LeastSquares):
    """Least squares, `min |b - A x|^2 + damp^2 |x|^2`: the normal residual `A^H (b - A x) - damp^2 x` only falls.

    For any matrix, rectangular or square, of any rank. From a zero start it finds the solution of least norm. It is
    equivalent to MINRES for the normal equations, without their rounding errors. For a square system (damp = 0) the
    residual is `b - A x` itself. The number of steps grows with the condition number of A; that of CG, for a definite
    A, grows with its square root.

    Cost: 4 vectors of n numbers and 1 of m (m equations, n unknowns), 3 more for a square system, 1 more with damping;
    per iteration 1 product with A and 1 with its adjoint, and 1 (square: 2) at the start of each round.

    Source: Fong and Saunders, SIAM J. Sci. Comput. 33 (2011), sections 2 and 3. The bidiagonalisation is Bidiag 2 of
    Paige and Saunders, ACM Trans. Math. Softw. 8 (1982), which starts from A^H b and directly gives the upper
    bidiagonal R, so that only the second of LSMR's two factorisations remains.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import LSMR
        >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
        >>> np.round(linear_solve(A, b, method=LSMR()).x, 6)  # the line 1 + 2 t
        array([1., 2.])
    """

    products_at_start = 2

    @property
    def name(self) -> str:
        return "LSMR"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> LSMRState:
        square, (matrix, damp) = not isinstance(A, NormalOperator), _matrix_and_damp(A)
        s = apply(M, r) if square else r
        size_of_s = bk.norm(s)
        v = bk.times(_safe_reciprocal(bk, size_of_s), s)
        image, size = to_unit_size(bk, matrix.apply(v))
        rho, p, below = _normalised(bk, image, bk.times(damp / size, v) if damp else ())
        one = bk.full_like(rho, 1)
        return LSMRState(
            x=bk.zeros_like(v), r=r if square else (), v=v, p=p, below=below, h=bk.copy(v), h_bar=bk.zeros_like(v),
            images=(image, bk.zeros_like(image)) if square else (), rho=rho, scaled=one, c_bar=one, s_bar=0 * one,
            zeta_bar=size_of_s / size if square else size_of_s, rr=bk.square_norm(r), size=size,
            broken=bk.full_like(rho, False, bool),
        )  # fmt: skip

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: LSMRState) -> LSMRState:
        matrix, damp = _matrix_and_damp(A)

        def number(real: Array) -> Array:
            return bk.astype(real, bk.dtype(s.x))

        # A^H p = rho v + theta v', where v' is the next right vector
        w = bk.times(1 / s.size, apply(M, s.p))
        if damp:
            w = bk.axpy(number(damp / s.size), s.below, w)
        w, square = bk.axpy_norm(number(-s.rho), s.v, w)
        theta = bk.sqrt(square)
        v = bk.times(_safe_reciprocal(bk, theta), w)

        # the second factorisation, of R^T with theta as the last row: one more rotation
        theta_bar, diagonal = s.s_bar * s.rho, s.c_bar * s.rho
        rho_bar = bk.sqrt(diagonal * diagonal + theta * theta)
        c_bar, s_bar = bk.safe_divide(diagonal, rho_bar), bk.safe_divide(theta, rho_bar)
        zeta, zeta_bar = c_bar * s.zeta_bar, -s_bar * s.zeta_bar
        scaled = s.rho * rho_bar
        back = number(-bk.safe_divide(theta_bar * s.rho, s.scaled))
        ahead = number(bk.safe_divide(zeta, scaled))
        turn = number(-bk.safe_divide(theta, s.rho))
        h_bar = bk.xpay(s.h, back, s.h_bar)
        x, h = bk.axpy(ahead, h_bar, s.x), bk.xpay(v, turn, s.h)

        # A v' = theta p + rho' p', where p' is the next left vector
        image = bk.times(1 / s.size, matrix.apply(v))
        r, rr, images = s.r, zeta_bar * zeta_bar, s.images
        broken = scaled == 0
        if images:
            image_bar = bk.xpay(images[0], back, images[1])
            r, rr = bk.axpy_norm(-ahead, image_bar, s.r)
            images = (bk.xpay(image, turn, images[0]), image_bar)
            # If A^H r is rounding noise but r is not small, A x = b has no solution.
            noise = float(np.finfo(bk.dtype(rr)).eps) * (s.rho + theta) * bk.sqrt(rr)
            broken = broken | ((bk.abs(zeta_bar) <= noise) & (rr > 0))
        image = bk.axpy(number(-theta), s.p, image)
        below = bk.axpy(number(-theta), s.below, bk.times(damp / s.size, v)) if damp else ()
        rho, p, below = _normalised(bk, image, below)
        return LSMRState(x, r, v, p, below, h, h_bar, images, rho, scaled, c_bar, s_bar, zeta_bar, rr, s.size, broken)

    def solution(self, bk: Backend, M: Operator | None, state: LSMRState) -> Array:
        x = bk.times(1 / state.size, state.x)
        return x if state.images else bk.times(1 / state.size, x)

    def products_to_start(self, A: Operator) -> int:
        return 1 if isinstance(A, NormalOperator) else self.products_at_start


def _normalised(bk: Backend, p: Array, below: Any) -> tuple[Array, Array, Any]:
    """Norm of the pair, in which `below` may be (), and the pair divided by it."""
    square, alone = bk.square_norm(p), isinstance(below, tuple)
    rho = bk.sqrt(square if alone else square + bk.square_norm(below))
    factor = _safe_reciprocal(bk, rho)
    return rho, bk.times(factor, p), () if alone else bk.times(factor, below)


def _safe_reciprocal(bk: Backend, x: Array) -> Array:
    """`1 / x`, and 0 where x is 0."""
    return bk.safe_divide(bk.full_like(x, 1), x)


def _matrix_and_damp(A: Operator) -> tuple[Operator, float]:
    return (A.inner, A.damp) if isinstance(A, NormalOperator) else (A, 0.0)
