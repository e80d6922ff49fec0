"""The sparse matrix: an operator by its structure's products, and a matrix by its entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ..operator import Operator
from .entries.integers import as_tuple
from .making.given import working
from .matrix import Matrix
from .operations import arithmetic, change, select
from .stored import FORMATS, Stored


class SparseMatrix(Stored):
    """A sparse matrix on arrays of `bk`, immutable; see the formats for constructors.

    Attributes:
        structure: where the entries are: static NumPy integers.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
    """

    def __init_subclass__(cls) -> None:
        FORMATS[cls.structure_class.format] = cls

    # --- as an operator ---

    def apply(self, x: Array) -> Array:
        if self.bk.name == "numpy" and not self._compiled:
            compiled = self.known() if self.format == "csr" else self.structure.compiled(self.arrays())
            self._compiled.append(compiled)
        if self._compiled and self._compiled[0] is not None:
            A = self._compiled[0]
            return (A @ x[0])[None] if x.shape[0] == 1 else (A @ x.T).T
        values, dtype = self.arrays(), self.bk.dtype(x)
        if dtype != self.dtype:
            dtype = np.result_type(dtype, self.dtype)
            x, values = self.bk.astype(x, dtype), tuple(self.bk.astype(v, dtype) for v in values)
        indices = self.index_arrays() if self.constant is not None else (*self.index_arrays(), *self.mask_arrays())
        return self.bk.bilinear(self.structure.form, values, indices, x)

    def transpose(self) -> SparseMatrix:
        if self._transposed is None:
            made = self._flipped()
            made._transposed = self
            # not kept: traced values, and tensors, which an optimiser may write to and whose graph or tape is used up
            if self.constant is None and (self.bk.name != "jax" or self.bk.compiled()):
                return made
            self._transposed = made
        return self._transposed

    def _flipped(self) -> SparseMatrix:
        other = {"csr": "csc", "csc": "csr"}.get(self.format)
        if self.bk.name == "numpy" and other:  # the same arrays, read the other way round: SciPy's products are as fast
            cls: Any = FORMATS[other].structure_class
            starts, lines = self.structure.indices[:2]
            flipped = cls(starts, lines, self.shape[::-1])
            return self.rebuilt(flipped, self.known_or_arrays(), **self._shapes_of_transpose())
        structure, regather = self.structure.transposed()
        return self.regathered(structure, regather, transposed=True)

    def conj(self) -> SparseMatrix:
        if self.dtype.kind != "c":
            return self
        bk = get_backend("numpy") if self.constant is not None else self.bk
        return self.same_structure([bk.conj(v) for v in self.known_or_arrays()])

    def astype(self, dtype: np.dtype) -> SparseMatrix:
        bk, dtype = get_backend("numpy") if self.constant is not None else self.bk, np.dtype(dtype)
        if dtype == self.dtype:
            return self
        return self.same_structure([bk.astype(v, dtype) for v in self.known_or_arrays()])

    def on_backend(self, bk: Backend, like: Array | None) -> SparseMatrix | None:
        if self.constant is None:
            return None
        values = [v.copy() for v in self.constant]  # a user may write to the memory of those
        return Stored.build(bk, self.structure, values, like=like, **self.shapes)

    def dense(self) -> Array:
        n, m = self.shape
        if n * m >= 2**31:
            raise ValueError(f"A dense matrix of shape {self.shape} was asked for, {n * m} numbers; keep it sparse.")
        if self.constant is not None:
            return self.bk.asarray(self.to_scipy().toarray(), like=self.anchor())
        rows, cols, _ = self.structure.entries()
        places = rows * np.int32(m) + cols
        return self.bk.reshape(self.bk.segment_sum(self.entry_values(), places, n * m, sorted=True), (n, m))

    def diagonals(self) -> Array:
        host = get_backend("numpy") if self.constant is not None else self.bk
        found = self.structure.diagonal(host, self.known_or_arrays())
        return (found if self.constant is None else self.bk.asarray(found, like=self.anchor()))[None]

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host, structure, constant = get_backend("numpy"), self.structure, self.constant
        if constant is not None:
            return (), lambda _: Stored.build(host, structure, constant)
        return self.arrays(), lambda arrays: Stored.build(host, structure, [np.asarray(a) for a in arrays])

    def per_system(self, i: int) -> Any:
        return self.to_scipy()

    def known(self) -> sp.csr_array | None:
        if self._scipy is not None:
            return self._scipy
        if self.constant is None and self.bk.compiled(*(self._arrays or ())):
            return None
        values = self.constant or tuple(self.bk.to_numpy(v) for v in self.arrays())
        found = self.structure.to_scipy(values)
        if self.constant is not None and not (self.bk.name == "numpy" and self.format == "csc"):
            self._scipy = found  # not a copy of CSC, which may share a user's memory
        return found

    # --- as a matrix ---

    def to(self, format: str) -> Matrix:
        return change.converted(self, format)

    def with_values(self, values: Any) -> SparseMatrix:
        """The same structure with other values, shaped as `values`: of NumPy or of the library, possibly traced.

        What is given for padding is ignored.

        Raises:
            ValueError: they have another shape.
        """
        bk, given = self.bk, as_tuple(values)
        known = all(isinstance(v, (np.ndarray, np.generic)) for v in given)
        if known:
            given = tuple(working(np.asarray(v)) for v in given)
        else:
            moved = self.in_library_of(given[0])
            if moved is not self:
                return moved.with_values(values)
            given = tuple(v if bk.is_array(v) else bk.asarray(v, like=self.anchor()) for v in given)
        found = tuple(tuple(int(n) for n in v.shape) for v in given)
        if found != self.structure.value_shapes:
            raise ValueError(f"Values of the shapes {found} were given; expected {self.structure.value_shapes}.")
        return self.same_structure(self.structure.masked(get_backend("numpy") if known else bk, given))

    def native(self, backend: Any = None) -> Any:
        return change.native(self, backend)

    def prune(self) -> SparseMatrix:
        """The matrix without stored zeros, in its format; itself where its values are not known."""
        return change.pruned(self)

    def explain(self) -> str:
        return change.explained(self)

    def __repr__(self) -> str:
        n, m = self.shape
        summary = self.structure.summary()
        return (
            f"<{n}x{m} {type(self).__name__} matrix of {self.nnz} entries, {self.dtype}, {self.bk.name}"
            f"{': ' + summary if summary else ''}>"
        )

    def sum(self, axis: int | None = None) -> Array:
        return arithmetic.summed(self, axis)

    def _plus(self, other: Any) -> Matrix:
        joint = change.together(self, other)
        return other._plus(self.to("dense")) if joint is None else arithmetic.plus(*joint)

    def _scaled(self, c: Any, divide: bool = False) -> Matrix:
        return arithmetic.scaled(self, c, divide)

    def _times(self, other: Any) -> Matrix:
        joint = change.together(self, other)
        return self.to("dense")._times(other) if joint is None else arithmetic.times(*joint)

    def _part(self, key: Any) -> Any:
        return select.part(self, key)
