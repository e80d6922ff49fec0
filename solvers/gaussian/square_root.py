"""Square roots of a matrix or its inverse, times vectors: samples of a Gaussian field."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends import Array
from ...sparse import Matrix, Operator, UnsupportedOperation
from ...sparse.analysis.symmetry import REFUSED
from .factorised import NOT_DEFINITE, PIVOT, Entries, FactorisedMatrix, HostMatrices
from .lanczos import NOT_POSITIVE, NOT_SETTLED, SETTLED, checked, images, tridiagonal

_NO_DERIVATIVE = (
    "A sample by Lanczos' method has no derivative with respect to the function. Give a dense matrix, whose samples "
    "have one."
)


def times_root(A: Operator, z: Array, inverse: bool, steps: int, entries: Callable[[Operator], Entries]) -> Array:
    """R times z `(k, n)` or `(k, systems, n)`, with `R R^H = A`, or `A^-1` if `inverse`."""
    try:
        matrix, host = entries(A)
    except UnsupportedOperation:
        return by_lanczos(A, z, inverse, steps)
    return _by_cholesky(matrix, z, inverse) if host is None else _on_host(host, z, inverse)


def _on_host(host: HostMatrices, z: Array, inverse: bool) -> Array:
    A = host.matrix
    bk = A.bk
    by_system = z if A.systems is None else bk.permute_dims(z, (1, 0, 2))
    traced = bk.compiled(host.values)

    def root(matrix: FactorisedMatrix, z: np.ndarray) -> tuple[np.ndarray]:
        if matrix.root is None and traced:
            return (np.full_like(z, np.nan),)
        return (matrix.square_root(z, inverse),)

    (x,) = host.call(root, (int(z.shape[0]), A.shape[0]), [A.dtype], by_system)
    x = host.with_no_derivative(checked(A, x, bk.any(~bk.isfinite(x)), NOT_DEFINITE))
    return x if A.systems is None else bk.permute_dims(x, (1, 0, 2))


def _by_cholesky(A: Matrix, z: Array, inverse: bool) -> Array:
    """`L z` or `L^-H z` with `A = L L^H`, in the library, with derivatives."""
    bk, dense = A.bk, A.dense()
    adjoint = bk.conj(bk.matrix_transpose(dense))
    failed = bk.any(bk.negated(bk.abs(dense - adjoint) <= REFUSED * bk.max(bk.abs(dense))))
    if not bk.compiled(dense):
        factor = None if bool(failed) else bk.linalg.cholesky(dense)
        if factor is None:
            raise ValueError(NOT_DEFINITE)
    else:
        factor = bk.xp.linalg.cholesky(dense)
    pivots, eps = bk.abs(bk.diagonal(factor)) ** 2, float(np.finfo(A.dtype).eps)
    failed = failed | bk.any(bk.negated(pivots > PIVOT * eps * bk.abs(bk.diagonal(dense))))
    upper = bk.conj(bk.matrix_transpose(factor))
    if A.systems is None:
        x = bk.linalg.solve_triangular(upper, z, lower=False) if inverse else bk.product(factor, z)
    else:
        columns = bk.permute_dims(z, (1, 2, 0))  # (systems, n, k)
        x = bk.xp.linalg.solve(upper, columns) if inverse else bk.xp.matmul(factor, columns)
        x = bk.permute_dims(x, (2, 0, 1))
    return checked(A, x, failed | bk.any(~bk.isfinite(x)), NOT_DEFINITE)


def by_lanczos(A: Operator, z: Array, inverse: bool, steps: int) -> Array:
    """`A^(1/2) z` or `A^(-1/2) z`, from products alone."""
    if A.systems is not None:
        raise UnsupportedOperation(f"sample of a function takes one system; got {A.systems}. Prepare one at a time.")
    bk, count = A.bk, int(z.shape[0])
    start = z if count > 1 else bk.concat([z, bk.astype(bk.scatter_numbers(A.shape[0], A.dtype, z), A.dtype)[None]], 0)
    T = tridiagonal(A, start, steps, True)
    x, settled, refused = images(bk, T, lambda values: values ** (-0.5 if inverse else 0.5))
    x = checked(A, x[:count, ...], refused, NOT_POSITIVE)
    x = checked(A, x, ~settled, NOT_SETTLED.format(steps=int(T.lanczos.alphas.shape[1]), settled=SETTLED))
    sources = [a for a in bk.flatten(A.as_container())[0] if bk.dtype(a).kind in "fc"]
    if not sources or not bk.has_derivatives:
        return x
    (marked,) = bk._with_no_derivative(sources, [x], _NO_DERIVATIVE)
    return marked
