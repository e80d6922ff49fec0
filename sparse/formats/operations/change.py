"""From one form of a matrix to another: format, transpose, values, library, SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, get_backend
from ..compressed import CscStructure, CsrStructure
from ..entries.integers import starts_of
from ..entries.regather import concatenated_values
from ..making.checked import checked_scipy
from ..making.given import working
from ..stored import Stored, are_known, check_values
from ..structure import Structure


def converted(A: Stored, cls: type[Structure]) -> Stored:
    """A in another format. Cost: one gather of the values; the structure is converted once."""
    if A.structure.format == cls.format:
        return A
    found = A.structure.laid_out(cls)
    if found is not None:
        return A.regathered(*found)
    if A.constant is not None and A.structure.format != "csr" and A.systems is None:
        rows = _known_rows(A)
        return rows if cls.format == "csr" else converted(rows, cls)
    return A.regathered(*A.structure.convert(cls))


def _known_rows(A: Stored) -> Stored:
    """In CSR, with known values: by the format's own way to SciPy."""
    return Stored.of_rows(A.bk, A.known(), A.anchor())


def transposed(A: Stored) -> Stored:
    """The transpose."""
    other: dict[str, Any] = {"csr": CscStructure, "csc": CsrStructure}
    if A.bk.on_host and A.structure.format in other:  # the same arrays, read the other way round: SciPy is as fast
        starts, lines = A.structure.indices[:2]
        return A.beside(other[A.structure.format](starts, lines, A.shape[::-1]), A.known_or_arrays())
    return A.regathered(*A.structure.transposed())


def revalued(A: Stored, given: Sequence[Any]) -> Stored:
    """The same structure with values of NumPy or of the library; what is given for padding is ignored.

    Raises:
        ValueError: they have other shapes.
    """
    known = are_known(given)
    values = [working(np.asarray(v)) if known else v if A.bk.is_array(v) else A.placed(v) for v in given]
    check_values(A.structure, values)
    return A.with_values(A.structure.masked(get_backend("numpy") if known else A.bk, values))


def densified(A: Stored) -> Array:
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


def native(A: Stored) -> Any:
    """The library's own sparse matrix."""
    rows, cols, _ = A.structure.entries()
    return A.bk.sparse.native(A.entry_arrays(), rows, cols, A.shape)


def pruned(A: Stored) -> Stored | None:
    """A without stored zeros, of a batch those of all systems, by rows if it does not keep its format.

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
    structure = CsrStructure(starts_of(rows[kept], shape[0]), cols[kept], shape)
    return structure, (values[..., kept],)


def explained(A: Stored) -> list[str]:
    """Lines about size and memory."""
    structure, systems = A.structure, 1 if A.systems is None else A.systems
    stored = systems * structure.size * A.dtype.itemsize + sum(i.nbytes for i in structure.indices)
    each = "" if A.systems is None else f" of each of {systems} systems"
    return [
        f"stored: {structure.size} values for {structure.nnz} entries{each}, {stored / 1e6:.3g} MB with indices",
        f"values: {'known' if A.constant is not None else f'arrays of {A.bk.name}'}",
    ]


def copied(A: Stored, B: Any) -> Stored:
    """A matrix of SciPy, beside A."""
    csr = sp.csr_array(checked_scipy(B, "the other matrix"), copy=True)
    csr.sum_duplicates()
    return A.beside(CsrStructure.of(csr), (working(csr.data),))


def on_common_backend(A: Stored, B: Stored) -> tuple[Stored, Stored]:
    """Both in one library.

    Raises:
        TypeError: they are of two libraries.
    """
    if A.bk is B.bk:
        return A, B
    first = A.on_backend(B.bk, B.anchor()) if A.bk.on_host else A
    second = B.on_backend(A.bk, A.anchor()) if B.bk.on_host else B
    if first is None or second is None or first.bk is not second.bk:
        raise TypeError(
            f"Matrices of {A.bk.name} and {B.bk.name} were combined; expected one library. Move one of them."
        )
    return first, second
