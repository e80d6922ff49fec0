"""Toys of what sparse matrices are stored as, for tests of the derivatives of their products.

The matrix with some values is `dense(name, values)`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from contract import backend, rows
from krylix.backends.interface.kernels import Bilinear
from krylix.sparse.formats.entries.values import entries_sample
from modes import array, to_numpy

ROWS = np.array([2, 0, 0, 3, 2, 2, 1], np.int32)  # in no order, with a duplicate and an empty row
COLS = np.array([4, 0, 3, 2, 4, 0, 1], np.int32)
N, M = 5, 6
OFFSETS = (-7, -2, 0, 1, 5, 6)  # the first and the last have no place in the matrix


@dataclass(frozen=True)
class Coordinates(Bilinear):
    """Entries with their row and column as index arrays."""

    def product(self, bk: Any, values: Any, indices: Any, x: Any) -> Any:
        return bk.entries_product(values[0], *indices, x, N)

    def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
        return bk.entries_product(values[0], *indices[::-1], y, M)

    def sample(self, bk: Any, indices: Any, y: Any, x: Any, each: bool = False) -> Any:
        return (entries_sample(bk, *indices, y, x, each),)


@dataclass(frozen=True)
class Diagonals(Bilinear):
    """Without index arrays."""

    def product(self, bk: Any, values: Any, indices: Any, x: Any) -> Any:
        return bk.dia_product(values[0], OFFSETS, x, N)

    def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
        return bk.dia_product(values[0], OFFSETS, y, M, transposed=True)

    def sample(self, bk: Any, indices: Any, y: Any, x: Any, each: bool = False) -> Any:
        return (bk.dia_sample(OFFSETS, y, x, each),)


@dataclass(frozen=True)
class Both(Bilinear):
    """The sum of the two: several arrays of values."""

    def product(self, bk: Any, values: Any, indices: Any, x: Any) -> Any:
        return Coordinates().product(bk, values[:1], indices, x) + Diagonals().product(bk, values[1:], (), x)

    def product_transposed(self, bk: Any, values: Any, indices: Any, y: Any) -> Any:
        one = Coordinates().product_transposed(bk, values[:1], indices, y)
        return one + Diagonals().product_transposed(bk, values[1:], (), y)

    def sample(self, bk: Any, indices: Any, y: Any, x: Any, each: bool = False) -> Any:
        return *Coordinates().sample(bk, indices, y, x, each), *Diagonals().sample(bk, (), y, x, each)


FORMS = {"coordinates": Coordinates(), "diagonals": Diagonals(), "both": Both()}
dtypes = pytest.mark.parametrize("dtype", ["float64", "complex128"])


def indices_of(name: str) -> tuple[np.ndarray, ...]:
    return () if name == "diagonals" else (ROWS, COLS)


def values_of(name: str, dtype: str, seed: int = 0) -> tuple[np.ndarray, ...]:
    entries, diagonals = rows(dtype, (len(ROWS),), seed), rows(dtype, (len(OFFSETS), N), seed)
    return {"coordinates": (entries,), "diagonals": (diagonals,), "both": (entries, diagonals)}[name]


def dense(name: str, values: Sequence[np.ndarray]) -> np.ndarray:
    matrix = np.zeros((N, M), np.result_type(*values))
    if name != "diagonals":
        np.add.at(matrix, (ROWS, COLS), values[0])
    if name != "coordinates":
        for o, diagonal in zip(OFFSETS, values[-1], strict=True):
            for i in range(N):
                if 0 <= i + o < M:
                    matrix[i, i + o] += diagonal[i]
    return matrix


def selectors_of(name: str) -> list[np.ndarray]:
    """For each array of values, the tensor that makes its part of the dense matrix from it."""
    found = []
    for i, value in enumerate(values_of(name, "float64")):
        zeros = [np.zeros_like(v) for v in values_of(name, "float64")]
        units = np.eye(value.size).reshape(-1, *value.shape)
        parts = [dense(name, [*zeros[:i], unit, *zeros[i + 1 :]]) for unit in units]
        found.append(np.array(parts).reshape(*value.shape, N, M))
    return found


def native(mode: str, *arrays: np.ndarray) -> list[Any]:
    return [array(mode, a) for a in arrays]


def arguments(mode: str, name: str, dtype: str, transposed: bool = False, seed: int = 0) -> list[Any]:
    """Values and two vectors for a product."""
    return native(mode, *values_of(name, dtype, seed), 0.3 * rows(dtype, (2, N if transposed else M), seed + 10))


def form_function(mode: str, name: str, transposed: bool = False) -> Callable[..., Any]:
    """The product as a function of values and vectors."""
    bk = backend(mode)
    return lambda *a: bk.bilinear(FORMS[name], a[:-1], indices_of(name), a[-1], transposed)


def dense_function(mode: str, name: str, transposed: bool = False) -> Callable[..., Any]:
    """The same in the library's own operations on the dense matrix."""
    own = import_module({"jax": "jax.numpy", "torch": "torch", "tf": "tensorflow"}[mode])
    selectors = selectors_of(name)

    def product(*a: Any) -> Any:
        pairs = [(v, array(mode, s.astype(backend(mode).dtype(v)))) for v, s in zip(a[:-1], selectors, strict=True)]
        matrix = sum(own.tensordot(v, s, len(v.shape)) for v, s in pairs)
        return own.einsum("bi,ij->bj" if transposed else "bj,ij->bi", a[-1], matrix)

    return product


def close(found: Any, want: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(to_numpy(found), to_numpy(want), rtol=rtol, atol=rtol)
