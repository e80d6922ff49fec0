"""The sparse matrix: an operator by its structure's products, and a matrix by its entries.

Every format is a subclass with a public constructor; inside krylix matrices are made by

    SparseMatrix.build(bk, structure, values, like=..., in_shape=..., out_shape=...)

whose `structure` decides the class, with `values` as for `Stored`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...backends.registry import register_container
from ...backends.rows import product_of, rows_times
from ..errors import UnsupportedOperation
from ..operator import Operator
from .choose import choose_format
from .entries.integers import as_tuple
from .matrix import FORMATS, Matrix, format_class
from .operations import arithmetic, change, select
from .stored import Stored, are_known
from .structure import Structure

Shape = tuple[int, ...]
_PLAIN = ("csr", "csc", "coo")  # formats that any structure has


class SparseMatrix(Matrix):
    """A sparse matrix on arrays of `bk`, immutable; see the formats for constructors.

    Attributes:
        stored: structure and values, in the library.
        structure: where the entries are: static NumPy integers.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
        reason: why it has its format, if that was chosen.
    """

    is_container = True
    structure_class: ClassVar[type[Structure]]

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
        return SparseMatrix.of_stored(Stored(bk, structure, values, like), in_shape, out_shape)

    @staticmethod
    def of_stored(stored: Stored, in_shape: Shape | None = None, out_shape: Shape | None = None) -> SparseMatrix:
        """The matrix of what is stored, in the class of its structure's format."""
        cls: Any = FORMATS[stored.structure.format]
        matrix: SparseMatrix = object.__new__(cls)
        matrix._set(stored, in_shape, out_shape)
        return matrix

    def _set(self, stored: Stored, in_shape: Shape | None = None, out_shape: Shape | None = None) -> None:
        """What constructors of formats end with."""
        for given, size, side in ((in_shape, stored.shape[1], "in"), (out_shape, stored.shape[0], "out")):
            if given is not None and math.prod(given) != size:
                raise ValueError(f"{side}_shape={given} was given for a matrix of {stored.shape}.")
        self.stored, self.bk, self.shape, self.dtype = stored, stored.bk, stored.shape, stored.dtype
        self.systems = stored.systems
        self.structure, self.constant = stored.structure, stored.constant
        self._in_shape, self._out_shape = in_shape, out_shape
        self._transposed: SparseMatrix | None = None
        self._compiled: list[Any] = []  # in NumPy, once needed: SciPy's object of this format or None, and its product
        self.reason: str | None = None
        self._register()

    def _register(self) -> None:
        register_container(self.bk, type(self), _flatten, _restore)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transposed": None, "_compiled": [], "analysis": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    # --- its parts ---

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
        """The value array of the library, or a tuple of them (HYB, Stencil).

        Known values cannot be changed by it: NumPy's are read-only, and those of PyTorch copies.
        """
        arrays = self.arrays()
        if self.constant is not None:
            arrays = tuple(self.bk.copy(a) if self.bk.always_writable else self.bk.read_only(a) for a in arrays)
        return arrays[0] if len(arrays) == 1 else arrays

    def arrays(self) -> tuple[Array, ...]:
        """All value arrays of the library."""
        return self.stored.arrays()

    # --- as an operator ---

    def apply(self, x: Array) -> Array:
        stored, bk = self.stored, self.bk
        compiled = (self._compiled[0] if self._compiled else self._in_scipy()) if bk.on_host else None
        if isinstance(compiled, tuple):
            image = np.empty((len(x), self.shape[0]), np.result_type(self.dtype, x.dtype))
            for own, A, row in zip(image, compiled, x, strict=True):
                own[:] = rows_times(A, row)
            return image
        if compiled is not None:
            if self.systems is not None:
                return (compiled @ x.reshape(-1)).reshape(len(x), self.shape[0])
            return self._compiled[1](x[0])[None] if x.shape[0] == 1 else rows_times(compiled, x.T).T
        values, dtype = stored.arrays(), bk.dtype(x)
        if dtype != self.dtype:
            dtype = np.result_type(dtype, self.dtype)
            x, values = bk.astype(x, dtype), tuple(bk.astype(v, dtype) for v in values)
        masks = () if self.constant is not None else stored.mask_arrays()
        return bk.bilinear(stored.form, values, (*stored.index_arrays(), *masks), x)

    def _in_scipy(self) -> Any:
        """What `Stored.compiled` finds, once."""
        if not self._compiled:
            self._compiled += [found := self.stored.compiled(), product_of(found)]
        return self._compiled[0]

    def transpose(self) -> SparseMatrix:
        if self._transposed is None:
            made = SparseMatrix.of_stored(change.transposed(self.stored), self._out_shape, self._in_shape)
            made._transposed = self
            # not kept: traced values, and tensors, which an optimiser may write to and whose graph or tape is used up
            if self.constant is None and (not self.bk.has_pure_arrays or self.bk.compiled()):
                return made
            self._transposed = made
        return self._transposed

    def conj(self) -> SparseMatrix:
        return self if self.dtype.kind != "c" else self._each(self.stored.host.conj)

    def astype(self, dtype: np.dtype) -> SparseMatrix:
        host, dtype = self.stored.host, np.dtype(dtype)
        return self if dtype == self.dtype else self._each(lambda v: host.astype(v, dtype))

    def _each(self, function: Callable[[Array], Array]) -> SparseMatrix:
        return self._with(self.stored.with_values([function(v) for v in self.stored.known_or_arrays()]), self.reason)

    def on_backend(self, bk: Backend, like: Array | None) -> SparseMatrix | None:
        moved = self.stored.on_backend(bk, like)
        return None if moved is None else self._with(moved)

    def dense(self) -> Array:
        return change.densified(self.stored)

    def diagonals(self) -> Array:
        found = self.structure.diagonal(self.stored.host, self.stored.known_or_arrays(), self.systems)
        rows = found if self.constant is None else self.stored.placed(found)
        return rows[None] if self.systems is None else rows

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

    def known(self) -> Any:
        return self.stored.known()

    def known_images(self, v: np.ndarray, both: bool = True) -> tuple[np.ndarray, ...] | None:
        return self.stored.known_images(v, both) or super().known_images(v, both)

    def is_exactly_hermitian(self) -> bool | None:
        return self.stored.is_hermitian()

    def known_diagonal(self) -> np.ndarray:
        if self.stored.scipy is not None or (values := self.stored.known_values()) is None:
            return super().known_diagonal()
        return np.asarray(self.structure.diagonal(get_backend("numpy"), values, None))

    # --- as a matrix ---

    def _with(self, stored: Stored, reason: str | None = None) -> SparseMatrix:
        """What is stored, on the grids of this matrix."""
        matrix = SparseMatrix.of_stored(stored, self._in_shape, self._out_shape)
        matrix.reason = reason
        return matrix

    def _suited(self, rows: Stored, in_shape: Shape | None, out_shape: Shape | None) -> SparseMatrix:
        """CSR in the format of this matrix if that suits any structure, else in the one that suits this."""
        matrix: Any = SparseMatrix.of_stored(rows, in_shape, out_shape)
        if self.format in _PLAIN:
            return matrix.to(self.format)
        structure: Any = rows.structure
        choice = choose_format(rows.bk, structure.starts, structure.cols, structure.shape)
        found: SparseMatrix = matrix.to(choice.format)
        found.reason = choice.reason
        return found

    def to(self, format: str) -> Matrix:
        return self if format == self.format else format_class(format).of(self)

    @classmethod
    def of(cls, A: SparseMatrix) -> SparseMatrix:
        """A in this format. Cost: one gather of the values; the structure is converted once."""
        return A._with(change.converted(A.stored, cls.structure_class))

    def with_values(self, values: Any) -> SparseMatrix:
        """The same structure with other values, shaped as `values`: of NumPy or of the library, possibly traced.

        With one more axis in front they make a batch of matrices, one for each system. What is given for padding is
        ignored.

        Raises:
            ValueError: they have another shape.
        """
        given = as_tuple(values)
        other = self if are_known(given) else self.in_library_of(given[0])
        if other is not self:
            return other.with_values(values)
        return self._with(change.revalued(self.stored, given), self.reason)

    def native(self, backend: Any = None) -> Any:
        bk = self.bk if backend is None else get_backend(backend)
        if bk.on_host:
            return self.to_scipy()
        if self.systems is not None and bk is not self.bk:
            raise UnsupportedOperation(
                f"A batch of {self.systems} matrices of {self.bk.name} was asked for in {bk.name}; expected one. Take "
                "A[i].native(backend)."
            )
        return change.native(self.stored if bk is self.bk else Stored.of_rows(bk, self.to_scipy()))

    def prune(self) -> SparseMatrix:
        """The matrix without stored zeros; itself where its values are not known.

        It keeps its format, but for a stencil with zeros among others: this comes in the one that suits its entries.
        """
        found = change.pruned(self.stored)
        if found is None:
            return self
        if found.structure.format == self.format:
            return self._with(found, self.reason)
        if not self.structure.takes_all:
            return self._suited(found, self._in_shape, self._out_shape)
        return type(self).of(self._with(found))

    def explain(self) -> str:
        why = [f"format: {self.format}; {self.reason}"] if self.reason else []
        return "\n".join([repr(self), *change.explained(self.stored), *why])

    def __repr__(self) -> str:
        n, m = self.shape
        summary = self.structure.summary()
        count = f"{self.structure.nnz} entries" + ("" if self.systems is None else f", {self.systems} systems")
        return (
            f"<{n}x{m} {type(self).__name__} matrix of {count}, {self.dtype}, {self.bk.name}"
            f"{': ' + summary if summary else ''}>"
        )

    def sum(self, axis: int | None = None) -> Array:
        return arithmetic.summed(self.stored, axis)

    def _plus(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return other._plus(self.to("dense"))
        found = arithmetic.matrix_sum(*joint)
        if found.structure is joint[0].structure:
            return self._with(found, self.reason)
        return self._suited(found, self._in_shape, self._out_shape)

    def _scaled(self, c: Any, divide: bool = False) -> Matrix:
        return self._with(arithmetic.scalar_multiple(self.stored, c, divide), self.reason)

    def _times(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return self.to("dense")._times(other)
        in_shape = other._in_shape if isinstance(other, SparseMatrix) else None
        return self._suited(arithmetic.matrix_product(*joint), in_shape, self._out_shape)

    def _joint(self, other: Any) -> tuple[Stored, Stored] | None:
        """This and another sparse matrix, which may be SciPy's, in one library; None where the other one is dense."""
        if sp.issparse(other):
            return change.on_common_backend(self.stored, change.copied(self.stored, other))
        return change.on_common_backend(self.stored, other.stored) if isinstance(other, SparseMatrix) else None

    def _chosen(self, systems: np.ndarray | int) -> SparseMatrix:
        return self._with(self.stored.chosen(systems), self.reason)

    def _part(self, key: Any) -> Any:
        found = select.submatrix(self.stored, key)
        return self._suited(found, None, None) if isinstance(found, Stored) else found


def sparse_formats() -> list[str]:
    """The words of the formats that are sparse."""
    return [word for word, cls in FORMATS.items() if isinstance(cls, type) and issubclass(cls, SparseMatrix)]


def _flatten(matrix: SparseMatrix) -> tuple[tuple[Array, ...], Any]:
    arrays, static = matrix.stored.flatten()
    return arrays, (static, matrix._in_shape, matrix._out_shape)


def _restore(static: Any, arrays: Sequence[Any]) -> SparseMatrix:
    stored, in_shape, out_shape = static
    return SparseMatrix.of_stored(Stored.unflatten(stored, arrays), in_shape, out_shape)
