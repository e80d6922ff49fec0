"""What a sparse matrix is made of: a static structure, and values that are known (NumPy) or arrays of a library.

Every format is a subclass with a public constructor; inside krylix matrices are made by

    SparseMatrix.build(bk, structure, values, like=..., in_shape=..., out_shape=...)

whose `structure` decides the class. `values` is a tuple of arrays, shaped as `structure.value_shapes`: NumPy where they
are known, also inside a compiled function, else arrays of `bk`, possibly traced. They are zero in all padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from .entries.order import Order
from .entries.regather import Regather, flatten
from .matrix import Matrix
from .structure import Structure

if TYPE_CHECKING:
    from .sparse_matrix import SparseMatrix

Shape = tuple[int, ...]
FORMATS: dict[str, type[SparseMatrix]] = {}  # by the word that `to` understands


class Stored(Matrix):
    """Structure and values, and how compiled functions take them apart; `SparseMatrix` says what they mean.

    Attributes:
        structure: where the entries are: static NumPy integers.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
    """

    is_container = True
    structure_class: ClassVar[type[Structure]]
    structure: Structure
    constant: tuple[np.ndarray, ...] | None

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

        Raises:
            ValueError: the values, or the shapes of the arrays that it maps, do not fit.
        """
        matrix = object.__new__(FORMATS[structure.format])
        matrix._set(bk, structure, values, like, in_shape, out_shape)
        return matrix

    def _set(
        self,
        bk: Backend,
        structure: Structure,
        values: Sequence[Any],
        like: Array | None = None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> None:
        for shape, size, side in ((in_shape, structure.shape[1], "in"), (out_shape, structure.shape[0], "out")):
            if shape is not None and math.prod(shape) != size:
                raise ValueError(f"{side}_shape={shape} was given for a matrix of {structure.shape}.")
        found = tuple(tuple(int(n) for n in v.shape) for v in values)
        if found != structure.value_shapes:
            raise ValueError(f"Values of the shapes {found} were given; expected {structure.value_shapes}.")
        known = all(isinstance(v, (np.ndarray, np.generic)) for v in values)
        self.bk, self.structure, self.shape = bk, structure, structure.shape
        self.constant = _canonical(bk, values) if known else None
        self._arrays = None if known and bk.name != "numpy" else self.constant or self._of_library(values, like)
        example = self.constant or self._arrays
        self.dtype = (get_backend("numpy") if known else bk).dtype(example[0]) if example else np.dtype(np.float64)
        self._like = _device_of(bk, self.dtype, like)
        self._reset(in_shape, out_shape)
        bk.register(type(self), _flatten, _restore)

    def _set_from_rows(self, bk: Backend, order: Order, values: Array, shape: tuple[int, int]) -> None:
        """Lay out values in row order as this format wants them."""
        structure, sources = self.structure_class.from_entries(order.rows, order.cols, shape)
        host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
        self._set(bk, structure, Regather(sources)(host, (values,)))

    def _reset(self, in_shape: Shape | None, out_shape: Shape | None) -> None:
        self._in_shape, self._out_shape = in_shape, out_shape
        self._index_arrays: tuple[Array, ...] | None = None
        self._mask_arrays: tuple[Array, ...] | None = None
        self._transposed: SparseMatrix | None = None
        self._scipy: sp.csr_array | None = None
        self._compiled: list[Any] = []  # in NumPy: SciPy's object of this format, or None, once it was needed
        self.reason: str | None = None  # why it has its format

    def _of_library(self, values: Sequence[Any], like: Array | None) -> tuple[Array, ...]:
        bk = self.bk
        anchor = next((v for v in values if bk.is_array(v)), like)
        return tuple(v if bk.is_array(v) else bk.asarray(v, like=anchor) for v in values)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made again when it is needed: SciPy's objects, and what libraries' programs were made of."""
        made: dict[str, Any] = {
            "_index_arrays": None,
            "_mask_arrays": None,
            "_transposed": None,
            "_scipy": None,
            "_compiled": [],
        }
        return {**self.__dict__, **made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.bk.register(type(self), _flatten, _restore)  # in the process that reads it

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
        """Number of stored entries, without padding."""
        return self.structure.nnz

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
            arrays = tuple(self.bk.copy(a) if self.bk.name == "torch" else self.bk.read_only(a) for a in arrays)
        return arrays[0] if len(arrays) == 1 else arrays

    def arrays(self) -> tuple[Array, ...]:
        """All value arrays of the library."""
        if self._arrays is not None:
            return self._arrays
        made = self._placed(self.constant or ())
        if not self.bk.compiled():
            self._arrays = made
        return made

    def known_or_arrays(self) -> tuple[Any, ...]:
        """The values as NumPy arrays where they are known, else the library's."""
        return self.arrays() if self.constant is None else self.constant

    def index_arrays(self) -> tuple[Array, ...]:
        """The integer arrays of the products, in the library."""
        if self._index_arrays is None:
            made = self._placed(self.structure.indices)
            if self.bk.compiled():
                return made
            self._index_arrays = made
        return self._index_arrays

    def mask_arrays(self) -> tuple[Array, ...]:
        """What the gradient by the values needs besides; nothing where there are no gradients."""
        if self._mask_arrays is None:
            made = self._placed(self.structure.masks) if self.bk.has_derivatives else ()
            if self.bk.compiled():
                return made
            self._mask_arrays = made
        return self._mask_arrays

    def _placed(self, arrays: Sequence[np.ndarray]) -> tuple[Array, ...]:
        anchor = self.anchor()
        return tuple(self.bk.asarray(a, like=anchor) for a in arrays)

    def anchor(self) -> Array | None:
        """An array on the matrix's device, if that matters."""
        return self._arrays[0] if self._arrays else self._like

    @property
    def shapes(self) -> dict[str, Any]:
        """Those of the arrays that it maps, for `build`."""
        return {"in_shape": self._in_shape, "out_shape": self._out_shape}

    def _shapes_of_transpose(self) -> dict[str, Any]:
        return {"in_shape": self._out_shape, "out_shape": self._in_shape}

    def rebuilt(
        self,
        structure: Structure,
        values: Sequence[Any],
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> SparseMatrix:
        """Another matrix of the same library on the same device."""
        return Stored.build(
            self.bk, structure, values, like=self.anchor(), in_shape=in_shape, out_shape=out_shape
        )  # fmt: skip

    def same_structure(self, values: Sequence[Any]) -> SparseMatrix:
        """The same structure with other values; these are zero in all padding."""
        matrix = self.rebuilt(self.structure, values, **self.shapes)
        matrix._index_arrays, matrix._mask_arrays = self._index_arrays, self._mask_arrays
        matrix.reason = self.reason
        return matrix

    def regathered(self, structure: Structure, regather: Regather, transposed: bool = False) -> SparseMatrix:
        """A matrix of `structure` whose values are these, laid out anew."""
        host = get_backend("numpy") if self.constant is not None else self.bk
        values = regather(host, self.known_or_arrays())
        return self.rebuilt(structure, values, **(self._shapes_of_transpose() if transposed else self.shapes))

    def entry_values(self) -> Array:
        """`(nnz,)`: the values in row order; NumPy where they are known."""
        bk = get_backend("numpy") if self.constant is not None else self.bk
        flat, slots = flatten(bk, self.known_or_arrays()), self.structure.entries().slots
        return flat if self.format in ("csr", "coo") else bk.take(flat, slots)


def _canonical(bk: Backend, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Known values in the dtype that the library would give them, and all in one."""
    if not values:
        return ()
    dtype = bk.stored_dtype(np.result_type(*values))
    return tuple(np.asarray(v, dtype) for v in values)


def _device_of(bk: Backend, dtype: np.dtype, like: Array | None) -> Array | None:
    """An array without elements on `like`'s device where there is a choice: `like` itself may be large, or traced."""
    if like is None or bk.device(like) is None or (bk.name != "torch" and bk.compiled()):
        return None
    return bk.zeros((0,), dtype, like)


def _flatten(matrix: Stored) -> tuple[tuple[Array, ...], Any]:
    values, indices, masks = matrix.arrays(), matrix.index_arrays(), matrix.mask_arrays()
    counts = len(values), len(indices)
    static = (matrix.bk, matrix.structure, counts, matrix.dtype, matrix._in_shape, matrix._out_shape)
    return (*values, *indices, *masks), static


def _restore(static: Any, arrays: Sequence[Any]) -> Stored:
    """Rebuild without a look at the arrays: transformations put placeholders in their place."""
    bk, structure, (values, indices), dtype, in_shape, out_shape = static
    matrix: Any = object.__new__(FORMATS[structure.format])
    matrix.bk, matrix.structure, matrix.shape, matrix.constant = bk, structure, structure.shape, None
    matrix._arrays, matrix._like = tuple(arrays[:values]), None
    first = arrays[0] if values else None
    matrix.dtype = bk.dtype(first) if hasattr(first, "dtype") and hasattr(first, "shape") else dtype
    matrix._reset(in_shape, out_shape)
    matrix._index_arrays = tuple(arrays[values : values + indices])
    matrix._mask_arrays = tuple(arrays[values + indices :])
    return matrix
