"""COO matrix with traced indices: an argument of a compiled function, of which only the shape is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend
from ..errors import UnsupportedOperation
from ..operator import Operator
from .compressed import EntriesForm
from .entries.integers import check_shape
from .making.build import from_entries, from_systems
from .matrix import Matrix, check_axis
from .operations import as_factor

_UNKNOWN = (
    "{} needs the places of the matrix's entries, but the matrix is an argument of the compiled function: they are not "
    "known before it runs. Make the matrix with krylix outside of it, and pass that or close over it."
)


def places_unknown(what: str) -> UnsupportedOperation:
    """Error for an operation that needs the indices."""
    return UnsupportedOperation(_UNKNOWN.format(what))


def _refused(what: str) -> Any:
    """Method that raises for an operation that needs the indices."""

    def refuse(matrix: TracedCOO, *_: Any, **__: Any) -> Any:
        raise places_unknown(what)

    return refuse


class TracedCOO(Matrix):
    """Entries in any order: values, rows and columns `(nnz,)` of the library; duplicates add up.

    Arrays `(systems, nnz)` make a batch of matrices, each with places of its own.

    It multiplies, transposes and gives its diagonal and dense form; all else needs a structure that is known. Entries
    that JAX pads a matrix with are zeros in the first place, so where number 0 of a vector is infinite or NaN, so is
    that of the image.
    """

    is_container = True

    def __init__(self, bk: Backend, values: Array, rows: Array, cols: Array, shape: Sequence[int]) -> None:
        self.bk, self.shape = bk, check_shape(shape)
        self.values, self.rows, self.cols = values, rows, cols
        self.dtype, self.systems = bk.dtype(values), int(values.shape[0]) if len(values.shape) == 2 else None
        bk.register(TracedCOO, _flatten, _restore)

    @property
    def format(self) -> str:
        return "coo"

    @property
    def nnz(self) -> int:
        """Number of stored entries.

        Raises:
            UnsupportedOperation: it is not known.
        """
        count = self.values.shape[-1]
        if count is None:
            raise places_unknown("Their number")
        return int(count) * (1 if self.systems is None else self.systems)

    def _each(self, function: Callable[..., Array], *more: Array) -> Array:
        """`function(values, rows, columns, *more)` of the matrix, or of every one of a batch, stacked."""
        arrays = (self.values, self.rows, self.cols, *more)
        return function(*arrays) if self.systems is None else self.bk.vmap(function, (0,) * len(arrays))(*arrays)

    def apply(self, x: Array) -> Array:
        bk, values, dtype = self.bk, self.values, np.result_type(self.bk.dtype(x), self.dtype)
        x, values, form = bk.astype(x, dtype), bk.astype(values, dtype), EntriesForm(*self.shape)
        if self.systems is None:
            return bk.bilinear(form, (values,), (self.rows, self.cols), x)

        def image(v: Array, rows: Array, cols: Array, x: Array) -> Array:
            return bk.bilinear(form, (v,), (rows, cols), x[None])[0]

        return self.with_values(values)._each(image, x)

    def transpose(self) -> TracedCOO:
        return TracedCOO(self.bk, self.values, self.cols, self.rows, self.shape[::-1])

    def conj(self) -> TracedCOO:
        return self.with_values(self.bk.conj(self.values)) if self.dtype.kind == "c" else self

    def astype(self, dtype: np.dtype) -> TracedCOO:
        return self.with_values(self.bk.astype(self.values, np.dtype(dtype)))

    def with_values(self, values: Any) -> TracedCOO:
        return TracedCOO(self.bk, values, self.rows, self.cols, self.shape)

    def dense(self) -> Array:
        n, m = self.shape
        if n * m >= 2**31:
            raise ValueError(f"A dense matrix of shape {self.shape} was asked for, {n * m} numbers; keep it sparse.")
        bk = self.bk
        return self._each(lambda v, rows, cols: bk.reshape(bk.segment_sum(v, rows * m + cols, n * m), (n, m)))

    def diagonals(self) -> Array:
        bk, count = self.bk, min(self.shape)
        if not count:
            return bk.zeros((1 if self.systems is None else self.systems, 0), self.dtype, self.values)

        def diagonal(v: Array, rows: Array, cols: Array) -> Array:
            on = rows == cols
            return bk.segment_sum(bk.where(on, v, 0), bk.where(on, rows, 0), count)

        found = self._each(diagonal)
        return found[None] if self.systems is None else found

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host, shape, systems = get_backend("numpy"), self.shape, self.systems

        def make(parts: Sequence[np.ndarray]) -> Operator:
            values, rows, cols = map(np.asarray, parts)
            if systems is None:
                return from_entries(host, rows, cols, values, shape, prune=False, format="csr")
            numbers = np.repeat(np.arange(systems, dtype=np.int32), values.shape[1])
            places = numbers, rows.reshape(-1), cols.reshape(-1)
            return from_systems(host, *places, values.reshape(-1), (systems, *shape)).to("csr")

        return (self.values, self.rows, self.cols), make

    def per_system(self, i: int) -> Any:
        return self.to_scipy()

    def sum(self, axis: int | None = None) -> Array:
        check_axis(axis)
        bk, (n, m) = self.bk, self.shape

        def total(v: Array, rows: Array, cols: Array) -> Array:
            if axis is None:
                return bk.sum(v, (0,))
            return bk.segment_sum(v, *((cols, m) if axis in (0, -2) else (rows, n)))

        return self._each(total)

    def to(self, format: str) -> Matrix:
        if format == "coo":
            return self
        raise places_unknown(f"The format {format!r}")

    def explain(self) -> str:
        return f"{self!r}\nvalues and places: arrays of {self.bk.name}, not known before the compiled function runs"

    def __repr__(self) -> str:
        n, m = self.shape
        batch = "" if self.systems is None else f", {self.systems} systems"
        return f"<{n}x{m} TracedCOO matrix of {self.values.shape[-1]} entries{batch}, {self.dtype}, {self.bk.name}>"

    def _scaled(self, c: Any, divide: bool = False) -> Matrix:
        factor, dtype = as_factor(self.bk, c, self.dtype)
        values = self.bk.astype(self.values, dtype)
        factor = self.bk.asarray(factor, like=values)
        return self.with_values(values / factor if divide else values * factor)

    native = _refused("The library's own form")
    _extreme = _refused("The largest or smallest entry")
    _plus = _refused("A sum")
    _times = _refused("A product of matrices")
    _part = _chosen = _refused("A part")


def _flatten(matrix: TracedCOO) -> tuple[tuple[Array, ...], Any]:
    return (matrix.values, matrix.rows, matrix.cols), (matrix.bk, matrix.shape, matrix.dtype)


def _restore(static: Any, arrays: Sequence[Any]) -> TracedCOO:
    """Unflatten without access to the arrays, which transformations replace by placeholders."""
    matrix = object.__new__(TracedCOO)
    matrix.bk, matrix.shape, dtype = static
    matrix.values, matrix.rows, matrix.cols = arrays
    first = arrays[0]
    matrix.systems = int(first.shape[0]) if len(getattr(first, "shape", ())) == 2 else None
    matrix.dtype = matrix.bk.dtype(first) if hasattr(first, "dtype") and hasattr(first, "shape") else dtype
    return matrix
