"""Block conjugate gradients: all systems of a batch share one Krylov space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Matrix, Operator
from .method import Goal, Method

# Largest squared relative distance, in eps, of a direction from the span of the others at which it is omitted, because
# half of its digits would be noise. The residuals keep that component, which is used once their rest is smaller.
_DEPENDENT = 100.0
_FLAT = 4.0  # in eps relative to the largest <p, A p>: zero up to rounding, p is a null vector of A
_NOISE = 4.0  # in eps relative to the first residual: smaller residuals are noise


class BlockCGState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # orthonormal basis of the search space, padded with zero rows
    rr: Array  # <r, r>
    noise: Array  # <r, r> below which a residual adds no direction
    broken: Array


@dataclass(frozen=True)
class BlockCG(Method):
    """Block conjugate gradients: every system minimises over the Krylov spaces of all right-hand sides together.

    For many right-hand sides with one symmetric (Hermitian) definite matrix, positive or negative, or a semi-definite
    one and consistent right-hand sides. The same holds for M. It takes fewer iterations than `CG` if k right-hand sides
    together span the eigenvectors that make CG slow; with one right-hand side it is CG. Right-hand sides may be zero,
    equal or dependent, and systems may converge at different times: directions are orthonormalised in each step, and
    dependent ones are omitted. (Right-hand sides with relative differences of 1e-6 to 1e-9 may take more iterations
    than with CG.)

    All systems need the same A and M, and different matrices are refused. A function with batch axes must act equally
    on all systems. That is checked if its values are known; otherwise the solve fails.

    Cost for k systems of n unknowns: 5 blocks of k vectors (x, r, p, a product, M r); per iteration 1 product with A
    and 1 with M of all systems at once, 16 k^2 n operations on blocks and two eigenvalue problems of size k, which
    suits tens of right-hand sides, not thousands.

    Raises ValueError for a batch of matrices.

    Source: O'Leary, Linear Algebra Appl. 29 (1980); Dubrulle, ETNA 12 (2001), for orthonormal directions; Ji and Li,
    Adv. Comput. Math. 43 (2017), the breakdown-free block method (BFBCG), for omitting dependent ones.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import BlockCG
        >>> A = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
        >>> b = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # two right-hand sides, one in each row
        >>> x = linear_solve(A, b, method=BlockCG()).x
        >>> np.allclose(x @ A, b)
        True
    """

    keeps_grids = True
    needs_hermitian = True
    combines_images = True
    needs_definite = True
    couples_systems = True
    applies_only = True
    can_pause = False

    @property
    def name(self) -> str:
        return "block-CG"

    def check(self, A: Operator, M: Operator | None) -> None:
        _check_shared(A, "the matrix")
        if M is not None:
            _check_shared(M, "the preconditioner")

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> BlockCGState:
        rr = bk.square_norm(r)
        noise = (_NOISE * _eps(bk, rr)) ** 2 * rr
        z = bk.copy(_preconditioned(bk, M, r, rr))
        p = _orthonormal(bk, z, _gram(bk, z, z), rr > noise)
        return BlockCGState(bk.zeros_like(r), r, p, rr, noise, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: BlockCGState) -> BlockCGState:
        def energies(p: Array, q: Array, r: Array) -> Any:
            return (), (_gram(bk, p, q), _gram(bk, p, r))

        def descend(x: Array, r: Array, p: Array, q: Array) -> Any:
            r = bk.axpy_block(-alpha, q, r)
            return (bk.axpy_block(alpha, p, x), r), (bk.square_norm(r), _gram(bk, q, r))

        def conjugate(p: Array, z: Array) -> Any:
            p = bk.xpay_block(z, -beta, p)
            return (p,), (_gram(bk, p, p),)

        q = A.apply(s.p)
        _, (pq, pr) = bk.by_parts(energies, s.p, q, s.r)
        inverse, is_zero = _pseudo_inverse(bk, pq)
        alpha = _times_transposed(bk, inverse, pr)
        (x, r), (rr, qz) = bk.by_parts(descend, s.x, s.r, s.p, q)
        z = _preconditioned(bk, M, r, rr)
        if z is not r:
            _, (qz,) = bk.by_parts(lambda q, z: ((), (_gram(bk, q, z),)), q, z)
        beta = _times_transposed(bk, inverse, qz)
        (p,), (pp,) = bk.by_parts(conjugate, s.p, z)
        p = _orthonormal(bk, p, pp, rr > s.noise)
        return BlockCGState(x, r, p, rr, s.noise, is_zero | bk.full_like(rr, False, bool))


def _check_shared(operator: Operator, what: str) -> None:
    """Check by a product that an operator with batch axes maps the same vector to the same image in all systems."""
    bk, systems = operator.bk, operator.systems
    if systems is None or systems < 2 or bk.communicator is not None:  # processes could disagree
        return

    def images() -> Array:
        v = np.random.default_rng(3).standard_normal(operator.shape[1]).astype(operator.dtype)
        rows = np.ascontiguousarray(np.broadcast_to(v, (systems, len(v))))
        return operator.apply(bk.asarray(rows, like=getattr(operator, "like", None)))

    differ = isinstance(operator, Matrix)
    rows = None if differ else bk.concrete_value(images)
    if rows is not None:
        size = np.max(np.abs(rows), initial=0)
        differ = bool(np.any(np.abs(rows - rows[:1]) > 1e3 * np.finfo(operator.dtype).eps * size))
    if differ:
        raise ValueError(
            f"block-CG needs {what} to be the same for all systems; got {systems} systems with "
            f"{'a batch of matrices' if isinstance(operator, Matrix) else 'different ones'}. "
            "Use CG, which solves each system separately, or give one matrix."
        )


def _eps(bk: Backend, real: Array) -> float:
    return float(np.finfo(bk.dtype(real)).eps)


def _gram(bk: Backend, a: Array, b: Array) -> Array:
    """Gram matrix `(k, m)` of the rows of `a` `(k, n)` and `b` `(m, n)`."""
    return bk.stack_dots(b, bk.conj(a))


def _times_transposed(bk: Backend, inverse: Array, g: Array) -> Array:
    """`(inverse g)ᵀ`, with a row of coefficients for each system."""
    return bk.product(inverse, bk.matrix_transpose(g))


def _preconditioned(bk: Backend, M: Operator | None, r: Array, rr: Array) -> Array:
    """M r, scaled to rows of about size 1 because only the span matters; zero for systems that overflowed."""
    z, finite = r, bk.isfinite(rr)
    if M is not None:
        z = M.apply(r)
        finite = finite & bk.isfinite(bk.max_abs(z))
        z = bk.times(1 / bk.binary_scale(z), z)

    def without(z: Array) -> Array:
        return bk.where(finite, z, bk.zeros_like(z))

    return bk.cond(bk.any(~finite), without, lambda z: z, z)


def _orthonormal(bk: Backend, w: Array, g: Array, live: Array) -> Array:
    """Orthonormal basis of the rows of `w` that are `live` `(k, 1)`, padded with zero rows. Overwrites `w`.

    It is computed from the eigenvectors of the Gram matrix `g`, with rows scaled to length 1.
    """
    k, dtype = int(w.shape[0]), bk.dtype(w)
    square = bk.reshape(bk.real(bk.diagonal(g)), (1, k))
    limits = np.finfo(bk.dtype(square))
    usable = bk.reshape(live, (1, k)) & (square > float(limits.tiny / limits.eps)) & bk.isfinite(square)
    length = bk.sqrt(bk.where(usable, square, bk.full_like(square, 1)))
    scale = bk.astype(bk.where(usable, 1 / length, bk.zeros_like(length)), dtype)
    g = bk.where(usable & bk.matrix_transpose(usable), g, bk.zeros_like(g)) * scale * bk.matrix_transpose(scale)
    values, vectors = bk.linalg.eigh(g)
    values = bk.reshape(values, (k, 1))
    clear = values > _DEPENDENT * _eps(bk, values)
    inverse = bk.where(clear, 1 / bk.sqrt(bk.where(clear, values, bk.full_like(values, 1))), bk.zeros_like(values))
    return bk.xpay_block(None, bk.astype(inverse, dtype) * scale * bk.matrix_transpose(vectors), w)


def _pseudo_inverse(bk: Backend, g: Array) -> tuple[Array, Array]:
    """Pseudo-inverse of a Hermitian `(k, k)` matrix up to rounding, and whether all of it is zero, `(1, 1)`."""
    k, dtype = int(g.shape[0]), bk.dtype(g)
    largest = _largest(bk, bk.reshape(g, (1, k * k)))
    usable = (largest > 0) & bk.isfinite(largest)
    size = bk.astype(bk.where(usable, largest, bk.full_like(largest, 1)), dtype)
    g = bk.where(usable, g, bk.zeros_like(g)) / size
    values, vectors = bk.linalg.eigh(0.5 * (g + bk.conj(bk.matrix_transpose(g))))
    values = bk.reshape(values, (1, k))
    clear = bk.abs(values) > _FLAT * _eps(bk, values) * _largest(bk, values)
    inverse = bk.where(clear, 1 / bk.where(clear, values, bk.full_like(values, 1)), bk.zeros_like(values))
    return bk.product(bk.conj(vectors), vectors * bk.astype(inverse, dtype)) / size, _largest(bk, inverse) == 0


def _largest(bk: Backend, numbers: Array) -> Array:
    """`(1, 1)`: largest absolute value of `(1, m)` coefficients, which are the same in all processes."""
    return bk.xp.max(bk.abs(numbers), axis=1, keepdims=True)
