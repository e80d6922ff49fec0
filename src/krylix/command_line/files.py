"""Input of matrices and vectors from files and standard input; each defect is a UsageError that names the file."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..sparse.files.reader import (
    ENDINGS,
    accepted,
    check_extent,
    check_finite,
    form_of_content,
    form_of_name,
    read_matrix_file,
)
from .errors import UsageError

STDIN = Path("-")
MATRIX_NAMES = tuple(ENDINGS)


def name_of(path: Path) -> str:
    """What to call it in a report or a message."""
    return "standard input" if path == STDIN else str(path)


def read_matrix(path: Path) -> tuple[Any, Any]:
    """A matrix of any shape with finite entries as it is in the file, and ready to compute with.

    The second is a dense array or a `csr_array` in single or double precision.

    Raises:
        UsageError: no such file, no such format, malformed, not two axes, NaN or infinity.
    """
    name = name_of(path)
    found = _read(path)
    if found.ndim != 2:
        raise UsageError(f"{name}: got an array of shape {found.shape}; expected a matrix, of two axes.")
    try:
        stored = accepted(found, name)
        return stored, _ready(stored, name)
    except (ValueError, MemoryError) as error:
        raise UsageError(_text(error, name)) from error


def read_rhs(path: Path, n: int) -> np.ndarray:
    """A right-hand side `(n,)` or several as columns `(n, k)`, dense.

    Raises:
        UsageError: as for `read_matrix`, or another number of rows than the matrix.
    """
    name, found = name_of(path), _read(path)
    if found.ndim not in (1, 2) or found.shape[0] != n or 0 in found.shape:
        hint = " Transpose it: one right-hand side per column." if found.shape[1:] == (n,) else ""
        raise UsageError(f"{name}: got the shape {found.shape}; expected ({n},) or ({n}, k) to fit the matrix.{hint}")
    try:
        if sp.issparse(found):
            check_extent(found.shape[1], found.shape, found.nnz, name)
        ready = _ready(accepted(found, name), name)
        return ready.toarray() if sp.issparse(ready) else ready
    except (ValueError, MemoryError) as error:
        raise UsageError(_text(error, name)) from error


def _read(path: Path) -> Any:
    name, source = name_of(path), path
    if path == STDIN:
        content = sys.stdin.buffer.read()
        source, form = io.BytesIO(content), form_of_content(content)  # type: ignore[assignment]
        expected = "a Matrix Market, .npz or .npy file, or a Matrix Market file compressed by gzip"
    else:
        form = form_of_name(path.name)
        expected = f"a name that ends in {', '.join(MATRIX_NAMES)}"
    if form is None:
        raise UsageError(f"{name}: cannot read this kind of file; expected {expected}.")
    if source is path and not path.exists():
        raise UsageError(f"{path}: there is no such file.")
    if source is path and path.is_dir():
        raise UsageError(f"{path}: is a folder; expected a file.")
    try:
        return read_matrix_file(source, form, name)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error}.") from error
    except (ValueError, MemoryError) as error:
        raise UsageError(_text(error, name)) from error


def _text(error: Exception, name: str) -> str:
    text = str(error)
    return text if text.startswith(f"{name}: ") else f"{name}: does not fit into memory."


def _ready(array: Any, name: str) -> Any:
    """In a dtype to compute with: single precision stays, half becomes single, all else double."""
    single = array.dtype.kind in "fc" and np.finfo(array.dtype).bits <= 32
    kinds = {"c": (np.complex64, np.complex128)}
    dtype = np.dtype(kinds.get(array.dtype.kind, (np.float32, np.float64))[0 if single else 1])
    with np.errstate(over="ignore"):
        found = sp.csr_array(array.astype(dtype)) if sp.issparse(array) else array.astype(dtype)
    check_finite(found, name)  # a wider precision may hold more
    return found
