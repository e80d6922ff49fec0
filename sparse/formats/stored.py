"""A static structure with values: what a sparse matrix is made of, before it is an operator.

`values` are arrays shaped as `structure.value_shapes`: NumPy where they are known, also inside a compiled function,
else arrays of `bk`, possibly traced. They are zero in all padding. With one more axis in front of all of them they are
a batch: matrices of one structure, whose integers are stored once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...backends.interface.bilinear import Bilinear, Each
from .compressed import CsrStructure
from .entries.integers import LIMIT, starts_of
from .entries.order import Order
from .entries.regather import Regather, concatenated_values
from .entries.scipy_form import csr_array
from .structure import Layout, Structure

_SMALL = 4096  # entries, which SciPy multiplies in about the time of its call


class Stored:
    """Structure and values, and their arrays in a library, each made when it is needed.

    Attributes:
        bk: the library.
        structure: where the entries are: static NumPy integers.
        shape: `(n, m)`.
        dtype: NumPy dtype of the values.
        systems: how many matrices are stored, along the first axis of the values; None: one, without that axis.
        constant: the values as NumPy arrays where they are known, also inside a compiled function; else None.
        scipy: known values in SciPy, once that was needed; of a batch a tuple.
    """

    def __init__(self, bk: Backend, structure: Structure, values: Sequence[Any], like: Array | None = None) -> None:
        """On the device of the values or of `like`; nothing is copied.

        Raises:
            ValueError: the values do not fit.
        """
        self.systems = check_values(structure, values)
        known = are_known(values)
        self.bk, self.structure, self.shape = bk, structure, structure.shape
        self.constant = _canonical(bk, values) if known else None
        self._arrays = None if known and not bk.on_host else self.constant or _of_library(bk, values, like)
        example = self.constant or self._arrays
        self.dtype = self.host.dtype(example[0]) if example else np.dtype(np.float64)
        self._like = _device_of(bk, self.dtype, like)
        self._reset()

    def _reset(self) -> None:
        self._index_arrays: tuple[Array, ...] | None = None
        self._mask_arrays: tuple[Array, ...] | None = None
        self.scipy: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made again when it is needed: SciPy's object, and what libraries' programs were made of."""
        return {**self.__dict__, "_index_arrays": None, "_mask_arrays": None, "scipy": None}

    # --- as a container of arrays ---

    def flatten(self) -> tuple[tuple[Array, ...], Any]:
        """All arrays, and what tells them apart."""
        values, indices, masks = self.arrays(), self.index_arrays(), self.mask_arrays()
        return (*values, *indices, *masks), (self.bk, self.structure, len(values), len(indices), self.dtype)

    @classmethod
    def unflatten(cls, static: Any, arrays: Sequence[Any]) -> Stored:
        """Without a look at the arrays: transformations put placeholders in their place."""
        stored = object.__new__(cls)
        stored.bk, stored.structure, values, indices, dtype = static
        stored.shape, stored.constant, stored._like = stored.structure.shape, None, None
        stored._reset()
        stored._arrays = tuple(arrays[:values])
        stored._index_arrays = tuple(arrays[values : values + indices])
        stored._mask_arrays = tuple(arrays[values + indices :])
        stored._find_systems()
        first = arrays[0] if values else None
        stored.dtype = stored.bk.dtype(first) if hasattr(first, "dtype") and hasattr(first, "shape") else dtype
        return stored

    def _find_systems(self) -> None:
        """A transformation that maps over the making of matrices puts an axis in front of all arrays, indices too.

        Raises:
            ValueError: it has put it elsewhere.
        """
        self.systems = None
        arrays, bk, wanted = self._arrays or (), self.bk, self.structure.value_shapes
        if not arrays or not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays):
            return  # but placeholders
        found = [tuple(int(n) for n in a.shape) for a in arrays]
        leads = {len(shape) - len(own) for shape, own in zip(found, wanted, strict=True)}
        lead = leads.pop()
        if leads or lead < 1:
            return
        if any(shape[lead:] != own for shape, own in zip(found, wanted, strict=True)):
            raise ValueError(
                f"A transformation made values of the shapes {found} for a matrix of {wanted}; expected the axis of "
                "the systems in front: jax.vmap(..., out_axes=0)."
            )
        if lead > 1 and all(map(bk.is_array, arrays)):
            arrays = tuple(bk.reshape(a, (-1, *own)) for a, own in zip(arrays, wanted, strict=True))
        self._arrays, self.systems = arrays, math.prod(found[0][:lead])
        if any(len(a.shape) > i.ndim for a, i in zip(self._index_arrays or (), self.structure.indices, strict=True)):
            self._index_arrays = None
        if any(len(a.shape) > i.ndim for a, i in zip(self._mask_arrays or (), self.structure.masks, strict=False)):
            self._mask_arrays = None

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
        made = self._placed(self.constant or ())
        if not self.bk.compiled():
            self._arrays = made
        return tuple(map(self.bk.uncut, made)) if self.structure.cuts_values else made

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
        return tuple(map(self.placed, arrays))

    def placed(self, array: Array) -> Array:
        """An array of NumPy or of the library as one of the library, on the device of the values."""
        return self.bk.asarray(array, like=self.anchor())

    def anchor(self) -> Array | None:
        """An array on the matrix's device, if that matters."""
        return self._arrays[0] if self._arrays else self._like

    def entry_values(self) -> Array:
        """`(nnz,)` or `(systems, nnz)`: the values in row order; NumPy where they are known."""
        host = self.host
        flat, slots = concatenated_values(host, self.known_or_arrays(), self.systems), self.structure.entries().slots
        return flat if self.structure.format in ("csr", "coo") else host.take(flat, slots, len(flat.shape) - 1)

    def entry_arrays(self) -> Array:
        """`entry_values` in the library."""
        values = self.entry_values()
        return values if self.constant is None else self.placed(values)

    def known_values(self) -> tuple[np.ndarray, ...] | None:
        """The values as NumPy arrays; None where they are not known now."""
        if self.constant is None and self.bk.compiled(*(self._arrays or ())):
            return None
        return self.constant or tuple(self.bk.to_numpy(v) for v in self.arrays())

    def is_hermitian(self) -> bool | None:
        """`Structure.is_hermitian` of one matrix; None where its values are not known now."""
        values = self.known_values() if self.systems is None else None
        return None if values is None else self.structure.is_hermitian(values)

    def known(self) -> Any:
        """In SciPy, of a batch a tuple of matrices that share their indices; None where values are not known now."""
        values = self.known_values() if self.scipy is None else None
        if values is None:
            return self.scipy
        found = self.structure.to_scipy(values) if self.systems is None else self._known_systems(values)
        if self.constant is not None and not (self.bk.on_host and self.structure.format == "csc"):
            self.scipy = found  # not a copy of CSC, which may share a user's memory
        return found

    def _known_systems(self, values: Sequence[np.ndarray]) -> tuple[sp.csr_array, ...]:
        rows, cols, slots = self.structure.entries()
        starts, flat = starts_of(rows, self.shape[0]), concatenated_values(get_backend("numpy"), values, self.systems)
        return tuple(csr_array(row[slots], cols, starts, self.shape) for row in flat)

    def known_images(self, v: np.ndarray, both: bool) -> tuple[np.ndarray, ...] | None:
        """`Operator.known_images` by the products of this format, where these gather nothing; else None."""
        values = None if self.structure.gathers or self.scipy is not None else self.known_values()
        if values is None:
            return None
        host, form = get_backend("numpy"), self.form
        rows = np.broadcast_to(v.astype(np.result_type(v, self.dtype)), (self.systems or 1, *v.shape))
        products = (form.product, form.product_transposed) if both else (form.product,)
        found = tuple(product(host, values, (), rows) for product in products)
        return found if self.systems is not None else tuple(image[0] for image in found)

    def compiled(self) -> Any:
        """SciPy's matrix of this format, whose product is compiled, sharing all arrays; None if it has none.

        Of a batch a tuple of them, or, where calls would take longer than products, one with all on its diagonal.
        """
        if self.systems is None:
            return self.known() if self.structure.format == "csr" else self.structure.compiled(self.arrays())
        if self.structure.nnz < _SMALL and self.systems * max(self.structure.nnz, *self.shape) < LIMIT:
            blocks = self.structure.on_diagonal(self.systems)
            return None if blocks is None else blocks.compiled([v.reshape(-1) for v in self.arrays()])
        found = tuple(self.structure.compiled([v[i] for v in self.arrays()]) for i in range(self.systems))
        return found if found and found[0] is not None else None

    # --- others made of it ---

    def chosen(self, systems: np.ndarray | int) -> Stored:
        """One of a batch by its number, or several, as a batch."""
        host = self.host
        if isinstance(systems, int):
            return self.with_values([v[systems] for v in self.known_or_arrays()])
        return self.with_values([host.take(v, systems) for v in self.known_or_arrays()])

    @classmethod
    def of_rows(cls, bk: Backend, A: sp.csr_array, like: Array | None = None) -> Stored:
        """A canonical SciPy matrix, whose memory is shared."""
        return cls(bk, CsrStructure.of(A), (A.data,), like)

    @classmethod
    def from_rows(
        cls, bk: Backend, kind: type[Structure], order: Order, values: Array, shape: tuple[int, int]
    ) -> Stored:
        """Values `(nnz,)` or `(systems, nnz)` in row order, laid out as a kind of structure wants them."""
        structure, sources = kind.from_entries(order.rows, order.cols, shape)
        host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
        systems = None if len(values.shape) == 1 else int(values.shape[0])
        return cls(bk, structure, Regather(sources)(host, (values,), systems))

    def beside(self, structure: Structure, values: Sequence[Any]) -> Stored:
        """Another structure with values, in the same library on the same device."""
        return Stored(self.bk, structure, values, self.anchor())

    def with_values(self, values: Sequence[Any]) -> Stored:
        """The same structure with other values; these are zero in all padding."""
        stored = self.beside(self.structure, values)
        stored._index_arrays, stored._mask_arrays = self._index_arrays, self._mask_arrays
        return stored

    def regathered(self, structure: Structure, layout: Layout) -> Stored:
        """`structure` with these values, laid out anew."""
        return self.beside(structure, layout(self.host, self.known_or_arrays(), self.systems))

    def on_backend(self, bk: Backend, like: Array | None) -> Stored | None:
        """In another library; None where the values are not known."""
        if self.constant is None:
            return None
        return Stored(bk, self.structure, [v.copy() for v in self.constant], like)  # a user may write to these


def are_known(values: Sequence[Any]) -> bool:
    """Are all of them NumPy's?"""
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def check_values(structure: Structure, values: Sequence[Any]) -> int | None:
    """How many systems the values are of, along one more axis in front of what the structure wants; None: no such axis.

    Raises:
        ValueError: they are shaped in another way.
    """
    found = tuple(tuple(int(n) for n in v.shape) for v in values)
    if found == structure.value_shapes:
        return None
    systems = {shape[0] for shape in found if shape}
    if len(systems) == 1 and tuple(shape[1:] for shape in found) == structure.value_shapes and all(found):
        return systems.pop()
    raise ValueError(
        f"Values of the shapes {found} were given; expected {structure.value_shapes}, or for a batch of matrices of "
        "this structure the same with one more axis in front."
    )


def _of_library(bk: Backend, values: Sequence[Any], like: Array | None) -> tuple[Array, ...]:
    anchor = next((v for v in values if bk.is_array(v)), like)
    return tuple(v if bk.is_array(v) else bk.asarray(v, like=anchor) for v in values)


def _canonical(bk: Backend, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Known values in the dtype that the library would give them, and all in one."""
    if not values:
        return ()
    dtype = bk.stored_dtype(np.result_type(*values))
    return tuple(np.asarray(v, dtype) for v in values)


def _device_of(bk: Backend, dtype: np.dtype, like: Array | None) -> Array | None:
    """An array without elements on `like`'s device where there is a choice: `like` itself may be large, or traced."""
    return None if like is None or bk.device(like) is None else bk.zeros((0,), dtype, like)
