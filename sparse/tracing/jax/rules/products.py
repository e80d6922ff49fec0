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

from ...engine.arithmetic import add, convert, imaginary_part, real_part
from ...engine.contraction import contract
from ...engine.convolution import convolve
from ...engine.linear import Linear
from ...engine.rounding import absolute, dense_along, without_rests
from ...engine.structural import transpose
from ..messages import nonlinear

Values = Sequence[Any]


def _dot_general(equation: Any, values: Values) -> Any:
    a, b = values
    contracting, batch = equation.params["dimension_numbers"]
    if isinstance(a, Linear) and isinstance(b, Linear):
        raise nonlinear(equation, values, "both factors depend on it")
    if isinstance(a, Linear):
        product = contract(a, b, contracting, batch)
    else:
        product = contract(b, a, contracting[::-1], batch[::-1], x_first=False)
    return convert(product, equation.outvars[0].aval.dtype)


def _convolution(equation: Any, values: Values) -> Any:
    p = equation.params
    numbers = p["dimension_numbers"]
    if isinstance(values[0], Linear) and isinstance(values[1], Linear):
        raise nonlinear(equation, values, "the image and the kernel depend on it")
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
    (x,), lengths = values, equation.params["fft_lengths"]
    kind = _fft_name(equation.params["fft_type"])
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    axes = list(range(x.ndim - len(lengths), x.ndim))
    if kind == "RFFT":
        x = _along(convert(x, dtype), axes[-1], np.fft.rfft(np.eye(lengths[-1])))
        axes, kind = axes[:-1], "FFT"
    last = axes[-1] if kind == "IRFFT" else None
    transform = np.fft.fft if kind == "FFT" else np.fft.ifft
    for axis in axes:
        if axis != last:
            x = _along(x, axis, transform(np.eye(x.shape[axis])))
    return convert(x, dtype) if last is None else convert(_to_real(x, last, lengths[-1]), dtype)


def _fft_name(kind: Any) -> str:
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]


def _to_real(x: Linear, axis: int, length: int) -> Linear:
    """The inverse of a real transform takes real and imaginary parts apart."""
    one = np.eye(x.shape[axis])
    by_real, by_imaginary = np.fft.irfft(one, length), np.fft.irfft(1j * one, length)
    result = add(_along(real_part(x), axis, by_real), _along(imaginary_part(x), axis, by_imaginary))
    return without_rests(result, _along(absolute(x), axis, np.abs(by_real) + np.abs(by_imaginary)))


def _along(x: Linear, axis: int, images: np.ndarray) -> Linear:
    """The matrix whose row i is the image of the i-th unit vector, along an axis, in the precision of x."""
    matrix = images.T.astype(np.result_type(x.dtype.type(0), 1j) if images.dtype.kind == "c" else x.dtype)
    return dense_along(x, [axis], matrix, [matrix.shape[0]])


PRODUCTS: dict[str, Callable[[Any, Values], Any]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "fft": _fft,
}
