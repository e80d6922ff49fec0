"""Log determinants and entries of the inverse from factors, of sparse and of dense matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend, real_dtype
from ...sparse import DenseOperator, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.formats import from_entries
from ...sparse.operators.linear_function import LinearFunction
from ..factors.dense import factorise
from ..factors.protocol import told_by
from ..singular.from_factors import Singularity
from .factorised_matrix import SINGULAR, FactorisedMatrix
from .host_matrices import SMALL, HostMatrices


def matrix_of(A: Operator) -> Matrix:
    """The entries of A, with their derivatives.

    Raises:
        UnsupportedOperation: they cannot be found.
    """
    if isinstance(A, Matrix):
        return A
    if not isinstance(A, LinearFunction):
        raise UnsupportedOperation(f"{A!r} shows its products only, and its entries are needed.")
    try:
        return A.matrix()
    except NonlinearError:
        raise
    except UnsupportedOperation as error:
        raise UnsupportedOperation(f"The entries of {A!r} are needed, and are not found: {error}") from error


def entries_of(A: Operator) -> tuple[Matrix, HostMatrices | None]:
    """The entries of A as `matrix_of`, and `host_matrices` of them."""
    matrix = matrix_of(A)
    return matrix, host_matrices(matrix)


def host_matrices(A: Matrix) -> HostMatrices | None:
    """A where its factors are made on the host; None where the library makes those of a dense matrix.

    These have derivatives to every order, and are made in compiled functions without a call of the host.
    """
    if not isinstance(A, SparseMatrix):
        return None
    found = HostMatrices(A)
    dense = not isinstance(found.values, np.ndarray) and A.shape[0] < SMALL
    return None if dense else found


def slogdet(A: Matrix, host: HostMatrices | None) -> tuple[Array, Array]:
    """Sign and log of the modulus of the determinant, `()` or `(systems,)`, with derivatives."""
    if host is None:
        bk, dense = A.bk, A.dense()
        with np.errstate(all="ignore"):  # zeros and NaN are what it finds
            sign, log = bk.xp.linalg.slogdet(dense)
            value = bk.concrete_value(lambda: bk.constant(dense)) if bk.compiled(dense) else dense
            # Where a compiled function computes A, the examination is a program of thousands of lines: too long.
            singular = None if value is None else _is_singular(choose_backend(value), value)
            if singular is None:
                return sign, log
            nothing = 0 * bk.real(bk.sum(dense, (-2, -1)))
            infinite = bk.log(bk.where(singular, nothing, 1 + nothing))  # -inf, with a derivative of NaN
            return bk.where(singular, 0 * sign, sign), bk.where(singular, infinite, log)
    dtypes = [A.dtype, real_dtype(A.dtype)]
    sign, log = host.call(FactorisedMatrix.slogdet, (), dtypes)
    bk, values = A.bk, host.values
    if isinstance(values, np.ndarray) or not bk.has_derivatives:
        return sign, log

    def rule(inputs: Sequence[Array], outputs: Sequence[Array], cotangents: Sequence[Array | None]) -> list[Array]:
        return [_gradient(host.holding(inputs[0]), outputs[0], cotangents)]

    found = bk._with_rule(rule, [values], [sign, log], linear=True)
    return found[0], found[1]


def _gradient(host: HostMatrices, sign: Array, cotangents: Sequence[Array | None]) -> Array:
    """With t = tr(A^-1 dA), log |det A| changes by Re t, and the sign by i Im t times itself."""
    bk, A = host.matrix.bk, host.matrix
    inverse = host.with_no_derivative(host.inverse_entries(host.columns, host.rows))[0]
    by_sign, by_log = cotangents
    weight = bk.zeros_like(sign) if by_log is None else bk.astype(by_log, A.dtype)
    if A.dtype.kind == "c" and by_sign is not None:
        imaginary = bk.asarray(np.array(1j), A.dtype, like=sign)
        turn = bk.real(bk.conj(by_sign) * imaginary * sign)
        weight = weight - imaginary * bk.astype(turn, A.dtype)
    return bk.conj(weight[..., None] * inverse)


def inverse_entries(A: Matrix, host: HostMatrices | None, rows: np.ndarray, columns: np.ndarray) -> Array:
    """`(A^-1)[rows, columns]`, `(k,)` or `(systems, k)`."""
    if host is not None:
        return host.with_no_derivative(host.inverse_entries(rows, columns))[0]
    bk, n = A.bk, A.shape[0]
    inverse = _inverse(A)
    flat = bk.reshape(inverse, (*tuple(inverse.shape)[:-2], n * n))
    return bk.take_in_bounds(flat, rows.astype(np.int64) * n + columns, len(flat.shape) - 1)


def places_in(given: Any, n: int) -> np.ndarray:
    """Indices below n, as integers that are not negative.

    Raises:
        TypeError: they are no integers.
        IndexError: one lies outside.
    """
    found = np.asarray(given)
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"Indices of entries got an array of {found.dtype}; expected integers.")
    found = found.astype(np.int64)
    outside = (found < -n) | (found >= n)
    if outside.any():
        raise IndexError(f"Indices of entries got {found[outside].flat[0]}; expected integers from {-n} to {n - 1}.")
    return np.where(found < 0, found + n, found)


def _is_singular(bk: Backend, dense: Array) -> Array | None:
    """Which dense matrices are singular, `()` or `(systems,)`, as a direct solve tells; None where none is."""
    if not dense.shape[-1]:
        return None
    told = told_by(factorise(bk, DenseOperator(bk, bk.constant(dense))))
    if told is None:
        return None
    singular = bk.reshape(told, tuple(dense.shape)[:-2]) == int(Singularity.SINGULAR)
    return singular if bk.compiled(singular) or bool(bk.any(singular)) else None


def _inverse(A: Matrix) -> Array:
    """The inverse, NaN of a singular matrix in a compiled function.

    Raises:
        ZeroDivisionError: a matrix is singular.
    """
    bk, dense = A.bk, A.dense()
    singular = _is_singular(bk, dense)
    if singular is not None and not bk.compiled(singular):
        raise ZeroDivisionError(SINGULAR)
    inverse = bk.xp.linalg.inv(dense)
    return inverse if singular is None else bk.where(singular[..., None, None], np.nan * inverse, inverse)


def gradient_of_log(A: Matrix, host: HostMatrices | None) -> Any:
    """d log |det A| by the entries that A stores: those of A^-H, as a dense array or a CSR matrix."""
    bk = A.bk
    if not isinstance(A, SparseMatrix):
        return bk.conj(bk.matrix_transpose(_inverse(A)))
    rows, columns, _ = A.structure.entries()
    values = bk.conj(inverse_entries(A, host, columns, rows))
    return from_entries(bk, rows, columns, values, A.shape, format="csr", prune=False, like=A.anchor())
