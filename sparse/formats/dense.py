"""Dense matrices: one for all systems, or one per system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, choose_backend, get_backend
from ...backends.registry import register_container
from ..operator import Operator
from .entries.checked import checked_scipy
from .making.build import from_entries
from .matrix import FORMATS, Matrix, check_axis
from .operations import as_factor, check_systems
from .sparse_matrix import SparseMatrix


class Dense(Matrix):
    """A matrix `(n, m)`, or one per system `(systems, n, m)`.

    `constant` is the same matrix as a NumPy array where it is known although the library compiles.
    """

    is_container = True

    def __init__(self, bk: Backend, matrix: Array, constant: np.ndarray | None = None) -> None:
        self.bk, self.matrix, self.constant = bk, matrix, constant
        self.shape = (int(matrix.shape[-2]), int(matrix.shape[-1]))
        self.dtype = bk.dtype(matrix)
        self.systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
        self._register()

    def _register(self) -> None:
        register_container(self.bk, Dense, lambda a: ((a.matrix,), a.bk), lambda bk, arrays: _restore(bk, *arrays))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    def apply(self, x: Array) -> Array:
        return self.bk.product(self.matrix, x)

    def astype(self, dtype: np.dtype) -> Dense:
        matrix = self.bk.astype(self.matrix, dtype)
        same = self.constant is self.matrix  # as of NumPy: kept once
        constant = matrix if same else None if self.constant is None else self.constant.astype(dtype)
        return Dense(self.bk, matrix, constant)

    def on_backend(self, bk: Backend, like: Array | None) -> Dense:
        own = self.matrix.copy()  # a user may write to the other
        return Dense(bk, bk.asarray(own, like=like), own)

    def transpose(self) -> Dense:
        constant = None if self.constant is None else np.swapaxes(self.constant, -1, -2)
        return Dense(self.bk, self.bk.matrix_transpose(self.matrix), constant)

    def conj(self) -> Dense:
        return Dense(self.bk, self.bk.conj(self.matrix), None if self.constant is None else self.constant.conj())

    def dense(self) -> Array:
        return self.matrix

    def diagonals(self) -> Array:
        diagonal = self.bk.diagonal(self.matrix)
        return diagonal[None, :] if self.systems is None else diagonal

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host = get_backend("numpy")
        known = self.known()
        if known is not None:
            return (), lambda _: Dense(host, known)
        return (self.matrix,), lambda arrays: Dense(host, arrays[0])

    def per_system(self, i: int) -> Any:
        return self.matrix if self.systems is None else self.matrix[i]

    def known(self) -> np.ndarray | None:
        if self.constant is not None:
            return self.constant
        return None if self.bk.compiled(self.matrix) else self.bk.to_numpy(self.matrix)

    # --- as a matrix --------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, A: SparseMatrix) -> Dense:
        """A with all its entries."""
        return Dense(A.bk, A.dense(), A.toarray() if A.constant is not None else None)

    @property
    def format(self) -> str:
        return "dense"

    @property
    def nnz(self) -> int:
        """Number of stored entries: all of them."""
        return (self.systems or 1) * self.shape[0] * self.shape[1]

    @property
    def values(self) -> Array:
        """The matrix as an array of the library; where it is known read-only, or of PyTorch a copy."""
        if self.constant is None:
            return self.matrix
        return self.bk.copy(self.matrix) if self.bk.always_writable else self.bk.read_only(self.matrix)

    def to(self, format: str) -> Matrix:
        if format == "dense":
            return self
        known, (n, m), lead = self.known(), self.shape, () if self.systems is None else (self.systems,)
        rows, cols = (i.reshape(-1) for i in np.indices((n, m), np.int32))
        values = known.reshape(*lead, n * m) if known is not None else self.bk.reshape(self.matrix, (*lead, n * m))
        return from_entries(self.bk, rows, cols, values, (n, m), format=format, like=self.matrix)

    def with_values(self, values: Any) -> Dense:
        shape = tuple(int(n) for n in values.shape)
        if len(shape) not in (2, 3) or shape[-2:] != self.shape:
            raise ValueError(
                f"Values of the shape {shape} were given; expected {self.shape}, or for a batch (systems, "
                f"{self.shape[0]}, {self.shape[1]})."
            )
        if isinstance(values, np.ndarray):
            own = values.copy()
            return Dense(self.bk, self.bk.asarray(own, like=self.matrix), own)
        return Dense(self.bk if self.bk.is_array(values) else choose_backend(values), values)

    def native(self, backend: Any = None) -> Any:
        """The array itself, or that of another library."""
        bk = self.bk if backend is None else get_backend(backend)
        return self.matrix if bk is self.bk else bk.asarray(self.toarray())

    def explain(self) -> str:
        return f"{self!r}\nstored: all {self.nnz} entries, {self.nnz * self.dtype.itemsize / 1e6:.3g} MB"

    def sum(self, axis: int | None = None) -> Array:
        check_axis(axis)
        return self.bk.sum(self.matrix, _axes(axis))

    def _extreme(self, axis: int | None, largest: bool) -> Array:
        return (self.bk.xp.max if largest else self.bk.xp.min)(self.matrix, axis=_axes(axis))

    def _plus(self, other: Any) -> Dense:
        check_systems([self, other])
        if self.shape != tuple(other.shape):
            raise ValueError(f"Matrices of the shapes {self.shape} and {other.shape} were added; expected equal ones.")
        return Dense(self.bk, self.matrix + self._entries_of(other))

    def _entries_of(self, other: Any) -> Array:
        if sp.issparse(other):
            return self.bk.asarray(checked_scipy(other, "the other matrix").toarray(), like=self.matrix)
        if other.bk is self.bk:
            return other.dense()
        return self.bk.asarray(other.toarray(), like=self.matrix)

    def _scaled(self, c: Any, divide: bool = False) -> Dense:
        factor, dtype = as_factor(self.bk, c, self.dtype)
        matrix = self.bk.astype(self.matrix, dtype)
        factor = self.bk.asarray(factor, like=matrix)
        return Dense(self.bk, matrix / factor if divide else matrix * factor)

    def _times(self, other: Any) -> Dense:
        systems = check_systems([self, other])
        if self.shape[1] != other.shape[0]:
            raise ValueError(
                f"Matrices of the shapes {self.shape} and {other.shape} were multiplied; expected equal inner numbers."
            )
        bk = self.bk
        if systems is not None:
            factors = [
                [M if getattr(M, "systems", None) is None else M[i] for M in (self, other)] for i in range(systems)
            ]
            return Dense(bk, bk.stack([A._times(B).matrix for A, B in factors]))
        columns = bk.matrix_transpose(self._entries_of(other))
        return Dense(bk, bk.matrix_transpose(bk.product(self.matrix, columns)))

    def _part(self, key: Any) -> Any:
        places = np.arange(self.nnz, dtype=np.int32).reshape(self.shape)[key]
        found = self.bk.take_in_bounds(self.bk.reshape(self.matrix, (self.nnz,)), np.asarray(places))
        return Dense(self.bk, found) if np.ndim(places) == 2 else found

    def _chosen(self, systems: np.ndarray | int) -> Dense:
        constant = None if self.constant is None else self.constant[systems]
        if isinstance(systems, int):
            return Dense(self.bk, self.matrix[systems, ...], constant)
        return Dense(self.bk, self.bk.take_in_bounds(self.matrix, systems), constant)


FORMATS["dense"] = Dense


def _axes(axis: int | None) -> tuple[int, ...]:
    """Axes of the arrays, of one matrix or of a batch."""
    return (-2, -1) if axis is None else (axis % 2 - 2,)


def _restore(bk: Backend, matrix: Any) -> Dense:
    """Unflatten without access to `matrix`, which transformations replace by a placeholder."""
    operator = object.__new__(Dense)
    operator.bk, operator.matrix, operator.constant = bk, matrix, None
    shape = tuple(getattr(matrix, "shape", (0, 0)))
    operator.shape = shape[-2:] if len(shape) >= 2 else (0, 0)
    operator.dtype = bk.dtype(matrix) if len(shape) >= 2 and hasattr(matrix, "dtype") else np.dtype(np.float64)
    operator.systems = shape[0] if len(shape) == 3 else None
    return operator
