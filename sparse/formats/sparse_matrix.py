"""Base class of sparse formats: products by the structure, arithmetic and conversion by the entries.

Every format is a subclass with a public constructor; inside krylix matrices are made by

    SparseMatrix.build(bk, structure, values, like=..., in_shape=..., out_shape=...)

whose `structure` decides the class, with `values` as for `SparseStorage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ..errors import UnsupportedOperation
from ..operator import Operator
from .choose import choose_format
from .compressed import CscStructure, CsrStructure
from .entries.integers import as_tuple
from .entries.regather import concatenated_values
from .host_products import compile_product, host_product, images_by_format, in_scipy
from .matrix import FORMATS, Matrix, format_class
from .operations import arithmetic, change, reductions
from .storage import Shape, SparseStorage
from .structure import Structure, ValueOrder
from .values import are_known

_PLAIN = ("csr", "csc", "coo")  # formats that any structure has


class SparseMatrix(SparseStorage):
    """A sparse matrix on arrays of `bk`, immutable; see the formats for constructors.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import COO
        >>> A = COO(np.array([4.0, 1.0, 3.0]), rows=[0, 0, 1], columns=[0, 1, 1], shape=(2, 2))
        >>> A @ np.array([1.0, 2.0])
        array([6., 6.])
        >>> A.T.toarray()
        array([[4., 0.],
               [1., 3.]])
        >>> A.nnz, type(A.to("csr")).__name__, type(A.native()).__name__
        (3, 'CSR', 'csr_array')
    """

    def __init_subclass__(cls) -> None:
        FORMATS[cls.structure_class.format] = cls

    @staticmethod
    def build(
        bk: Backend,
        structure: Structure,
        values: Sequence[Any],
        *,
        like: Array | None = None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> SparseMatrix:
        """The matrix of a structure with `values`, on the device of the values or of `like`; nothing is copied.

        Raises ValueError if the values, or the shapes of the arrays that it maps, do not fit.
        """
        cls: Any = FORMATS[structure.format]
        matrix: SparseMatrix = object.__new__(cls)
        matrix._set(bk, structure, values, like, in_shape, out_shape)
        return matrix

    # --- its parts ----------------------------------------------------------------------------------------------------

    @property
    def in_shape(self) -> Shape:
        """Shape of the arrays that it takes."""
        return (self.shape[1],) if self._in_shape is None else self._in_shape

    @property
    def out_shape(self) -> Shape:
        """Shape of the arrays that it returns."""
        return (self.shape[0],) if self._out_shape is None else self._out_shape

    @property
    def nnz(self) -> int:
        """Number of stored entries, without padding: of all systems."""
        return self.structure.nnz * (1 if self.systems is None else self.systems)

    @property
    def format(self) -> str:
        """The word that `to` understands."""
        return self.structure.format

    @property
    def values(self) -> Any:
        """The value array of the library, or a tuple of them (Stencil, converted HYB), as `with_values` takes them.

        Those of entries at one place come as their sum in the first and 0 in the others. Known values cannot be changed
        by it: NumPy's are read-only, and those of PyTorch copies.
        """
        arrays = self.arrays()
        if self.value_order is not None:
            arrays = self.value_order.given(self.host, self.known_or_arrays(), self.systems)
            arrays = arrays if self.constant is None else tuple(map(self.placed, arrays))
        if self.constant is not None:
            arrays = tuple(self.bk.copy(a) if self.bk.always_writable else self.bk.read_only(a) for a in arrays)
        return arrays[0] if len(arrays) == 1 else arrays

    # --- as an operator -----------------------------------------------------------------------------------------------

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if bk.on_host:
            compiled, product = self._compiled or compile_product(self)
            if product is not None and x.shape[0] == 1:
                return product(x[0])[None]
            if compiled is not None:
                return host_product(self, compiled, x)
        values, dtype = self.arrays(), bk.dtype(x)
        if dtype != self.dtype:
            dtype = np.result_type(dtype, self.dtype)
            x, values = bk.astype(x, dtype), tuple(bk.astype(v, dtype) for v in values)
        masks = () if self.constant is not None else self.mask_arrays()
        return bk.bilinear(self.form, values, (*self.index_arrays(), *masks), x)

    def transpose(self) -> SparseMatrix:
        if self._transposed is None:
            made = change.transposed(self).on_grids(self._out_shape, self._in_shape)
            made._transposed = self
            # not kept: traced values, and tensors, which an optimiser may write to and whose graph or tape is used up
            if self.constant is None and (not self.bk.has_pure_arrays or self.bk.compiled()):
                return made
            self._transposed = made
        return self._transposed

    def conj(self) -> SparseMatrix:
        return self if self.dtype.kind != "c" else self._each(self.host.conj)

    def astype(self, dtype: np.dtype) -> SparseMatrix:
        host, dtype = self.host, np.dtype(dtype)
        return self if dtype == self.dtype else self._each(lambda v: host.astype(v, dtype))

    def _each(self, function: Callable[[Array], Array]) -> SparseMatrix:
        return self.holding([function(v) for v in self.known_or_arrays()])

    def on_backend(self, bk: Backend, like: Array | None) -> SparseMatrix | None:
        if self.constant is None:
            return None
        own = [v.copy() for v in self.constant]  # a user may write to these
        moved = SparseMatrix.build(
            bk, self.structure, own, like=like, in_shape=self._in_shape, out_shape=self._out_shape
        )
        moved.value_order = self.value_order
        return moved

    def dense(self) -> Array:
        return change.densified(self)

    def diagonals(self) -> Array:
        found = self.structure.diagonal(self.host, self.known_or_arrays(), self.systems)
        rows = found if self.constant is None else self.placed(found)
        return rows[None, :] if self.systems is None else rows

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        host, structure, constant = get_backend("numpy"), self.structure, self.constant
        shapes = {"in_shape": self._in_shape, "out_shape": self._out_shape}
        if constant is not None:
            return (), lambda _: SparseMatrix.build(host, structure, constant, **shapes)
        return self.arrays(), lambda arrays: SparseMatrix.build(
            host, structure, list(map(np.asarray, arrays)), **shapes
        )

    def per_system(self, i: int) -> Any:
        found = self._found()
        return found if self.systems is None else found[i]

    def by_columns(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values `(systems or 1, nnz)` column by column, in memory of their own, rows, and where each column starts.

        Raises:
            UnsupportedOperation: the values are not known.
        """
        slots, rows, starts = self.structure.by_columns
        values = self.known_values()
        if values is None:
            raise self._unknown()
        flat = concatenated_values(get_backend("numpy"), values, self.systems)
        return np.atleast_2d(flat).take(slots, axis=1).astype(dtype, copy=False), rows, starts

    def known(self) -> Any:
        return in_scipy(self)

    def known_images(self, v: np.ndarray, both: bool = True) -> tuple[np.ndarray, ...] | None:
        return images_by_format(self, v, both) or super().known_images(v, both)

    def is_exactly_hermitian(self) -> bool | None:
        values = self.known_values() if self.systems is None else None
        return None if values is None else self.structure.is_hermitian(values)

    def known_diagonal(self) -> np.ndarray:
        if "scipy" in self._made or (values := self.known_values()) is None:
            return super().known_diagonal()
        return np.asarray(self.structure.diagonal(get_backend("numpy"), values, None))

    # --- as a matrix --------------------------------------------------------------------------------------------------

    def _suited(self, rows: SparseMatrix, in_shape: Shape | None, out_shape: Shape | None) -> SparseMatrix:
        """Convert CSR to the format of this matrix if that suits any structure, else to the one that suits the rows."""
        matrix: Any = rows.on_grids(in_shape, out_shape)
        return matrix.to(self.format) if self.format in _PLAIN else matrix.in_suitable_format()

    def in_suitable_format(self) -> SparseMatrix:
        """Convert a new CSR matrix to the format that suits it."""
        structure: Any = self.structure
        choice = choose_format(self.bk, structure.starts, structure.cols, self.shape)
        found: Any = self.to(choice.format)
        found.reason = choice.reason
        return found

    def to(self, format: str) -> Matrix:
        if format != self.format:
            return format_class(format).of(self)
        if self.value_order is None:
            return self
        matrix = self.on_grids(self._in_shape, self._out_shape, self.reason)
        matrix.value_order = None
        return matrix

    @classmethod
    def of(cls, A: SparseMatrix) -> SparseMatrix:
        """A in this format. Cost: one gather of the values; the structure is converted once."""
        return change.converted(A, cls.structure_class).on_grids(A._in_shape, A._out_shape)

    def with_values(self, values: Any) -> SparseMatrix:
        """The same pattern with other values, shaped as `values`: of NumPy or of the library, possibly traced.

        They come in the order of the constructor, or of the object that `as_operator` was given: SciPy's `data`,
        `values()` of a sparse tensor, `data` of BCOO, `values` of a SparseTensor; entries at one place add up. A matrix
        that was computed or converted (`A.T`, `A.to(format)`, `A @ B`), traced or read from a file takes them as it
        stores them. `A.with_values(A.values)` is A in all cases.

        With one more axis in front they make a batch of matrices, one for each system. What is given for padding is
        ignored.

        Raises:
            ValueError: they have another shape.
        """
        return self._revalued(as_tuple(values), self.value_order)

    def with_stored_values(self, values: Sequence[Any]) -> SparseMatrix:
        """`with_values` for arrays as the structure stores them, whatever the order of its user."""
        return self._revalued(tuple(values), None)

    def _revalued(self, given: tuple[Any, ...], order: ValueOrder | None) -> SparseMatrix:
        other: Any = self if are_known(given) else self.in_library_of(given[0])
        return change.revalued(other, given, order)

    def native(self, backend: Any = None) -> Any:
        bk = self.bk if backend is None else get_backend(backend)
        if bk.on_host:
            values = self.known_values() if self.format == "csc" and self.systems is None else None
            # the latter refuses batches and what is not known
            return self.to_scipy() if values is None else change.in_scipy_by_columns(self, values)
        if self.systems is not None and bk is not self.bk:
            raise UnsupportedOperation(
                f"A batch of {self.systems} matrices of {self.bk.name} was asked for in {bk.name}; expected one. Take "
                "A[i].native(backend)."
            )
        if bk is self.bk:
            return change.native(self)
        found = self.native("numpy")
        structure = (CscStructure if found.format == "csc" else CsrStructure).of(found)
        return change.native(SparseMatrix.build(bk, structure, (found.data,)))

    def prune(self) -> SparseMatrix:
        """The matrix without stored zeros; itself where its values are not known.

        It keeps its format, but for a stencil with zeros among others: this comes in the one that suits its entries.
        """
        found, grids = change.pruned(self), (self._in_shape, self._out_shape)
        if found is None:
            return self
        if found.format == self.format:
            return found.on_grids(*grids, self.reason)
        return type(self).of(found.on_grids(*grids)) if self.structure.takes_all else self._suited(found, *grids)

    def explain(self) -> str:
        why = [f"format: {self.format}; {self.reason}"] if self.reason else []
        return "\n".join([repr(self), *change.explained(self), *why])

    def __repr__(self) -> str:
        n, m = self.shape
        summary = self.structure.summary()
        count = f"{self.structure.nnz} entries" + ("" if self.systems is None else f", {self.systems} systems")
        return (
            f"<{n}x{m} {type(self).__name__} matrix of {count}, {self.dtype}, {self.bk.name}"
            f"{': ' + summary if summary else ''}>"
        )

    def sum(self, axis: int | None = None) -> Array:
        return reductions.summed(self, axis)

    def _extreme(self, axis: int | None, largest: bool) -> Array:
        return reductions.extreme(self, axis, largest)

    def _plus(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return other._plus(self.to("dense"))
        found = arithmetic.matrix_sum(*joint)
        if found.structure is joint[0].structure:
            return found.on_grids(self._in_shape, self._out_shape, self.reason)
        return self._suited(found, self._in_shape, self._out_shape)

    def _scaled(self, c: Any, divide: bool = False) -> Matrix:
        return arithmetic.scalar_multiple(self, c, divide)

    def _times(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return self.to("dense")._times(other)
        in_shape = other._in_shape if isinstance(other, SparseMatrix) else None
        return self._suited(arithmetic.matrix_product(*joint), in_shape, self._out_shape)

    def _joint(self, other: Any) -> tuple[SparseMatrix, SparseMatrix] | None:
        """Bring this and another sparse matrix, possibly SciPy's, to one library; None where the other one is dense."""
        if sp.issparse(other):
            return change.on_common_backend(self, change.copied(self, other))
        return change.on_common_backend(self, other) if isinstance(other, SparseMatrix) else None

    def _chosen(self, systems: np.ndarray | int) -> SparseMatrix:
        if isinstance(systems, int):
            return self.holding([v[systems, ...] for v in self.known_or_arrays()])
        return self.holding([self.host.take_in_bounds(v, systems) for v in self.known_or_arrays()])

    def _part(self, key: Any) -> Any:
        found = change.submatrix(self, key)
        return self._suited(found, None, None) if isinstance(found, SparseMatrix) else found


def sparse_formats() -> list[str]:
    """The words of the formats that are sparse."""
    return [word for word, cls in FORMATS.items() if isinstance(cls, type) and issubclass(cls, SparseMatrix)]
