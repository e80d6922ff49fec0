"""Rules for solves with known dense matrices: products with their inverses, which NumPy computes.

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u, a = identity(get_backend("jax"), (2,), float), np.array([[2.0, 0.0], [1.0, 4.0]])
>>> triangular_inverse(a, {"lower": True, "transpose_a": False, "conjugate_a": False, "unit_diagonal": False})
array([[ 0.5  ,  0.   ],
       [-0.125,  0.25 ]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from ...engine.linear import Linear
from ...engine.products.rounding import dense_product
from ...engine.refusals import MATRIX_FREE, NotLinear
from ..known.table import is_known

Values = Sequence[Any]

MOST = 2048  # unknowns of a matrix that is inverted; its inverse has four million entries


def _triangular_solve(equation: Any, values: Values) -> Any:
    (a, b), params = values, equation.params
    matrix = _known_matrix([a], a.shape[-1])
    inverse = triangular_inverse(matrix[0], params)
    k = b.ndim - 2
    batch = (range(k), range(k))
    if params["left_side"]:
        product = dense_product(b, inverse, ((k,), (k + 1,)), batch, x_first=False)
    else:
        product = dense_product(b, inverse, ((k + 1,), (k,)), batch)
    return product


def triangular_inverse(a: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    """Of a triangle, or its transpose; `(..., n, n)`."""
    a = np.tril(a) if params["lower"] else np.triu(a)
    n = a.shape[-1]
    if params["unit_diagonal"]:
        a = np.where(np.eye(n, dtype=bool), a.dtype.type(1), a)
    a = np.conj(a) if params["conjugate_a"] else a
    a = a.swapaxes(-1, -2) if params["transpose_a"] else a
    with np.errstate(all="ignore"):
        inverse = _substituted(a, lower=bool(params["lower"]) != bool(params["transpose_a"]))
    return np.tril(inverse) if params["lower"] != params["transpose_a"] else np.triu(inverse)


def _substituted(a: np.ndarray, lower: bool) -> np.ndarray:
    """Row by row, as a division by zero gives what XLA gives for it."""
    n = a.shape[-1]
    inverse = np.zeros_like(a)
    for i in range(n) if lower else reversed(range(n)):
        row = np.zeros_like(a[..., i, :])
        row[..., i] = 1
        done = slice(0, i) if lower else slice(i + 1, n)
        row = row - np.matmul(a[..., i, None, done], inverse[..., done, :])[..., 0, :]
        inverse[..., i, :] = row / a[..., i, i, None]
    return inverse


def _tridiagonal_solve(equation: Any, values: Values) -> Any:
    *diagonals, b = values
    n = b.shape[-2]
    lower, middle, upper = _known_matrix(diagonals, n)
    matrix = middle[..., :, None] * np.eye(n, dtype=middle.dtype)
    matrix[..., range(1, n), range(n - 1)] = lower[..., 1:]
    matrix[..., range(n - 1), range(1, n)] = upper[..., :-1]
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        raise UnsupportedOperation(f"its matrix is singular. {MATRIX_FREE}") from None
    k = b.ndim - 2
    return dense_product(b, inverse, ((k,), (k + 1,)), (range(k), range(k)), x_first=False)


def _known_matrix(arrays: Values, n: int) -> list[np.ndarray]:
    if any(isinstance(a, Linear) for a in arrays):
        raise NotLinear("the matrix depends on it")
    if not all(map(is_known, arrays)):
        raise UnsupportedOperation(f"its matrix is not known while the function is traced. {MATRIX_FREE}")
    if n > MOST:
        why = f"the inverse of a matrix is dense, and that of one with more than {MOST} unknowns too large"
        raise UnsupportedOperation(f"{why}. {MATRIX_FREE}")
    return [np.asarray(a) for a in arrays]


SOLVES: dict[str, Callable[[Any, Values], Any]] = {
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
}
