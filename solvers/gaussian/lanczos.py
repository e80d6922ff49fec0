"""Functions of a Hermitian positive definite operator by Lanczos' method: quadrature and matrix-vector products."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, get_on_failure, nan_of, real_dtype
from ...sparse import Operator
from ...sparse.analysis.spectrum import LanczosState, lanczos
from ...sparse.analysis.symmetry import REFUSED

Function = Callable[[Array], Array]  # of eigenvalues
_FLOOR = 4  # rounding units of the largest eigenvalue, up to which others may be zero
_NULL = 8  # rounding units, up to which row sums may be zero
SETTLED = 1e-3  # relative change of an image in the last quarter of the steps

NOT_SETTLED = (
    "Lanczos' method has not settled after {steps} steps: the sample still changes by more than {settled:g} of its "
    "norm. Give more steps, or a matrix, whose factors are exact."
)
NOT_POSITIVE = (
    "Lanczos' method needs a Hermitian positive definite operator, and found that A is not: its products are not "
    "symmetric, or it has an eigenvalue that is not positive, up to rounding of the largest. Use method='exact' "
    "for other matrices; add a multiple of the identity to one that is only semi-definite."
)


class Tridiagonal(NamedTuple):
    """Tridiagonal matrix T of each row.

    Attributes:
        lanczos: last state, with T, its basis and the next off-diagonal entry.
        norm: `(batch, 1)`, norms of the start vectors.
        refused: whether A is known not to be symmetric, or to map constants to zero.
    """

    lanczos: LanczosState
    norm: Array
    refused: Array


def product(A: Operator, rows: Array) -> Array:
    """Product of A with each row."""
    return A.bk.matrix_transpose(A @ A.bk.matrix_transpose(rows))


def tridiagonal(A: Operator, start: Array, steps: int, keep: bool) -> Tridiagonal:
    """Run Lanczos' method from each of at least two rows `(batch, n)`, without reorthogonalisation.

    The derivatives of A are cut. Loss of orthogonality repeats converged eigenvalues in T, which changes neither a
    quadrature nor an image.

    Args:
        keep: whether to store the basis.

    Source: Golub and Meurant, Matrices, Moments and Quadrature with Applications (2010), chapter 4.
    """
    bk = A.bk
    arrays, make = bk.flatten(A.as_container())
    A, norm = make([bk.constant(a) for a in arrays]), bk.norm(start)
    v = bk.times(bk.safe_divide(0 * norm + 1, norm), start)
    with bk.errstate():
        count = max(1, min(steps, int(start.shape[1])))
        state = lanczos(bk, partial(product, A), v, count, keep_basis=keep, positive=True)
        return Tridiagonal(state, norm, _is_refused(A, v))


def _is_refused(A: Operator, v: Array) -> Array:
    """Is `<v_i, A v_j>` for unit vectors not the conjugate of `<v_j, A v_i>`, or is A 1 zero?

    Constants are the usual null vectors, of closed domains and of graphs. Their component in a start vector is too
    small for Lanczos' method to detect.
    """
    bk = A.bk
    constant = bk.full_like(v[:1, ...], int(v.shape[1]) ** -0.5)
    v = bk.concat([v, constant], 0)
    image = product(A, v)
    sizes = bk.norm(image)
    singular = bk.negated(sizes[-1, 0] > _NULL * float(np.finfo(A.dtype).eps) * bk.max(sizes))
    other, image_of_other = (bk.concat([x[1:, ...], x[:1, ...]], 0) for x in (v, image))
    difference = bk.abs(bk.dot(other, image) - bk.conj(bk.dot(v, image_of_other)))
    return singular | bk.any(bk.negated(difference <= REFUSED * (sizes + bk.norm(image_of_other))))


def _eigenpairs(bk: Backend, alphas: Array, betas: Array) -> tuple[Array, Array]:
    """Eigenvalues `(batch, steps)` in ascending order, and eigenvectors `(batch, steps, steps)` of T."""
    size = int(alphas.shape[1])
    dtype = bk.dtype(alphas)
    unit = bk.asarray(np.eye(size), dtype, like=alphas)
    below = bk.asarray(np.eye(size, k=-1), dtype, like=alphas)
    lower = betas[:, :, None] * below
    values, vectors = bk.xp.linalg.eigh(alphas[:, :, None] * unit + lower + bk.matrix_transpose(lower))
    return values, vectors


def quadrature(bk: Backend, T: Tridiagonal, function: Function) -> tuple[Array, Array, Array]:
    """`z^H f(A) z` for each start vector z, `(batch,)`, by the Gauss and the Gauss-Radau rule; and if A is refused.

    The fixed node of the second rule is the smallest eigenvalue that is not zero up to rounding. For a logarithm the
    first value is an upper and the second a lower bound, for any number of steps.

    Source: Golub and Meurant, Matrices, Moments and Quadrature with Applications (2010), sections 6.1 to 6.2.
    """
    alphas, betas, last = T.lanczos.alphas, T.lanczos.betas, T.lanczos.beta
    values, vectors = _eigenpairs(bk, alphas, betas)
    node = _rounding_of_largest(bk, values)
    with bk.errstate():
        moved = last**2 * bk.sum(vectors[:, -1, :] ** 2 / (values - node), -1, keepdims=True)
    with_node = _eigenpairs(bk, bk.concat([alphas, node + moved], 1), bk.concat([betas, last], 1))

    def rule(values: Array, vectors: Array) -> Array:
        return T.norm[:, 0] ** 2 * bk.sum(vectors[:, 0, :] ** 2 * function(bk.where(values > 0, values, 1)), -1)

    return rule(values, vectors), rule(*with_node), T.refused | ~_are_positive(bk, values)


def images(bk: Backend, T: Tridiagonal, function: Function) -> tuple[Array, Array, Array]:
    """`f(A) z` for each start vector z, `(batch, n)`; whether all have settled; and whether A is refused.

    Source: Chow and Saad, SIAM J. Sci. Comput. 36 (2014), algorithm 2.1.
    """
    steps, basis = int(T.lanczos.alphas.shape[1]), T.lanczos.basis
    full, positive = _coefficients(bk, T, function, steps)
    fewer, _ = _coefficients(bk, T, function, max(1, 3 * steps // 4))
    size = int(fewer.shape[1])
    change = bk.norm(bk.concat([full[:, :size] - fewer, full[:, size:]], 1))
    settled = ~bk.any(bk.negated(change <= SETTLED * bk.norm(full)))
    weights = bk.astype(full, bk.dtype(basis))
    return bk.times(T.norm, bk.sum(weights[:, :, None] * basis, 1)), settled, T.refused | ~positive


def _coefficients(bk: Backend, T: Tridiagonal, function: Function, steps: int) -> tuple[Array, Array]:
    """`f(T) e_1`, `(batch, steps)`, and whether T is positive definite."""
    values, vectors = _eigenpairs(bk, T.lanczos.alphas[:, :steps], T.lanczos.betas[:, :steps])
    weighted = function(bk.where(values > 0, values, 1)) * vectors[:, 0, :]
    return bk.sum(vectors * weighted[:, None, :], -1), _are_positive(bk, values)


def _are_positive(bk: Backend, values: Array) -> Array:
    return ~bk.any(bk.negated(values > _rounding_of_largest(bk, values)))


def _rounding_of_largest(bk: Backend, values: Array) -> Array:
    """`(batch, 1)`, for ascending eigenvalues `(batch, steps)`."""
    return _FLOOR * float(np.finfo(bk.dtype(values)).eps) * bk.abs(values[:, -1:])


def checked(A: Operator, x: Array, failed: Array, message: str) -> Array:
    """Return x, or raise ValueError(message) if something failed, in compiled functions at run time.

    With `krylix.on_failure("nan")` x is NaN instead, because the host may not be called.
    """
    if get_on_failure() == "nan":
        return A.bk.where(failed, A.bk.full_like(x, nan_of(A.bk.dtype(x))), x)

    def refuse(*_: Any) -> None:
        raise ValueError(message)

    guarded: Array = A.bk.guard(failed, refuse, x, failed)
    return guarded


def signs(bk: Backend, count: int, n: int, dtype: np.dtype, key: Any, like: Array) -> Array:
    """`(count, n)` random signs: Hutchinson's probes, which have the least variance."""
    positive = normal(bk, (count, n), real_dtype(dtype), key, like) > 0
    return 2 * bk.astype(positive, dtype) - 1


def normal(bk: Backend, shape: tuple[int, ...], dtype: np.dtype, key: Any, like: Array) -> Array:
    """Standard normal numbers; complex ones have variance 1, half of it in each part.

    Args:
        key: a key for `random_normal`, or a NumPy generator.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        real = normal(bk, (*shape, 2), real_dtype(dtype), key, like)
        parts = [bk.astype(real[..., i], dtype) for i in (0, 1)]
        return (parts[0] + bk.asarray(np.array(1j), dtype, like=like) * parts[1]) * 0.5**0.5
    if isinstance(key, np.random.Generator):
        return bk.asarray(key.standard_normal(shape), dtype, like=like)
    return bk.asarray(bk.random_normal(shape, dtype=getattr(bk.xp, dtype.name), key=key), dtype, like=like)
