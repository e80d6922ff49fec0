"""Rules for products with constant arrays and sparse matrices, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .....backends import Backend
from ...conjugates import conjugated
from ...engine.linear import Linear
from ...engine.operands import permuted, shape_of, spread
from ...engine.operations.fourier import fourier, fourier_of_real, fourier_to_real
from ...engine.operations.products import cross, linear_factor, product, sparse_product
from ...engine.products.einsum import einsum, parsed
from ...engine.refusals import integers, static
from ...engine.structural import pad, transpose


def _flag(op: tf.Operation, *names: str) -> bool:
    attributes = op.node_def.attr
    return any(attributes[name].b for name in names if name in attributes)


def _turned(bk: Backend, x: Any, transposed: bool, adjoint: bool) -> Any:
    """With the last two axes exchanged, and conjugated, if asked for."""
    k = len(shape_of(x))
    if transposed or adjoint:
        x = permuted(bk, x, [*range(k - 2), k - 1, k - 2])
    return conjugated(bk, x) if adjoint else x


def _matrices(op: tf.Operation, a: Any, b: Any) -> Any:
    bk = linear_factor(a, b).bk
    a = _turned(bk, a, _flag(op, "transpose_a"), _flag(op, "adj_x"))
    b = _turned(bk, b, _flag(op, "transpose_b"), _flag(op, "adj_y"))
    lead_a, lead_b = shape_of(a)[:-2], shape_of(b)[:-2]
    i, j = len(lead_a), len(lead_b)
    if not lead_b:
        return product(a, b, ((i + 1,), (0,)))
    if not lead_a:
        found = product(a, b, ((1,), (j,)))
        return transpose(found, [*range(1, j + 1), 0, j + 1])
    lead = np.broadcast_shapes(lead_a, lead_b)
    a, b = (spread(bk, x, (*lead, *shape_of(x)[-2:])) for x in (a, b))
    k = len(lead)
    return product(a, b, ((k + 1,), (k,)), (range(k), range(k)))


def _einsum(op: tf.Operation, *operands: Any) -> Any:
    parts, result = parsed(op.get_attr("equation").decode(), [len(shape_of(x)) for x in operands])
    x = linear_factor(*operands)
    if len(operands) == 1:
        return einsum(x, parts[0], None, "", result)
    number = 0 if x is operands[0] else 1
    return einsum(x, parts[number], operands[1 - number], parts[1 - number], result)


# --- others ---------------------------------------------------------------------------------------------------------


def _sparse_product(op: tf.Operation, indices: Any, values: Any, shape: Any, b: Any) -> Any:
    """By the entries: rows of b, multiplied and added up."""
    where, (n, m) = static("structure of the sparse matrix", indices), integers("shape", shape)
    bk, (rows, columns) = linear_factor(values, b).bk, where.T
    if _flag(op, "adjoint_a"):
        rows, columns, n, values = columns, rows, m, conjugated(bk, values)
    return sparse_product(rows, columns, values, n, _turned(bk, b, False, _flag(op, "adjoint_b")))


# --- Fourier transforms ---------------------------------------------------------------------------------------------


def _last(x: Linear, count: int) -> list[int]:
    return list(range(x.ndim - count, x.ndim))


def _complex_transform(count: int, forward: bool) -> Callable[..., Any]:
    return lambda op, x: fourier(x, _last(x, count), forward)


def _fitting(x: Linear, lengths: Sequence[int]) -> Linear:
    """The last axes cut, or filled up by zeros, to these lengths."""
    lengths = [*x.shape[: x.ndim - len(lengths)], *lengths]
    return pad(x, [(0, wanted - n, 0) for n, wanted in zip(x.shape, lengths)]) if lengths != list(x.shape) else x


def _from_real(count: int) -> Callable[..., Any]:
    return lambda op, x, lengths: fourier_of_real(_fitting(x, integers("length", lengths)), _last(x, count))


def _to_real(count: int) -> Callable[..., Any]:
    def rule(op: tf.Operation, x: Linear, lengths: Any) -> Any:
        *sizes, n = integers("length", lengths)
        return fourier_to_real(_fitting(x, [*sizes, n // 2 + 1]), _last(x, count), n)

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
    "Cross": lambda op, a, b: cross(a, b, -1),
    **FOURIER,
}
