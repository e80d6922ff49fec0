"""Input of matrices and vectors from files and standard input; each defect is a UsageError that names the file."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..sparse.files.contents import Contents
from ..sparse.files.reader import (
    ENDINGS,
    accepted,
    check_extent,
    check_finite,
    form_of_content,
    form_of_file,
    read_contents,
    split_part,
)
from .errors import UsageError

STDIN = Path("-")
MATRIX_NAMES = (*ENDINGS, "compressed .gz, .bz2")


def file_of(path: Path) -> Path:
    """The file in which something is meant, as in `A.mat:K`."""
    return split_part(path)[0]


def name_of(path: Path) -> str:
    """What to call it in a report or a message."""
    return "standard input" if path == STDIN else str(path)


class MatrixFile(NamedTuple):
    """What a file with a matrix holds; the entries of the matrix are finite.

    Attributes:
        stored: the matrix as it is in the file.
        A: a dense array or a `csr_array` in single or double precision.
        source: where it comes from, in words.
        rhs: the right-hand side beside it, for `accepted_rhs`, or None.
        rhs_source: where that comes from.
    """

    stored: Any
    A: Any
    source: str
    rhs: Any
    rhs_source: str


def read_matrix(path: Path) -> MatrixFile:
    """A matrix of any shape.

    Raises:
        UsageError: no such file, no such format, malformed, not two axes, NaN or infinity.
    """
    name = name_of(path)
    contents = _read(path, wants_rhs=False)
    if contents.matrix.ndim != 2:
        raise UsageError(f"{name}: got an array of shape {contents.matrix.shape}; expected a matrix, of two axes.")
    try:
        stored = accepted(contents.matrix, name)
        A = _ready(stored, name)
    except (ValueError, MemoryError) as error:
        raise UsageError(_text(error, name)) from error
    rhs_source = f"{contents.rhs_part} in {name}"
    chosen = contents.part and split_part(path)[1] is None
    return MatrixFile(stored, A, f"{contents.part} in {name}" if chosen else name, contents.rhs, rhs_source)


def read_rhs(path: Path, n: int) -> np.ndarray:
    """A right-hand side `(n,)`, `(n, 1)` or `(1, n)`, or several as columns `(n, k)`, dense.

    Raises:
        UsageError: as for `read_matrix`, or another number of rows than the matrix.
    """
    return accepted_rhs(_read(path, wants_rhs=True).matrix, n, name_of(path))


def accepted_rhs(found: Any, n: int, name: str) -> np.ndarray:
    """What a file holds as a right-hand side.

    Raises:
        UsageError: as for `read_rhs`.
    """
    if found.shape == (1, n) and n > 1:
        found = found.T  # one row can be nothing else
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


def _read(path: Path, wants_rhs: bool) -> Contents:
    name, (source, part) = name_of(path), split_part(path)
    stream: Any = source
    if path == STDIN:
        content = sys.stdin.buffer.read()
        stream, form = io.BytesIO(content), form_of_content(content)
        expected = "a Matrix Market, .npz, .npy, MATLAB or Boeing file, rows of numbers, or an archive of these"
    else:
        form = form_of_file(source)
        expected = f"the content of such a file, or a name that ends in {', '.join(MATRIX_NAMES)}"
    if form is None:
        raise UsageError(f"{name}: cannot read this kind of file; expected {expected}.")
    if stream is source and not source.exists():
        raise UsageError(f"{source}: there is no such file.")
    if stream is source and source.is_dir():
        raise UsageError(f"{source}: is a folder; expected a file.")
    try:
        return read_contents(stream, form, name, part, wants_rhs)
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
