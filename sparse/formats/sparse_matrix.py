"""Base class of sparse formats: values on a structure, products by the structure, conversion by the entries.

Every format is a subclass with a public constructor; inside krylix matrices are made by

    SparseMatrix.build(bk, structure, values, like=..., in_shape=..., out_shape=...)

whose `structure` decides the class. Values are arrays shaped as `structure.value_shapes`: NumPy where they are known,
also inside a compiled function, else arrays of the library, possibly traced. They are zero in all padding. One more
axis in front of all of them makes a batch: matrices of one structure, whose integers are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...backends.host_math import product_of, rows_times
from ...backends.interface.kernels import Bilinear, Each
from ...backends.registry import register_container
from ..errors import UnsupportedOperation
from ..operator import Operator
from .choose import choose_format
from .entries.checked import checked_scipy, working
from .entries.integers import LIMIT, as_tuple, csr_array, sorted_entries, starts_of
from .entries.values import (
    Regather,
    are_known,
    check_values,
    concatenated_values,
    device_marker,
    in_library,
    in_one_dtype,
    mapped_values,
)
from .matrix import FORMATS, Matrix, check_axis, format_class
from .operations import as_factor, as_key, check_systems, extreme_of_lines, products_of_entries
from .structure import Layout, Structure, ValueOrder

Shape = tuple[int, ...]
_PLAIN = ("csr", "csc", "coo")  # formats that any structure has
_SMALL = 4096  # entries, which SciPy multiplies in about the time of its call


class SparseMatrix(Matrix):
    """A sparse matrix on arrays of `bk`, immutable; see the formats for constructors.

    Attributes:
        structure: where the entries are: static NumPy integers.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
        reason: why it has its format, if that was chosen.
        value_order: how a user gives its values, where that is not as they are stored; else None.

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

    is_container = True
    structure_class: ClassVar[type[Structure]]
    structure: Structure
    constant: tuple[np.ndarray, ...] | None
    reason: str | None
    value_order: ValueOrder | None

    def __init_subclass__(cls) -> None:
        FORMATS[cls.structure_class.format] = cls

    # --- making ---

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
        matrix: SparseMatrix = object.__new__(FORMATS[structure.format])
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
        """Fill in a new matrix, on the device of the values or of `like`; nothing is copied.

        Raises:
            ValueError: the values, or the shapes of the arrays that it maps, do not fit.
        """
        self.systems = check_values(structure.value_shapes, values)
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

    def beside(self, structure: Structure, values: Sequence[Any]) -> SparseMatrix:
        """The matrix of another structure with values, in the same library on the same device."""
        matrix: SparseMatrix = object.__new__(FORMATS[structure.format])
        matrix._set(self.bk, structure, values, self.anchor())
        return matrix

    def in_rows(
        self, starts: np.ndarray, cols: np.ndarray, shape: tuple[int, int], values: np.ndarray | Array
    ) -> SparseMatrix:
        """CSR of canonical rows with these values, in the same library on the same device."""
        return self.beside(FORMATS["csr"].structure_class(starts, cols, shape), (values,))

    def holding(self, values: Sequence[Any]) -> SparseMatrix:
        """The same structure on the same grids with other values; these are zero in all padding."""
        matrix: SparseMatrix = object.__new__(type(self))
        matrix._set(self.bk, self.structure, values, self.anchor(), self._in_shape, self._out_shape)
        matrix._made.update((key, self._made[key]) for key in ("indices", "masks") if key in self._made)
        matrix.reason, matrix.value_order = self.reason, self.value_order
        return matrix

    def on_grids(self, in_shape: Shape | None, out_shape: Shape | None, reason: str | None = None) -> SparseMatrix:
        """This matrix for arrays of other shapes; both share what was made of them, or will be."""
        matrix: SparseMatrix = object.__new__(type(self))
        matrix.bk, matrix.structure, matrix.shape = self.bk, self.structure, self.shape
        matrix.systems, matrix.dtype, matrix.constant = self.systems, self.dtype, self.constant
        matrix._arrays, matrix._like = self._arrays, self._like
        matrix._finish(in_shape, out_shape, self._made)
        matrix.reason, matrix.value_order = reason, self.value_order
        return matrix

    # --- as a container of arrays ---

    def _register(self) -> None:
        register_container(self.bk, type(self), _flatten, _restore)

    def __getstate__(self) -> dict[str, Any]:
        """State without caches, but for the library's arrays of known values, which say where the matrix lies."""
        arrays = {key: self._made[key] for key in ("arrays",) if key in self._made}
        return {**self.__dict__, "_transposed": None, "_compiled": None, "_made": arrays, "analysis": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    # --- its arrays ---

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

    # --- as an operator ---

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if bk.on_host:
            compiled, product = self._compiled or self._compile()
            if product is not None and x.shape[0] == 1:
                return product(x[0])[None]
            if compiled is not None:
                return self._on_host(compiled, x)
        values, dtype = self.arrays(), bk.dtype(x)
        if dtype != self.dtype:
            dtype = np.result_type(dtype, self.dtype)
            x, values = bk.astype(x, dtype), tuple(bk.astype(v, dtype) for v in values)
        masks = () if self.constant is not None else self.mask_arrays()
        return bk.bilinear(self.form, values, (*self.index_arrays(), *masks), x)

    def _compile(self) -> tuple[Any, Callable[[np.ndarray], Any] | None]:
        """SciPy's matrices for `_on_host`, None if there are none, and the product of a single one with one vector."""
        found = self._in_compiled_form()
        single = self.systems is None and found is not None
        self._compiled = found, product_of(found) if single else None
        return self._compiled

    def _in_compiled_form(self) -> Any:
        """SciPy matrix of this format for compiled products, sharing all arrays; None if there is none.

        Of a batch a tuple of them, or, where calls would take longer than products, one with all on its diagonal.
        """
        if self.systems is None:
            return self.known() if self.structure.format == "csr" else self.structure.compiled(self.arrays())
        if self.structure.nnz < _SMALL and self.systems * max(self.structure.nnz, *self.shape) < LIMIT:
            blocks = self.structure.on_diagonal(self.systems)
            return None if blocks is None else blocks.compiled([v.reshape(-1) for v in self.arrays()])
        found = tuple(self.structure.compiled([v[i] for v in self.arrays()]) for i in range(self.systems))
        return found if found and found[0] is not None else None

    def _on_host(self, compiled: Any, x: np.ndarray) -> np.ndarray:
        """`apply` on NumPy arrays by SciPy's matrices."""
        if isinstance(compiled, tuple):
            image = np.empty((len(x), self.shape[0]), np.result_type(self.dtype, x.dtype))
            for own, one, row in zip(image, compiled, x, strict=True):
                own[:] = rows_times(one, row)
            return image
        if self.systems is not None:
            blocks: np.ndarray = compiled @ x.reshape(-1)
            return blocks.reshape(len(x), self.shape[0])
        product: np.ndarray = rows_times(compiled, x.T).T
        return product

    def transpose(self) -> SparseMatrix:
        if self._transposed is None:
            flipped = self.structure.flipped() if self.bk.on_host else None  # SciPy multiplies by both as fast
            if flipped is None:
                made = self.regathered(*self.structure.transposed())
            else:
                made = self.beside(flipped, self.known_or_arrays())
            made = made.on_grids(self._out_shape, self._in_shape)
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
        (n, m), lead = self.shape, () if self.systems is None else (self.systems,)
        if math.prod(lead) * n * m >= 2**31:
            raise ValueError(
                f"A dense array of shape {(*lead, n, m)} was asked for, with too many numbers; keep it sparse."
            )
        if self.constant is not None:
            return self.placed(self.toarray().reshape(*lead, n, m))
        rows, cols, _ = self.structure.entries()
        places = rows * np.int32(m) + cols
        return self.bk.reshape(self.bk.sum_entries(self.entry_values(), places, n * m, sorted=True), (*lead, n, m))

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
        found = self._made.get("scipy")
        if found is not None or (values := self.known_values()) is None:
            return found
        if self.systems is None:
            found = self.structure.to_scipy(values)
        else:
            rows, cols, slots = self.structure.entries()
            starts = starts_of(rows, self.shape[0])
            flat = concatenated_values(get_backend("numpy"), values, self.systems)
            found = tuple(csr_array(row[slots], cols, starts, self.shape) for row in flat)
        if self.constant is not None:
            self._made["scipy"] = found
        return found

    def known_images(self, v: np.ndarray, both: bool = True) -> tuple[np.ndarray, ...] | None:
        values = None if self.structure.gathers or "scipy" in self._made else self.known_values()
        if values is None:
            return super().known_images(v, both)
        host, form = get_backend("numpy"), self.form
        rows = np.broadcast_to(v.astype(np.result_type(v, self.dtype)), (self.systems or 1, *v.shape))
        products = (form.product, form.product_transposed) if both else (form.product,)
        found = tuple(product(host, values, (), rows) for product in products)
        return found if self.systems is not None else tuple(image[0] for image in found)

    def is_exactly_hermitian(self) -> bool | None:
        values = self.known_values() if self.systems is None else None
        return None if values is None else self.structure.is_hermitian(values)

    def known_diagonal(self) -> np.ndarray:
        if "scipy" in self._made or (values := self.known_values()) is None:
            return super().known_diagonal()
        return np.asarray(self.structure.diagonal(get_backend("numpy"), values, None))

    # --- as a matrix ---

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
        return A._converted(cls.structure_class).on_grids(A._in_shape, A._out_shape)

    def _converted(self, cls: type[Structure]) -> SparseMatrix:
        if self.format == cls.format:
            return self
        found = self.structure.laid_out(cls)
        if found is not None:
            return self.regathered(*found)
        if self.constant is not None and self.format != "csr" and self.systems is None:
            known = self.known()  # by the format's own way to SciPy
            return self.in_rows(known.indptr, known.indices, known.shape, known.data)._converted(cls)
        return self.regathered(*self.structure.convert(cls))

    def regathered(self, structure: Structure, layout: Layout) -> SparseMatrix:
        """`structure` with these values, laid out anew."""
        return self.beside(structure, layout(self.host, self.known_or_arrays(), self.systems))

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
        known = are_known(given)
        A: Any = self if known else self.in_library_of(given[0])
        values = [working(np.array(v)) if known else v if A.bk.is_array(v) else A.placed(v) for v in given]
        bk = get_backend("numpy") if known else A.bk
        if order is not None:
            found: SparseMatrix = A.holding(order.stored(bk, values))
            return found
        check_values(A.structure.value_shapes, values)
        found = A.holding(A.structure.masked(bk, values))
        return found

    def native(self, backend: Any = None) -> Any:
        bk = self.bk if backend is None else get_backend(backend)
        if bk.on_host:
            values = self.known_values() if self.format == "csc" and self.systems is None else None
            # the latter refuses batches and what is not known
            return self.to_scipy() if values is None else self.structure.compiled(values).copy()
        if self.systems is not None and bk is not self.bk:
            raise UnsupportedOperation(
                f"A batch of {self.systems} matrices of {self.bk.name} was asked for in {bk.name}; expected one. Take "
                "A[i].native(backend)."
            )
        if bk is not self.bk:
            known, cls = self.native("numpy"), FORMATS["csc" if self.format == "csc" else "csr"]
            structure = cls.structure_class(known.indptr, known.indices, known.shape)
            return SparseMatrix.build(bk, structure, (known.data,)).native()
        by_columns = getattr(bk.sparse, "native_by_columns", None)
        if by_columns is not None and self.format == "csc" and self.systems is None:
            rows: Any = self.structure
            return by_columns(self.arrays()[0], rows.lines, rows.starts, self.shape)
        entries = self.structure.entries()
        return bk.sparse.native(self.entry_arrays(), entries.rows, entries.cols, self.shape)

    def prune(self) -> SparseMatrix:
        """The matrix without stored zeros, of a batch those of all systems; itself where its values are not known.

        It keeps its format, but for a stencil with zeros among others: this comes in the one that suits its entries.
        """
        known, grids = self.known_values(), (self._in_shape, self._out_shape)
        if known is None:
            return self
        cut = self.structure.pruned(known, self.systems)
        if cut is None:
            rows, cols, slots = self.structure.entries()
            values = concatenated_values(get_backend("numpy"), known, self.systems)[..., slots]
            rows, cols, values = nonzero_entries(rows, cols, values)
            found = self.in_rows(starts_of(rows, self.shape[0]), cols, self.shape, values)
        else:
            found = self.beside(*cut)
        if found.format == self.format:
            return found.on_grids(*grids, self.reason)
        return type(self).of(found.on_grids(*grids)) if self.structure.takes_all else self._suited(found, *grids)

    def explain(self) -> str:
        structure, systems = self.structure, 1 if self.systems is None else self.systems
        stored = systems * structure.size * self.dtype.itemsize + sum(i.nbytes for i in structure.indices)
        each = "" if self.systems is None else f" of each of {systems} systems"
        lines = [
            repr(self),
            f"stored: {structure.size} values for {structure.nnz} entries{each}, {stored / 1e6:.3g} MB with indices",
            f"values: {'known' if self.constant is not None else f'arrays of {self.bk.name}'}",
        ]
        return "\n".join([*lines, *([f"format: {self.format}; {self.reason}"] if self.reason else [])])

    def __repr__(self) -> str:
        n, m = self.shape
        summary = self.structure.summary()
        count = f"{self.structure.nnz} entries" + ("" if self.systems is None else f", {self.systems} systems")
        return (
            f"<{n}x{m} {type(self).__name__} matrix of {count}, {self.dtype}, {self.bk.name}"
            f"{': ' + summary if summary else ''}>"
        )

    def sum(self, axis: int | None = None) -> Array:
        check_axis(axis)
        bk, values = self.host, self.entry_values()
        rows, cols, _ = self.structure.entries()
        if axis is None:
            found = bk.sum(values, (len(values.shape) - 1,))
        elif axis in (0, -2):
            found = bk.sum_entries(values, cols, self.shape[1])
        else:
            found = bk.sum_entries(values, rows, self.shape[0], sorted=True)
        return found if self.constant is None else self.placed(np.asarray(found))

    def _extreme(self, axis: int | None, largest: bool) -> Array:
        if axis in (0, -2):
            return self.transpose()._extreme(1, largest)
        rows = self.structure.entries().rows
        if axis is None:
            starts, length = np.array([0, len(rows)], np.int32), self.shape[0] * self.shape[1]
        else:
            starts, length = starts_of(rows, self.shape[0]), self.shape[1]
        found = extreme_of_lines(self.host, self.entry_values(), starts, length, largest)
        found = found[..., 0] if axis is None else found
        return found if self.constant is None else self.placed(np.asarray(found))

    def _plus(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return other._plus(self.to("dense"))
        found = _sum(*joint)
        if found.structure is joint[0].structure:
            return found.on_grids(self._in_shape, self._out_shape, self.reason)
        return self._suited(found, self._in_shape, self._out_shape)

    def _scaled(self, c: Any, divide: bool = False) -> Matrix:
        factor, dtype = as_factor(self.bk, c, self.dtype)
        known = isinstance(factor, np.ndarray)
        host = self.host if known else self.bk
        values = self.known_or_arrays() if known else self.arrays()
        if known:
            factor = host.asarray(factor, like=values[0] if values else None)
        cast = [host.astype(v, dtype) for v in values]
        found = [v / factor if divide else v * factor for v in cast]
        # the zeros of padding would be NaN times infinity, or divided by zero
        keeps_zeros = known and bool(np.isfinite(c)) and not (divide and c == 0)
        return self.holding(found if keeps_zeros else self.structure.masked(host, found))

    def _times(self, other: Any) -> Matrix:
        joint = self._joint(other)
        if joint is None:
            return self.to("dense")._times(other)
        in_shape = other._in_shape if isinstance(other, SparseMatrix) else None
        return self._suited(_product(*joint), in_shape, self._out_shape)

    def _joint(self, other: Any) -> tuple[SparseMatrix, SparseMatrix] | None:
        """Bring this and another sparse matrix, possibly SciPy's, to one library; None where the other one is dense."""
        if sp.issparse(other):
            csr = sp.csr_array(checked_scipy(other, "the other matrix"), copy=True)
            csr.sum_duplicates()
            other = self.in_rows(csr.indptr, csr.indices, csr.shape, working(csr.data))
        return on_common_backend(self, other) if isinstance(other, SparseMatrix) else None

    def _chosen(self, systems: np.ndarray | int) -> SparseMatrix:
        if isinstance(systems, int):
            return self.holding([v[systems, ...] for v in self.known_or_arrays()])
        return self.holding([self.host.take_in_bounds(v, systems) for v in self.known_or_arrays()])

    def _part(self, key: Any) -> Any:
        # SciPy selects from a matrix that holds the number of each entry in its place
        rows, cols, _ = self.structure.entries()
        numbers = np.arange(1, len(rows) + 1, dtype=np.int32)
        chosen = csr_array(numbers, cols, starts_of(rows, self.shape[0]), self.shape)[as_key(key, self.shape)]
        if not sp.issparse(chosen) or chosen.ndim < 2:
            found = chosen.toarray() if sp.issparse(chosen) else np.asarray(chosen)
            (picked,) = Regather((found.astype(np.int32).reshape(-1) - np.int32(1),))(self.host, (self.entry_values(),))
            return self.bk.reshape(picked if self.constant is None else self.placed(picked), found.shape)
        chosen = chosen.tocsr()
        chosen.sort_indices()
        values = self.host.take_in_bounds(self.entry_values(), chosen.data - np.int32(1))
        return self._suited(self.in_rows(chosen.indptr, chosen.indices, chosen.shape, values), None, None)


def _flatten(A: SparseMatrix) -> tuple[tuple[Array, ...], Any]:
    """Flatten a matrix to its arrays and static data."""
    values, indices, masks = A.arrays(), A.index_arrays(), A.mask_arrays()
    static = A.bk, A.structure, len(values), len(indices), A.dtype, A._in_shape, A._out_shape, A.value_order
    return (*values, *indices, *masks), static


def _restore(static: Any, arrays: Sequence[Any]) -> SparseMatrix:
    """Unflatten without access to the arrays, which transformations replace by placeholders or stack."""
    bk, structure, values, indices, dtype, in_shape, out_shape, order = static
    A: Any = object.__new__(FORMATS[structure.format])
    A.bk, A.structure, A.shape, A.constant, A._like = bk, structure, structure.shape, None, None
    A._arrays, A.systems = mapped_values(bk, structure.value_shapes, arrays[:values])
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


def sparse_formats() -> list[str]:
    """The words of the formats that are sparse."""
    return [word for word, cls in FORMATS.items() if isinstance(cls, type) and issubclass(cls, SparseMatrix)]


def nonzero_entries(
    rows: np.ndarray, cols: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries with known values `(..., nnz)`, without those that are 0 in all systems."""
    used = (values != 0).any(axis=tuple(range(values.ndim - 1)))
    return rows[used], cols[used], values[..., used]


# --- of several matrices, and of some rows ---


def _sum(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A + B: with the structure of A if B has the same, else in rows, on the union of both.

    Where all values are known, without entries that cancel.
    """
    if A.shape != B.shape:
        raise ValueError(f"Matrices of the shapes {A.shape} and {B.shape} were added; expected equal ones.")
    if A.structure == B.structure:
        return A.holding([a + b for a, b in zip(*_values(A, B), strict=True)])
    if _both_in_scipy(A, B):
        return _by_rows(A, A.known() + B.known())
    first, second = A.structure.entries(), B.structure.entries()
    rows, cols = np.concatenate([first.rows, second.rows]), np.concatenate([first.cols, second.cols])
    values, order = joint_values([A, B], np.result_type(A.dtype, B.dtype)), sorted_entries(rows, cols, A.shape)
    return A.in_rows(starts_of(order.rows, A.shape[0]), order.cols, A.shape, order.values(A.bk, values))


def _product(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A @ B in rows, on the structure of all products that may be non-zero."""
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"Matrices of the shapes {A.shape} and {B.shape} were multiplied; expected equal inner numbers."
        )
    if _both_in_scipy(A, B):
        return _by_rows(A, A.known() @ B.known())
    meeting = products_of_entries(A.structure, B.structure)
    bk, factors = entries_together([A, B], np.result_type(A.dtype, B.dtype))
    shape = (A.shape[0], B.shape[1])
    return A.in_rows(starts_of(meeting.rows, shape[0]), meeting.cols, shape, meeting.values(bk, *factors))


def _both_in_scipy(A: SparseMatrix, B: SparseMatrix) -> bool:
    """Are both known single matrices, with which SciPy can compute?"""
    return A.constant is not None and B.constant is not None and A.systems is None and B.systems is None


def _by_rows(A: SparseMatrix, found: sp.csr_array) -> SparseMatrix:
    """Wrap a known result of SciPy, on the device of A."""
    found.sum_duplicates()
    return A.in_rows(found.indptr, found.indices, found.shape, found.data)


def _values(A: SparseMatrix, B: SparseMatrix) -> tuple[list[Array], list[Array]]:
    check_systems([A, B])
    dtype = np.result_type(A.dtype, B.dtype)
    known = A.constant is not None and B.constant is not None
    bk = A.host if known else A.bk
    one, other = ([bk.astype(v, dtype) for v in (M.known_or_arrays() if known else M.arrays())] for M in (A, B))
    return one, other  # of one matrix beside a batch: without the first axis, as sums repeat it


def joint_values(matrices: Sequence[SparseMatrix], dtype: np.dtype) -> Array:
    """Concatenate the values of several matrices in row order, for each system; NumPy where known.

    Raises:
        ValueError: batches of different length are among them.
    """
    systems = check_systems(matrices)
    bk, values = entries_together(matrices, dtype)
    if systems is not None:
        values = [v if len(v.shape) == 2 else bk.broadcast_to(v, (systems, int(v.shape[0]))) for v in values]
    return values[0] if len(values) == 1 else bk.concat(values, len(values[0].shape) - 1)


def entries_together(matrices: Sequence[SparseMatrix], dtype: np.dtype) -> tuple[Backend, list[Array]]:
    """Values of each matrix in row order, NumPy's where all are known, and their library."""
    known = all(M.constant is not None for M in matrices)
    bk = matrices[0].host if known else matrices[0].bk
    return bk, [bk.astype(M.entry_values() if known else M.entry_arrays(), dtype) for M in matrices]


def on_common_backend(A: SparseMatrix, B: SparseMatrix) -> tuple[SparseMatrix, SparseMatrix]:
    """Bring both to one library.

    Raises:
        TypeError: they are of two libraries.
    """
    if A.bk is B.bk:
        return A, B
    first: Any = A.on_backend(B.bk, B.anchor()) if A.bk.on_host else A
    second: Any = B.on_backend(A.bk, A.anchor()) if B.bk.on_host else B
    if first is None or second is None or first.bk is not second.bk:
        raise TypeError(
            f"Matrices of {A.bk.name} and {B.bk.name} were combined; expected one library. Move one of them."
        )
    return first, second


def row_block(A: SparseMatrix, first: int, last: int) -> sp.csr_array:
    """Rows `first` to `last` of one matrix with known values, `(last - first, columns)`, sorted, without duplicates.

    Raises:
        UnsupportedOperation: it is a batch of matrices, or its values are not known now.

    Cost: of a stencil and of diagonals a pass over these rows; of other formats that of SciPy's slice of all of them.
    """
    values = A.known_values() if A.systems is None else None
    if values is None:
        what = "a batch of matrices" if A.systems is not None else "a matrix whose values are not known now"
        raise UnsupportedOperation(f"Rows of {what} cannot be cut; give one matrix with values, outside of programs.")
    found = A.structure.row_block(values, first, last)
    if found is None:
        block = sp.csr_array(A.known())[first:last]
    else:
        rows, columns, entries = found
        block = sp.csr_array((entries, (rows - first, columns)), shape=(last - first, A.shape[1]), dtype=A.dtype)
    block.sum_duplicates()
    return block
