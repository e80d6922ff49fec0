"""Files of the command line: matrices and right-hand sides that it reads, vectors that it writes.

Each defect of an input is a UsageError that names the file.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp

from ..sparse.analysis.canonical import canonical
from ..sparse.files.reader import (
    ENDINGS,
    Contents,
    accepted,
    check_extent,
    check_finite,
    form_of_content,
    form_of_file,
    read_contents,
    split_part,
)
from .terminal import SolveFailed, UsageError

STDIN = Path("-")
_REAL: dict[str, np.dtype[Any]] = {"single": np.dtype(np.float32), "double": np.dtype(np.float64)}  # of --dtype
MATRIX_NAMES = (*ENDINGS, "compressed .gz, .bz2")


class MatrixFile(NamedTuple):
    """The content of a file with a matrix, whose entries are finite.

    Attributes:
        stored: the matrix as it is in the file.
        A: a dense array or a `csr_array` in single or double precision.
        source: where it comes from, in words.
        rhs: the right-hand side in the same file, for `_accepted_rhs`, or None.
        rhs_source: where b comes from.
    """

    stored: Any
    A: Any
    source: str
    rhs: Any = None
    rhs_source: str = ""


@dataclass(frozen=True)
class SystemRead:
    """A x = b on the host.

    Attributes:
        A: `(m, n)`, a dense array or a `csr_array`, of the same dtype as `b` (or its real counterpart).
        b: `(m,)` or `(m, k)`, one right-hand side per column.
        source: where A comes from, in words.
        rhs: where b comes from, in words.
        known: the solution, if it is known.
    """

    A: Any
    b: np.ndarray
    source: str
    rhs: str
    known: np.ndarray | None

    @property
    def rows(self) -> np.ndarray:
        """b for `linear_solve`: `(m,)`, or `(k, m)` with one right-hand side per row."""
        return self.b if self.b.ndim == 1 else np.ascontiguousarray(self.b.T)


def read_system(options: argparse.Namespace, square: bool) -> SystemRead:
    """Read A, if so told a square one, and b from files or an example; without b it is A x for a known x."""
    _, A, source, b, b_source = _read_matrix(options)
    if 0 in A.shape:
        raise UsageError(f"{source}: the matrix is empty, {A.shape[0]} x {A.shape[1]}; expected at least one row.")
    if square and A.shape[0] != A.shape[1]:
        raise UsageError(
            f"{source}: got an array of shape {A.shape}; expected a square matrix. For least squares: --method LSMR."
        )
    if options.rhs is not None:
        b, b_source = _read_file(options.rhs, wants_rhs=True).matrix, name_of(options.rhs)
    b = None if b is None else _accepted_rhs(b, A.shape[0], b_source)
    widest = np.result_type(*(np.finfo(a.dtype).dtype for a in (A, b) if a is not None))
    dtype = widest if options.dtype is None else _REAL[options.dtype]
    A = _cast(A, dtype, source)
    if b is not None:
        return SystemRead(A, _cast(b, dtype, b_source), source, b_source, None)
    # Not the vector of ones: many real matrices (pure Neumann problems) map it to zero.
    known = np.sin(np.arange(1, A.shape[1] + 1)).astype(dtype)
    if A.shape[0] < A.shape[1]:
        return SystemRead(A, A @ known, source, "none given; b = A x for x_i = sin(i), which is one x of many", None)
    return SystemRead(A, A @ known, source, "none given; b = A x for the known x_i = sin(i)", known)


def read_canonical(options: argparse.Namespace) -> MatrixFile:
    """Read a matrix of any shape, as a `csr_array` without duplicates and zeros, in the precision of --dtype."""
    file = _read_matrix(options)
    try:
        A = canonical(file.A)
    except MemoryError as error:
        raise UsageError(f"{file.source}: does not fit into memory.") from error
    wanted = getattr(options, "dtype", None)
    return file._replace(A=A if wanted is None else _cast(A, _REAL[wanted], file.source))


def _read_matrix(options: argparse.Namespace) -> MatrixFile:
    if options.example is not None:
        from pyamg.gallery import load_example

        A = sp.csr_array(load_example(options.example)["A"])
        return MatrixFile(A, A, f"example {options.example} (pyamg)")
    path = options.matrix
    name, contents = name_of(path), _read_file(path, wants_rhs=False)
    if contents.matrix.ndim != 2:
        raise UsageError(f"{name}: got an array of shape {contents.matrix.shape}; expected a matrix, of two axes.")
    try:
        stored = accepted(contents.matrix, name)
        A = _in_float(stored, name)
    except (ValueError, MemoryError) as error:
        raise UsageError(_defect(error, name)) from error
    source = f"{contents.part} in {name}" if contents.part and split_part(path)[1] is None else name
    return MatrixFile(stored, A, source, contents.rhs, f"{contents.rhs_part} in {name}")


def _accepted_rhs(b: Any, n: int, name: str) -> np.ndarray:
    """A right-hand side `(n,)`, `(n, 1)` or `(1, n)`, or several as columns `(n, k)`, dense."""
    if b.shape == (1, n) and n > 1:
        b = b.T  # a row is unambiguous here
    if b.ndim not in (1, 2) or b.shape[0] != n or 0 in b.shape:
        hint = " Transpose it: one right-hand side per column." if b.shape[1:] == (n,) else ""
        raise UsageError(f"{name}: got the shape {b.shape}; expected ({n},) or ({n}, k) to fit the matrix.{hint}")
    try:
        if sp.issparse(b):
            check_extent(b.shape[1], b.shape, b.nnz, name)
        b = _in_float(accepted(b, name), name)
        return b.toarray() if sp.issparse(b) else b
    except (ValueError, MemoryError) as error:
        raise UsageError(_defect(error, name)) from error


def _read_file(path: Path, wants_rhs: bool) -> Contents:
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
        raise UsageError(_defect(error, name)) from error


def name_of(path: Path) -> str:
    """The name of a file in reports and messages."""
    return "standard input" if path == STDIN else str(path)


def _defect(error: Exception, name: str) -> str:
    text = str(error)
    return text if text.startswith(f"{name}: ") else f"{name}: does not fit into memory."


def _in_float(array: Any, name: str) -> Any:
    """Single precision stays, half becomes single, all else double."""
    single = array.dtype.kind in "fc" and np.finfo(array.dtype).bits <= 32
    kinds = {"c": (np.complex64, np.complex128)}
    dtype = np.dtype(kinds.get(array.dtype.kind, (np.float32, np.float64))[0 if single else 1])
    with np.errstate(over="ignore"):
        cast = sp.csr_array(array.astype(dtype)) if sp.issparse(array) else array.astype(dtype)
    check_finite(cast, name)  # a wider precision may hold more
    return cast


def _cast(array: Any, real: np.dtype, name: str) -> Any:
    dtype = np.result_type(real, np.complex64) if array.dtype.kind == "c" else real
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if not np.isfinite(cast.data if sp.issparse(cast) else cast).all():
        raise UsageError(f"{name}: holds numbers that are too large for {dtype}; leave out --dtype single.")
    return cast


# ---- output: checked before the work, written after it


def check_output(path: Path, endings: Sequence[str], inputs: Sequence[Path | None]) -> None:
    """Raise UsageError unless a file with one of these endings can be written here and overwrites no input."""
    if not path.name.lower().endswith(tuple(endings)):
        expected = f"expected a name that ends in {', '.join(endings)}"
        raise UsageError(f"{path}: cannot write this kind of file; {expected}.")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; expected the name of a file.")
    for source in inputs:
        if source is not None and _is_same(path, source):
            raise UsageError(f"{path}: is the same file as {name_of(source)}, which is read. Give another name.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{path}: cannot be written: no permission.")


def _is_same(path: Path, source: Path) -> bool:
    try:
        file = split_part(source)[0]  # as in `A.mat:K`
        other = os.fstat(sys.stdin.fileno()) if source == STDIN else file.stat()
        return os.path.samestat(path.stat(), other)
    except (OSError, ValueError, AttributeError):  # one of them is not a file, or does not exist
        return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context of writing a file; raises SolveFailed where that fails."""
    try:
        yield
    except OSError as error:
        raise SolveFailed(f"{path}: cannot be written: {error.strerror or error}.") from error


def form_of(path: Path, form: str | None) -> str:
    """The form of x in this file: the given one, or that of its name; text on standard output."""
    named = next((form for form in FORMS if path.name.lower().endswith(f".{form}")), None)
    if form is not None and named not in (None, form):
        raise UsageError(f"{path}: is to be written as {form} (--output-format), and its name says {named}.")
    return form or named or "txt"


def as_bytes(form: str, x: np.ndarray) -> bytes:
    """The content of a file with a vector, or with several as columns."""
    stream = io.BytesIO()
    _WRITERS[form](stream, x)
    return stream.getvalue()


def _write_text(stream: BinaryIO, x: np.ndarray, delimiter: str = " ") -> None:
    """With as few digits as restore the numbers; complex ones as in Python, without brackets."""
    for row in x.reshape(len(x), -1):
        stream.write(delimiter.join(str(number).strip("()") for number in row).encode() + b"\n")


_WRITERS: dict[str, Callable[..., Any]] = {
    "npy": lambda stream, x: np.save(stream, x),
    "npz": lambda stream, x: np.savez(stream, x=x),
    "mtx": lambda stream, x: scipy.io.mmwrite(
        stream, x.reshape(len(x), -1), symmetry="general", precision=np.finfo(x.dtype).precision + 2
    ),
    "mat": lambda stream, x: scipy.io.savemat(stream, {"x": x}, oned_as="column"),
    "txt": _write_text,
    "csv": lambda stream, x: _write_text(stream, x, ","),
}
FORMS = tuple(_WRITERS)
VECTOR_NAMES = tuple(f".{form}" for form in FORMS)
TRACE_NAME = ".json"
