"""Rules for products with constant arrays, convolutions and Fourier transforms.

`m @ u`, with one box for each entry of m that is not zero; row, column and entry are

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u, m = identity(get_backend("jax"), (2,), float), np.array([[3.0, 4.0], [0.0, 5.0]])
>>> (equation,) = jax.make_jaxpr(lambda u: m @ u)(np.zeros(2)).eqns
>>> for term in PRODUCTS["dot_general"](equation, [m, u]).terms:
...     print(term.lo, term.offset, term.factor)
(0,) 0 3.0
(0,) 1 4.0
(1,) 1 5.0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine.arithmetic import convert
from ...engine.linear import Linear
from ...engine.operations.fourier import fourier, fourier_of_real, fourier_to_real
from ...engine.operations.products import linear_factor, product
from ...engine.products.convolution import convolve
from ...engine.structural import transpose

Values = Sequence[Any]


def _dot_general(equation: Any, values: Values) -> Any:
    a, b = values
    contracting, batch = equation.params["dimension_numbers"]
    return convert(product(a, b, contracting, batch), equation.outvars[0].aval.dtype)


def _convolution(equation: Any, values: Values) -> Any:
    p = equation.params
    numbers = p["dimension_numbers"]
    linear_factor(*values)
    image, kernel = _permuted(values[0], numbers.lhs_spec), _permuted(values[1], numbers.rhs_spec)
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


def _permuted(x: Any, axes: Sequence[int]) -> Any:
    return transpose(x, axes) if isinstance(x, Linear) else x.transpose(axes)


def _fft(equation: Any, values: Values) -> Any:
    """A product with the matrix of the transform along each axis."""
    (x,), lengths, kind = values, equation.params["fft_lengths"], _fft_name(equation.params["fft_type"])
    dtype, axes = np.dtype(equation.outvars[0].aval.dtype), list(range(x.ndim - len(lengths), x.ndim))
    if kind == "RFFT":
        return convert(fourier_of_real(x, axes), dtype)
    return convert(fourier_to_real(x, axes, lengths[-1]) if kind == "IRFFT" else fourier(x, axes, kind == "FFT"), dtype)


def _fft_name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]


PRODUCTS: dict[str, Callable[[Any, Values], Any]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "fft": _fft,
}
