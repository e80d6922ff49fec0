"""Matrices in files: SciPy's .npz, and Matrix Market."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ....backends import Array, choose_backend
from ..matrix import Matrix
from ..sparse_matrix import SparseMatrix
from .checked import checked
from .foreign import from_scipy

_MARKET = (".mtx", ".mtx.gz")


def save(path: Any, matrix: Any) -> None:
    """Write a matrix with known values to a file that other programs read: `.npz` of SciPy or `.mtx` (Matrix Market).

    Args:
        path: of the file; its ending tells the form. `.mtx.gz` is compressed.
        matrix: of krylix or SciPy.

    Raises:
        ValueError: the path has another ending.
        UnsupportedOperation: the values are not known yet (inside a compiled function).
    """
    form = _form(path)
    A = matrix.to_scipy() if isinstance(matrix, Matrix) else sp.csr_array(checked(matrix, "the matrix"))
    if form == "npz":
        sp.save_npz(path, A)
        return
    digits = np.finfo(A.dtype).precision + 3 if A.dtype.kind in "fc" else None  # enough to read back the same numbers
    opened = gzip.open if str(path).lower().endswith(".gz") else open
    with opened(path, "wb") as file:
        scipy.io.mmwrite(file, A, precision=digits)


def load(path: Any, *, format: str | None = None, dtype: Any = None, like: Array | None = None) -> SparseMatrix:
    """Read a matrix that `save`, SciPy or another program wrote.

    Args:
        path: of the file, ending with `.npz`, `.mtx` or `.mtx.gz`.
        format: of the result; None: what suits.
        dtype: of the values; None: that of the file, or double precision for integers.
        like: an array of the library, and on the device, that the matrix is for; None: the default backend's.

    Raises:
        ValueError: the path has another ending.
    """
    A = sp.load_npz(path) if _form(path) == "npz" else scipy.io.mmread(path)
    if not sp.issparse(A):
        A = sp.csr_array(A)
    bk = choose_backend(like)
    return from_scipy(bk, A, dtype, like, format=format)


def _form(path: Any) -> str:
    name = Path(path).name.lower()
    if name.endswith(_MARKET):
        return "mtx"
    if name.endswith(".npz"):
        return "npz"
    raise ValueError(f"The file {str(path)!r} was given; expected a name that ends with .npz, .mtx or .mtx.gz.")
