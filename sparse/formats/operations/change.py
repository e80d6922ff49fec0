"""Conversion of sparse matrices: format, transpose, values, library, SciPy, submatrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, get_backend
from ..compressed import CompressedStructure, CscStructure, CsrStructure
from ..entries.checked import checked_scipy, working
from ..entries.integers import csr_array, starts_of
from ..entries.regather import Regather, concatenated_values
from ..storage import Sparse, SparseStorage
from ..structure import Structure, ValueOrder
from ..values import are_known, check_values


def converted(A: Sparse, cls: type[Structure]) -> Sparse:
    """A in another format. Cost: one gather of the values; the structure is converted once."""
    if A.structure.format == cls.format:
        return A
    found = A.structure.laid_out(cls)
    if found is not None:
        return A.regathered(*found)
    if A.constant is not None and A.structure.format != "csr" and A.systems is None:
        known = A.known()  # by the format's own way to SciPy
        rows = A.beside(CsrStructure.of(known), (known.data,))
        return rows if cls.format == "csr" else converted(rows, cls)
    return A.regathered(*A.structure.convert(cls))


def transposed(A: Sparse) -> Sparse:
    """The transpose."""
    if A.bk.on_host and isinstance(A.structure, CompressedStructure):  # SciPy multiplies by both as fast
        return A.beside(A.structure.flipped(), A.known_or_arrays())
    return A.regathered(*A.structure.transposed())


def revalued(A: Sparse, given: Sequence[Any], order: ValueOrder | None) -> Sparse:
    """Replace the values by those of the library, or a copy of NumPy's; what is given for padding is ignored.

    They come in `order`, or for None as the structure stores them.

    Raises:
        ValueError: they have other shapes.
    """
    known = are_known(given)
    values = [working(np.array(v)) if known else v if A.bk.is_array(v) else A.placed(v) for v in given]
    bk = get_backend("numpy") if known else A.bk
    if order is not None:
        return A.holding(order.stored(bk, values))
    check_values(A.structure, values)
    return A.holding(A.structure.masked(bk, values))


def densified(A: SparseStorage) -> Array:
    """A dense array of the library, `(n, m)`, or for a batch `(systems, n, m)`."""
    (n, m), lead = A.shape, () if A.systems is None else (A.systems,)
    if math.prod(lead) * n * m >= 2**31:
        raise ValueError(
            f"A dense array of shape {(*lead, n, m)} was asked for, with too many numbers; keep it sparse."
        )
    if A.constant is not None:
        known: Any = A.known()
        every = known.toarray() if A.systems is None else np.array([K.toarray() for K in known], A.dtype)
        return A.placed(every.reshape(*lead, n, m))
    rows, cols, _ = A.structure.entries()
    places = rows * np.int32(m) + cols
    return A.bk.reshape(A.bk.sum_entries(A.entry_values(), places, n * m, sorted=True), (*lead, n, m))


def native(A: SparseStorage) -> Any:
    """The library's own sparse matrix: of CSC its own CSC, where it has that."""
    by_columns = getattr(A.bk.sparse, "native_by_columns", None)
    if by_columns is not None and isinstance(A.structure, CscStructure) and A.systems is None:
        return by_columns(A.arrays()[0], A.structure.lines, A.structure.starts, A.shape)
    rows, cols, _ = A.structure.entries()
    return A.bk.sparse.native(A.entry_arrays(), rows, cols, A.shape)


def pruned(A: Sparse) -> Sparse | None:
    """Remove stored zeros, of a batch those of all systems; the result is CSR if it cannot keep its format.

    None where its values are not known.
    """
    known = A.known_values()
    if known is None:
        return None
    found = A.structure.pruned(known, A.systems)
    if found is not None:
        return A.beside(*found)
    rows, cols, slots = A.structure.entries()
    values = concatenated_values(get_backend("numpy"), known, A.systems)[..., slots]
    return A.beside(*nonzero_rows(rows, cols, values, A.shape))


def nonzero_rows(
    rows: np.ndarray, cols: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> tuple[CsrStructure, tuple[np.ndarray]]:
    """Entries in row order with known values `(..., nnz)`, without those that are 0 in all systems."""
    kept = (values != 0).any(axis=tuple(range(values.ndim - 1)))
    structure = CsrStructure.by_rows(rows[kept], cols[kept], shape)
    return structure, (values[..., kept],)


def explained(A: SparseStorage) -> list[str]:
    """Lines of `explain` about size and memory."""
    structure, systems = A.structure, 1 if A.systems is None else A.systems
    stored = systems * structure.size * A.dtype.itemsize + sum(i.nbytes for i in structure.indices)
    each = "" if A.systems is None else f" of each of {systems} systems"
    return [
        f"stored: {structure.size} values for {structure.nnz} entries{each}, {stored / 1e6:.3g} MB with indices",
        f"values: {'known' if A.constant is not None else f'arrays of {A.bk.name}'}",
    ]


def in_scipy_by_columns(A: SparseStorage, values: Sequence[np.ndarray]) -> sp.csc_array:
    """SciPy's CSC array of a single CSC matrix with these values, with arrays of its own."""
    structure: Any = A.structure
    return structure.compiled(values).copy()


def copied(A: Sparse, B: Any) -> Sparse:
    """Copy a SciPy matrix, on the device of A."""
    csr = sp.csr_array(checked_scipy(B, "the other matrix"), copy=True)
    csr.sum_duplicates()
    return A.beside(CsrStructure.of(csr), (working(csr.data),))


def on_common_backend(A: Sparse, B: Sparse) -> tuple[Sparse, Sparse]:
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


def submatrix(A: Sparse, key: Any) -> Sparse | Array:
    """`A[key]`: rows, or a dense array where SciPy's result has less than two axes.

    SciPy selects from a matrix that holds the number of each entry in its place.
    """
    rows, cols, _ = A.structure.entries()
    numbers = np.arange(1, len(rows) + 1, dtype=np.int32)
    chosen = csr_array(numbers, cols, starts_of(rows, A.shape[0]), A.shape)[_plain(key, A.shape)]
    if not sp.issparse(chosen) or chosen.ndim < 2:
        found = chosen.toarray() if sp.issparse(chosen) else np.asarray(chosen)
        return _dense(A, found.astype(np.int32) - np.int32(1))
    chosen = chosen.tocsr()
    chosen.sort_indices()
    structure = CsrStructure(chosen.indptr, chosen.indices, chosen.shape)
    return A.beside(structure, (A.host.take_in_bounds(A.entry_values(), chosen.data - np.int32(1)),))


def _plain(key: Any, shape: tuple[int, int]) -> Any:
    """The rows of `A[rows]` as a pair, and lists as arrays."""
    if isinstance(key, np.ndarray) and key.dtype == bool and key.shape == shape:
        return np.nonzero(key)
    pair = key if isinstance(key, tuple) else (key, slice(None))
    if len(pair) > 2:
        raise IndexError(f"{len(pair)} indices were given for a matrix; expected A[rows] or A[rows, columns].")
    if len(pair) == 1:
        pair = (pair[0], slice(None))
    return tuple(np.asarray(k) if isinstance(k, (list, range)) else k for k in pair)


def _dense(A: SparseStorage, entries: np.ndarray) -> Array:
    (found,) = Regather((entries.reshape(-1),))(A.host, (A.entry_values(),))
    return A.bk.reshape(found if A.constant is None else A.placed(found), entries.shape)
