"""Verification of a traced matrix: a random vector through the matrix and through the function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...backends import get_backend
from ..errors import UnsupportedOperation
from .engine.coefficients import largest
from .front_end import FrontEnd, Traced

TOLERANCE = 1e3  # in units of rounding of the largest number
MANY = 50_000  # rows; of larger matrices some are tested
SAMPLE = 1000

Values: TypeAlias = Sequence[np.ndarray]


def verify(front_end: FrontEnd, traced: Traced, matrix: Any, biases: Sequence[Any]) -> None:
    """Compare `matrix @ z + bias` with `f(z)` for a random z, where all values are known or at hand.

    Of a large matrix some thousand rows are compared, and what they do not need is not computed.
    """
    if matrix.constant is None and matrix.bk.is_eager and not matrix.bk.compiled():  # with derivatives, and a value
        values = tuple(matrix.bk.to_numpy(v) for v in matrix.arrays())
        biases = [matrix.bk.to_numpy(bias) for bias in biases]
    else:
        values = matrix.constant
    if values is None or not all(isinstance(bias, np.ndarray) for bias in biases) or 0 in matrix.shape:
        return
    unit = TOLERANCE * max(traced.precision, float(np.finfo(matrix.dtype).eps))
    with np.errstate(all="ignore"):
        if matrix.shape[0] > MANY and _agrees_in_some_rows(front_end, traced, matrix, values, biases, unit):
            return
        z = _random(np.arange(traced.columns), _point_dtype(traced))
        outputs, _ = front_end.evaluate(traced, _leaves(traced, z))
        if not all(isinstance(output, np.ndarray) for output in outputs):
            return
        expected, bias = _flat(outputs), _flat(biases)
        found = _product(matrix, values, z)
        worst, size = _compare(expected, found, bias)
        if worst <= unit * size:
            return
        # numbers in between may have been larger, and cancelled
        _, between = front_end.evaluate(traced, _leaves(traced, z), watch=True)
        if worst <= unit * max(size, between):
            return
    again, _ = front_end.evaluate(traced, _leaves(traced, z))
    if not np.array_equal(_flat(again), expected, equal_nan=True):
        raise UnsupportedOperation(
            "The function returns other numbers when it is called again with the same ones: it is random, or depends "
            "on what it changes, and a matrix is the same at each call. Draw random numbers before."
        )
    raise UnsupportedOperation(
        f"The traced matrix does not reproduce the function: for a random vector they differ by {worst:.1e}, where the "
        f"numbers are of size {size:.1e}. This is an error of krylix, please report it; meanwhile solve with the "
        "function itself instead of its matrix."
    )


def _agrees_in_some_rows(
    front_end: FrontEnd, traced: Traced, matrix: Any, values: Values, biases: Sequence[np.ndarray], unit: float
) -> bool:
    """False also where the front end cannot compute single elements."""
    n = matrix.shape[0]
    rows = np.random.default_rng(0).integers(0, n, SAMPLE)
    rows = np.unique(np.concatenate([rows, np.arange(64), np.arange(n - 64, n)]))
    ends = np.cumsum([bias.size for bias in biases])
    wanted = [rows[(rows >= end - bias.size) & (rows < end)] - (end - bias.size) for end, bias in zip(ends, biases)]
    first = np.cumsum([0, *(leaf.size for leaf in traced.inputs)])

    point = _point_dtype(traced)

    def inputs(number: int, where: np.ndarray | None) -> np.ndarray:
        leaf = traced.inputs[number]
        where = np.arange(leaf.size) if where is None else where
        return _random(first[number] + where, point).astype(leaf.dtype, copy=False)

    expected = front_end.sample(traced, inputs, wanted)
    if expected is None:
        return False
    bias = _flat([_at(bias, where) for bias, where in zip(biases, wanted)])
    worst, size = _compare(_flat(expected), _rows_of_product(matrix, values, rows, point), bias)
    return worst <= unit * size


def _at(bias: np.ndarray, where: np.ndarray) -> np.ndarray:
    return bias[np.unravel_index(where, bias.shape)] if bias.ndim else np.broadcast_to(bias, where.shape)


def _compare(expected: np.ndarray, found: np.ndarray, bias: np.ndarray) -> tuple[float, float]:
    """The largest difference, and the size of the numbers."""
    size = max(largest(expected), largest(found))
    if bias.any():
        found, size = found + bias, max(size, largest(bias))
    return _difference(expected, found), size


def _point_dtype(traced: Traced) -> np.dtype:
    """Complex only where every input is."""
    dtypes = [np.dtype(leaf.dtype) for leaf in traced.inputs]
    joint = np.result_type(*dtypes)
    return joint if all(d.kind == "c" for d in dtypes) else np.zeros((), joint).real.dtype


def _random(columns: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers between -1/2 and 1/2 that depend on the column only."""
    bits = columns.astype(np.uint64)
    bits += np.uint64(1)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits >>= np.uint64(40)
    z = bits.astype(np.float64)
    z *= 2.0**-24
    z -= 0.5
    return (z + 1j * ((3 * z) % 1 - 0.5)).astype(dtype) if dtype.kind == "c" else z.astype(dtype, copy=False)


def _leaves(traced: Traced, z: np.ndarray) -> list[np.ndarray]:
    leaves, start = [], 0
    for leaf in traced.inputs:
        part = z[start : start + leaf.size].reshape(leaf.shape)
        leaves.append(part.astype(leaf.dtype, copy=False))
        start += leaf.size
    return leaves


def _product(matrix: Any, values: Values, z: np.ndarray) -> np.ndarray:
    """By NumPy, which compiles nothing."""
    structure = matrix.structure
    return structure.form.product(
        get_backend("numpy"),
        tuple(np.asarray(v) for v in values),
        structure.indices,
        z[None].astype(matrix.dtype, copy=False),
    )[0]


def _rows_of_product(matrix: Any, values: Values, rows: np.ndarray, point: np.dtype) -> np.ndarray:
    """Rows of the product with `_random`; formats on grids need the rest of neither."""
    structure, found = matrix.structure, np.zeros(len(rows), matrix.dtype)
    if matrix.format == "dia":
        for offset, diagonal in zip(structure.offsets, values[0]):
            columns = rows + offset
            inside = np.flatnonzero((columns >= 0) & (columns < matrix.shape[1]))
            found[inside] += diagonal[rows[inside]] * _random(columns[inside], point)
        return found
    if matrix.format != "stencil":
        return _product(matrix, values, _random(np.arange(matrix.shape[1]), point))[rows]
    index = np.stack(np.unravel_index(rows, structure.out_grid))
    for box, value in zip(structure.boxes, values):
        own = index - np.asarray(box.lo)[:, None]
        inside = np.flatnonzero(((own >= 0) & (own < np.asarray(box.shape)[:, None])).all(axis=0))
        own = own[:, inside]
        columns = np.ravel_multi_index(tuple(own + np.asarray(box.start)[:, None]), structure.in_grid)
        found[inside] += (value[tuple(own)] if value.ndim else value) * _random(columns, point)
    return found


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([a.reshape(-1) for a in arrays])


def _difference(expected: np.ndarray, found: np.ndarray) -> float:
    """The largest one where the function is finite; infinite where the matrix is not finite there."""
    worst = _absolute(expected - found)
    if np.isfinite(worst):
        return worst
    finite = np.isfinite(expected)
    error = np.abs(expected[finite] - found[finite])
    return float(np.where(np.isnan(error), np.inf, error).max(initial=0))


def _absolute(a: np.ndarray) -> float:
    if not a.size:
        return 0.0
    return float(max(a.max(), -a.min())) if a.dtype.kind == "f" else float(np.abs(a).max())
