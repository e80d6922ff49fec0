"""Choice of a format for the matrices of a level."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from ....backends import Array, Backend
from ....sparse import DIA, Operator, SparseMatrix, Stencil
from ....sparse.formats import choose_format
from ....sparse.formats.compressed import CsrStructure

_LONG = 2**15  # numbers of a diagonal, whose product in parts is quicker than that of rows
_SMALL = 50_000  # entries, whose product takes as long in rows, and compiles in a third of the time


def suitable_format(bk: Backend, A: CsrStructure | sp.csr_array) -> str:
    """Format for the products of a CSR matrix in a library, with regard to compile time.

    PyTorch's product of short diagonals is an operation for each, and takes longer than that of rows.
    """
    if bk.has_compiled_rows and not bk.on_host:
        return "csr"
    starts, cols = (A.starts, A.cols) if isinstance(A, CsrStructure) else (A.indptr, A.indices)
    return "csr" if len(cols) <= _SMALL else choose_format(bk, starts, cols, A.shape).format


def suited(A: Operator, bk: Backend, like: Array | None) -> Operator:
    """A sparse matrix in the format for a library, on the device of `like`.

    Anything else is unchanged, also stencils, which suit every library that has them.
    """
    if not isinstance(A, SparseMatrix) or isinstance(A, Stencil):
        return A
    if isinstance(A, DIA) and A.shape[0] >= _LONG and bk.prefers_diagonals(like):
        return A
    rows: Any = A.to("csr")
    format = suitable_format(bk, rows.structure)
    return A if format == A.format else rows.to(format)
