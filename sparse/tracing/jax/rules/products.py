"""Rules for products with constant arrays, convolutions, Fourier transforms and dense solves.

`m @ u`, with one box for each entry of m that is not zero; row, column and entry are

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u, m = identity(get_backend("jax"), (2,), float), np.array([[3.0, 4.0], [0.0, 5.0]])
>>> (equation,) = jax.make_jaxpr(lambda u: m @ u)(np.zeros(2)).eqns
>>> for term in PRODUCTS["dot_general"](equation, [m, u]).terms:
...     print(term.lo, term.offset, term.factor)
(0,) 0 3.0
(0,) 1 4.0
(1,) 1 5.0

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
from ...engine.arithmetic import convert
from ...engine.contraction import dense_product
from ...engine.convolution import convolve
from ...engine.images import fourier, fourier_of_real, fourier_to_real
from ...engine.linear import Linear
from ...engine.operands import MATRIX_FREE, NotLinear, permuted
from ...engine.products import linear_factor, product
from ...engine.structural import transpose
from ..known import is_known

Values = Sequence[Any]


def _dot_general(equation: Any, values: Values) -> Any:
    a, b = values
    contracting, batch = equation.params["dimension_numbers"]
    return convert(product(a, b, contracting, batch), equation.outvars[0].aval.dtype)


def _convolution(equation: Any, values: Values) -> Any:
    p = equation.params
    numbers = p["dimension_numbers"]
    bk = linear_factor(*values).bk
    image, kernel = (permuted(bk, x, axes) for x, axes in zip(values, (numbers.lhs_spec, numbers.rhs_spec)))
    result = convolve(
        image,
        kernel,
        p["window_strides"],
        p["padding"],
        p["lhs_dilation"],
        p["rhs_dilation"],
        p["feature_group_count"],
        p["batch_group_count"],
    )
    order = [int(i) for i in np.argsort(numbers.out_spec)]
    return convert(transpose(result, order), equation.outvars[0].aval.dtype)


def _fft(equation: Any, values: Values) -> Any:
    (x,), lengths, kind = values, equation.params["fft_lengths"], _fft_name(equation.params["fft_type"])
    dtype, axes = np.dtype(equation.outvars[0].aval.dtype), list(range(x.ndim - len(lengths), x.ndim))
    if kind == "RFFT":
        return convert(fourier_of_real(x, axes), dtype)
    return convert(fourier_to_real(x, axes, lengths[-1]) if kind == "IRFFT" else fourier(x, axes, kind == "FFT"), dtype)


def _fft_name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]


# --- solves with known dense matrices, by inverses that NumPy computes ------------------------------------------------

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


PRODUCTS: dict[str, Callable[[Any, Values], Any]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "fft": _fft,
    "triangular_solve": _triangular_solve,
    "tridiagonal_solve": _tridiagonal_solve,
}
