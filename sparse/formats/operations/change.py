"""From one form of a matrix to another: format, library, SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from ....backends import get_backend
from ..making.given import working
from ..rows import CsrStructure
from ..stored import FORMATS, Stored

if TYPE_CHECKING:
    from ..matrix import Matrix
    from ..sparse_matrix import SparseMatrix

DENSE: dict[str, Callable[[SparseMatrix], Matrix]] = {}  # "dense": what makes one; the class lies above this folder


def converted(A: SparseMatrix, format: str) -> Matrix:
    """A in another format. Cost: one gather of the values; the structure is converted once."""
    if format == A.format:
        return A
    if format in DENSE:
        return DENSE[format](A)
    cls = FORMATS.get(format)
    if cls is None:
        raise ValueError(f"The format {format!r} was asked for; there are {', '.join([*FORMATS, *DENSE])}.")
    if A.constant is not None and A.format != "csr":
        rows = _known_rows(A)
        return rows if format == "csr" else converted(rows, format)
    return A.regathered(*A.structure.convert(cls.structure_class))


def _known_rows(A: SparseMatrix) -> SparseMatrix:
    """In CSR, with known values: by the format's own way to SciPy."""
    csr = A.to_scipy()
    return A.rebuilt(CsrStructure.of(csr), (csr.data,), **A.shapes)


def native(A: SparseMatrix, backend: Any = None) -> Any:
    """The library's own sparse matrix."""
    bk = A.bk if backend is None else get_backend(backend)
    if bk.name == "numpy":
        return A.to_scipy()
    if bk is not A.bk:
        csr = A.to_scipy()
        return native(Stored.build(bk, CsrStructure.of(csr), (csr.data,)))
    rows, cols, _ = A.structure.entries()
    values = A.entry_values()
    if A.constant is not None:
        values = bk.asarray(values, like=A.anchor())
    return bk.sparse.native(values, rows, cols, A.shape)


def pruned(A: SparseMatrix) -> SparseMatrix:
    """A without stored zeros; itself where its values are not known."""
    if A.known() is None:
        return A
    csr = A.to_scipy().copy()
    csr.eliminate_zeros()
    found: Any = A.rebuilt(CsrStructure.of(csr), (csr.data,), **A.shapes).to(A.format)
    return found


def explained(A: SparseMatrix) -> str:
    """Size, structure and memory, and why it has its format."""
    structure = A.structure
    stored = structure.size * A.dtype.itemsize + sum(i.nbytes for i in structure.indices)
    lines = [
        repr(A),
        f"stored: {structure.size} values for {A.nnz} entries, {stored / 1e6:.3g} MB with indices",
        f"values: {'known' if A.constant is not None else f'arrays of {A.bk.name}'}",
    ]
    if A.reason:
        lines.append(f"format: {A.format}; {A.reason}")
    return "\n".join(lines)


def together(A: SparseMatrix, B: Any) -> tuple[Any, Any] | None:
    """Two sparse matrices, one of which may be SciPy's, on one backend; None where the other one is dense.

    Raises:
        TypeError: they are of two libraries.
    """
    if sp.issparse(B):
        csr = sp.csr_array(B, copy=True)
        csr.sum_duplicates()
        return A, A.rebuilt(CsrStructure.of(csr), (working(csr.data),))
    if not isinstance(B, Stored):
        return None
    if A.bk is B.bk:
        return A, B
    first = A.on_backend(B.bk, B.anchor()) if A.bk.name == "numpy" else A
    second = B.on_backend(A.bk, A.anchor()) if B.bk.name == "numpy" else B
    if first is None or second is None or first.bk is not second.bk:
        raise TypeError(
            f"Matrices of {A.bk.name} and {B.bk.name} were combined; expected one library. Move one of them."
        )
    return first, second
