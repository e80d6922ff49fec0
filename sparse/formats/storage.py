"""Storage of a sparse matrix: sparsity structure, values, and the library arrays made of both.

Values are arrays shaped as `structure.value_shapes`: NumPy where they are known, also inside a compiled function, else
arrays of the library, possibly traced. They are zero in all padding. One more axis in front of all of them makes a
batch: matrices of one structure, whose integers are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...backends import Array, Backend, get_backend
from ...backends.interface.kernels import Bilinear, Each
from ...backends.registry import register_container
from .entries.integers import sorted_entries
from .entries.regather import Regather, concatenated_values
from .matrix import FORMATS, Matrix
from .structure import Layout, Structure, ValueOrder
from .values import are_known, check_values, device_marker, in_library, in_one_dtype, mapped_values

Shape = tuple[int, ...]
Sparse = TypeVar("Sparse", bound="SparseStorage")


class SparseStorage(Matrix):
    """The state of a sparse matrix, with which `SparseMatrix` computes.

    Attributes:
        structure: where the entries are: static NumPy integers.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
        reason: why it has its format, if that was chosen.
        value_order: how a user gives its values, where that is not as they are stored; else None.
    """

    is_container = True
    structure_class: ClassVar[type[Structure]]
    structure: Structure
    constant: tuple[np.ndarray, ...] | None
    reason: str | None
    value_order: ValueOrder | None

    # --- making -------------------------------------------------------------------------------------------------------

    def _set(
        self,
        bk: Backend,
        structure: Structure,
        values: Sequence[Any],
        like: Array | None = None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> None:
        """Fill in a new matrix, on the device of the values or of `like`; nothing is copied.

        Raises:
            ValueError: the values, or the shapes of the arrays that it maps, do not fit.
        """
        self.systems = check_values(structure, values)
        known = are_known(values)
        self.bk, self.structure, self.shape = bk, structure, structure.shape
        self.constant = in_one_dtype(bk, values) if known else None
        self._arrays = None if known and not bk.on_host else self.constant or in_library(bk, values, like)
        example = self.constant or self._arrays
        self.dtype = self.host.dtype(example[0]) if example else np.dtype(np.float64)
        self._like = device_marker(bk, self.dtype, like)
        self._finish(in_shape, out_shape, {})

    def _finish(self, in_shape: Shape | None, out_shape: Shape | None, made: dict[str, Any]) -> None:
        """Fill in all but structure and values."""
        for given, size, side in ((in_shape, self.shape[1], "in"), (out_shape, self.shape[0], "out")):
            if given is not None and math.prod(given) != size:
                raise ValueError(f"{side}_shape={given} was given for a matrix of {self.shape}.")
        self._in_shape, self._out_shape, self.reason, self.value_order = in_shape, out_shape, None, None
        self._made = made  # arrays, indices, masks, SciPy's object: each made when it is needed first
        self._transposed: Any = None
        self._compiled: Any = None  # in NumPy, once needed: what `compile_product` finds
        self._register()

    def _set_entries(self, bk: Backend, rows: np.ndarray, cols: np.ndarray, values: Array, shape: Any) -> None:
        """Fill in a new matrix of entries in any order; duplicates add up."""
        order = sorted_entries(rows, cols, shape)
        ordered = order.values(bk, values)
        structure, sources = self.structure_class.from_entries(order.rows, order.cols, shape)
        host = get_backend("numpy") if isinstance(ordered, np.ndarray) else bk
        systems = None if len(ordered.shape) == 1 else int(ordered.shape[0])
        by_rows = structure.values_by_rows
        self._set(bk, structure, (ordered,) if by_rows else Regather(sources)(host, (ordered,), systems))
        self.value_order = ValueOrder.of(structure, rows, cols, (len(rows),))

    def beside(self: Sparse, structure: Structure, values: Sequence[Any]) -> Sparse:
        """The matrix of another structure with values, in the same library on the same device."""
        matrix: Sparse = object.__new__(FORMATS[structure.format])  # type: ignore[arg-type]
        matrix._set(self.bk, structure, values, self.anchor())
        return matrix

    def holding(self: Sparse, values: Sequence[Any]) -> Sparse:
        """The same structure on the same grids with other values; these are zero in all padding."""
        matrix: Sparse = object.__new__(type(self))
        matrix._set(self.bk, self.structure, values, self.anchor(), self._in_shape, self._out_shape)
        matrix._made.update((key, self._made[key]) for key in ("indices", "masks") if key in self._made)
        matrix.reason, matrix.value_order = self.reason, self.value_order
        return matrix

    def on_grids(self: Sparse, in_shape: Shape | None, out_shape: Shape | None, reason: str | None = None) -> Sparse:
        """This matrix for arrays of other shapes; both share what was made of them, or will be."""
        matrix: Sparse = object.__new__(type(self))
        matrix.bk, matrix.structure, matrix.shape = self.bk, self.structure, self.shape
        matrix.systems, matrix.dtype, matrix.constant = self.systems, self.dtype, self.constant
        matrix._arrays, matrix._like = self._arrays, self._like
        matrix._finish(in_shape, out_shape, self._made)
        matrix.reason, matrix.value_order = reason, self.value_order
        return matrix

    def regathered(self: Sparse, structure: Structure, layout: Layout) -> Sparse:
        """`structure` with these values, laid out anew."""
        return self.beside(structure, layout(self.host, self.known_or_arrays(), self.systems))

    # --- as a container of arrays -------------------------------------------------------------------------------------

    def _register(self) -> None:
        register_container(self.bk, type(self), _flatten, _restore)

    def __getstate__(self) -> dict[str, Any]:
        """State without caches, but for the library's arrays of known values, which say where the matrix lies."""
        arrays = {key: self._made[key] for key in ("arrays",) if key in self._made}
        return {**self.__dict__, "_transposed": None, "_compiled": None, "_made": arrays, "analysis": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    # --- its arrays ---------------------------------------------------------------------------------------------------

    @property
    def form(self) -> Bilinear:
        """The products of the structure, of one matrix or with one for each row."""
        return self.structure.form if self.systems is None else Each(self.structure.form)

    @property
    def host(self) -> Backend:
        """The library that computes with `known_or_arrays`: NumPy where the values are known."""
        return self.bk if self.constant is None else get_backend("numpy")

    def arrays(self) -> tuple[Array, ...]:
        """All value arrays of the library."""
        if self._arrays is not None:
            return self._arrays
        return self._made["arrays"] if "arrays" in self._made else self._kept("arrays", self._known_in_library())

    def _known_in_library(self) -> tuple[Array, ...]:
        made = self._placed(self.constant or ())
        return tuple(map(self.bk.uncut, made)) if self.structure.cuts_values else made

    def known_or_arrays(self) -> tuple[Any, ...]:
        """The values as NumPy arrays where they are known, else the library's."""
        return self.arrays() if self.constant is None else self.constant

    def index_arrays(self) -> tuple[Array, ...]:
        """The integer arrays of the products, in the library."""
        made = self._made
        return made["indices"] if "indices" in made else self._kept("indices", self._placed(self.structure.indices))

    def mask_arrays(self) -> tuple[Array, ...]:
        """Masks of padding for the gradient by the values; none where the library has no gradients."""
        if "masks" in self._made:
            return self._made["masks"]
        return self._kept("masks", self._placed(self.structure.masks if self.bk.has_derivatives else ()))

    def _kept(self, name: str, found: tuple[Array, ...]) -> tuple[Array, ...]:
        """Cache arrays of the library, unless a program is being compiled, whose tracers must not outlive it."""
        if not self.bk.compiled():
            self._made[name] = found
        return found

    def _placed(self, arrays: Sequence[np.ndarray]) -> tuple[Array, ...]:
        return tuple(map(self.placed, arrays))

    def placed(self, array: Array) -> Array:
        """An array of NumPy or of the library as one of the library, on the device of the values."""
        return self.bk.asarray(array, like=self.anchor())

    def anchor(self) -> Array | None:
        """An array on the matrix's device, if that matters."""
        arrays = self._arrays or self._made.get("arrays")
        return arrays[0] if arrays else self._like

    def entry_values(self) -> Array:
        """`(nnz,)` or `(systems, nnz)`: the values in row order; NumPy where they are known."""
        flat = concatenated_values(self.host, self.known_or_arrays(), self.systems)
        if self.structure.values_by_rows:
            return flat
        return self.host.take_in_bounds(flat, self.structure.entries().slots, len(flat.shape) - 1)

    def entry_arrays(self) -> Array:
        """`entry_values` in the library."""
        values = self.entry_values()
        return values if self.constant is None else self.placed(values)

    def known_values(self) -> tuple[np.ndarray, ...] | None:
        """The values as NumPy arrays; None where they are not known now."""
        if self.constant is None and self.bk.compiled(*(self._arrays or ())):
            return None
        return self.constant or tuple(self.bk.to_numpy(v) for v in self.arrays())


def _flatten(A: SparseStorage) -> tuple[tuple[Array, ...], Any]:
    """Flatten a matrix to its arrays and static data."""
    values, indices, masks = A.arrays(), A.index_arrays(), A.mask_arrays()
    static = A.bk, A.structure, len(values), len(indices), A.dtype, A._in_shape, A._out_shape, A.value_order
    return (*values, *indices, *masks), static


def _restore(static: Any, arrays: Sequence[Any]) -> SparseStorage:
    """Unflatten without access to the arrays, which transformations replace by placeholders or stack."""
    bk, structure, values, indices, dtype, in_shape, out_shape, order = static
    A: Any = object.__new__(FORMATS[structure.format])  # type: ignore[arg-type]
    A.bk, A.structure, A.shape, A.constant, A._like = bk, structure, structure.shape, None, None
    A._arrays, A.systems = mapped_values(bk, structure, arrays[:values])
    parts = {"indices": arrays[values : values + indices], "masks": arrays[values + indices :]}
    wanted = {"indices": structure.indices, "masks": structure.masks}
    if A.systems is not None:  # integers may have got the axis, too
        longer = zip(parts.items(), wanted.values(), strict=True)
        parts = {k: v for (k, v), own in longer if not any(len(a.shape) > i.ndim for a, i in zip(v, own, strict=False))}
    A._finish(in_shape, out_shape, {key: tuple(part) for key, part in parts.items()})
    A.value_order = order
    first = arrays[0] if values else None
    A.dtype = bk.dtype(first) if hasattr(first, "dtype") and hasattr(first, "shape") else dtype
    return A
