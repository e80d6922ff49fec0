"""Rules for products with constant arrays and sparse matrices, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...conjugates import conjugated
from ...engine import coefficients as co
from ...engine.arithmetic import add, convert, negate, scale
from ...engine.limits import check_entries
from ...engine.linear import Linear, linear_among
from ...engine.operands import permuted, reshaped, shape_of, spread
from ...engine.operations.replace import cut
from ...engine.positions import scatter_add, take
from ...engine.products.contraction import contract
from ...engine.products.einsum import einsum, parsed
from ...engine.products.transforms import transform, transform_to_real
from ...engine.refusals import NotLinear, integers, static
from ...engine.structural import concatenate, pad, transpose


def product(a: Any, b: Any, contracting: Any, batch: Any = ((), ())) -> Linear:
    """The sum of products over axes, in the order of `contract`."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        raise NotLinear("both factors depend on it")
    if isinstance(a, Linear):
        return contract(a, b, contracting, batch)
    return contract(b, a, contracting[::-1], batch[::-1], x_first=False)


def _flag(op: tf.Operation, *names: str) -> bool:
    attributes = op.node_def.attr
    return any(attributes[name].b for name in names if name in attributes)


def _turned(example: Linear, x: Any, transposed: bool, adjoint: bool) -> Any:
    """With the last two axes exchanged, and conjugated, if asked for."""
    k = len(shape_of(x))
    if transposed or adjoint:
        x = permuted(example.bk, x, [*range(k - 2), k - 1, k - 2])
    return conjugated(example.bk, x) if adjoint else x


def _matrices(op: tf.Operation, a: Any, b: Any) -> Any:
    example = linear_among([a, b], "matmul")
    a = _turned(example, a, _flag(op, "transpose_a"), _flag(op, "adj_x"))
    b = _turned(example, b, _flag(op, "transpose_b"), _flag(op, "adj_y"))
    lead_a, lead_b = shape_of(a)[:-2], shape_of(b)[:-2]
    i, j = len(lead_a), len(lead_b)
    if not lead_b:
        return product(a, b, ((i + 1,), (0,)))
    if not lead_a:
        found = product(a, b, ((1,), (j,)))
        return transpose(found, [*range(1, j + 1), 0, j + 1])
    lead = np.broadcast_shapes(lead_a, lead_b)
    a, b = (spread(example.bk, x, (*lead, *shape_of(x)[-2:])) for x in (a, b))
    k = len(lead)
    return product(a, b, ((k + 1,), (k,)), (range(k), range(k)))


def _einsum(op: tf.Operation, *operands: Any) -> Any:
    parts, result = parsed(op.get_attr("equation").decode(), [len(shape_of(x)) for x in operands])
    linear = [k for k, x in enumerate(operands) if isinstance(x, Linear)]
    if len(linear) > 1:
        raise NotLinear("both factors depend on it")
    number = linear[0]
    if len(operands) == 1:
        return einsum(operands[0], parts[0], None, "", result)
    return einsum(operands[number], parts[number], operands[1 - number], parts[1 - number], result)


# --- others ---------------------------------------------------------------------------------------------------------


def _sparse_product(op: tf.Operation, indices: Any, values: Any, shape: Any, b: Any) -> Any:
    """By the entries: rows of b, multiplied and added up."""
    where, (n, m) = static("structure of the sparse matrix", indices), integers("shape", shape)
    if isinstance(values, Linear) and isinstance(b, Linear):
        raise NotLinear("both factors depend on it")
    example = linear_among([values, b], "product")
    rows, columns = where[:, 0], where[:, 1]
    if _flag(op, "adjoint_a"):
        rows, columns, n, values = columns, rows, m, conjugated(example.bk, values)
    b = _turned(example, b, False, _flag(op, "adjoint_b"))
    width = shape_of(b)[1]
    spread = np.arange(width)
    taken = columns[:, None] * width + spread
    picked = take(b, taken) if isinstance(b, Linear) else co.take(example.bk, co.reshape(example.bk, b, (-1,)), taken)
    factors = reshaped(example.bk, values, (len(where), 1))
    terms = scale(factors, picked) if isinstance(factors, Linear) else scale(picked, factors)
    return scatter_add(np.zeros((n, width), terms.dtype), rows[:, None] * width + spread, terms)


def _cross(op: tf.Operation, a: Any, b: Any) -> Any:
    if isinstance(a, Linear) and isinstance(b, Linear):
        raise NotLinear("both factors depend on it")
    if not isinstance(a, Linear):
        return negate(_cross(op, b, a))
    axis = a.ndim - 1

    def part(x: Any, k: int) -> Any:
        return cut(x, axis, k, k + 1)

    pairs = [((k + 1) % 3, (k + 2) % 3) for k in range(3)]
    terms = [add(scale(part(a, i), part(b, j)), negate(scale(part(a, j), part(b, i)))) for i, j in pairs]
    return concatenate(terms, axis)


# --- Fourier transforms ---------------------------------------------------------------------------------------------


def _dft(n: int, forward: bool) -> np.ndarray:
    check_entries(n * n, "A Fourier transform")
    return np.fft.fft(np.eye(n)) if forward else np.fft.ifft(np.eye(n))


def _complex_transform(count: int, forward: bool) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear) -> Any:
        for axis in range(x.ndim - count, x.ndim):
            x = transform(x, axis, _dft(x.shape[axis], forward))
        return x

    return rule


def _fitting(x: Linear, axis: int, n: int) -> Linear:
    """Cut, or filled up by zeros, to this length."""
    more = n - x.shape[axis]
    return pad(x, [(0, more, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]) if more else x


def _from_real(count: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear, lengths: Any) -> Any:
        axes = list(range(x.ndim - count, x.ndim))
        for axis, n in zip(axes, integers("length", lengths)):
            x = _fitting(x, axis, n)
        x = convert(x, np.result_type(x.dtype, np.complex64))
        n = x.shape[-1]
        x = transform(x, axes[-1], _dft(n, True)[:, : n // 2 + 1])
        for axis in axes[:-1]:
            x = transform(x, axis, _dft(x.shape[axis], True))
        return x

    return rule


def _to_real(count: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear, lengths: Any) -> Any:
        axes, sizes = list(range(x.ndim - count, x.ndim)), integers("length", lengths)
        for axis, n in zip(axes, sizes):
            x = _fitting(x, axis, n // 2 + 1 if axis == axes[-1] else n)
        for axis in axes[:-1]:
            x = transform(x, axis, _dft(x.shape[axis], False))
        check_entries(x.shape[-1] * sizes[-1], "A Fourier transform")
        return transform_to_real(x, axes[-1], sizes[-1])

    return rule


FOURIER: dict[str, Callable[..., Any]] = {  # do not commute with conjugation
    **{name: _complex_transform(k, True) for k, name in ((1, "FFT"), (2, "FFT2D"), (3, "FFT3D"))},
    **{name: _complex_transform(k, False) for k, name in ((1, "IFFT"), (2, "IFFT2D"), (3, "IFFT3D"))},
    **{name: _from_real(k) for k, name in ((1, "RFFT"), (2, "RFFT2D"), (3, "RFFT3D"))},
    **{name: _to_real(k) for k, name in ((1, "IRFFT"), (2, "IRFFT2D"), (3, "IRFFT3D"))},
}
PRODUCTS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matrices),
    "Einsum": _einsum,
    "SparseTensorDenseMatMul": _sparse_product,
    "Cross": _cross,
    **FOURIER,
}
