"""Matrices and vectors from and to files. Whatever is wrong with a file is a UsageError that names it."""

from __future__ import annotations

import gzip
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from .errors import UsageError

_NPY_START = b"\x93NUMPY"
_BYTES_PER_ENTRY = 4  # the shortest line of a coordinate file, "1 1" and its end


def read_matrix(path: Path) -> Any:
    """A square matrix with finite entries: a dense array or a `csr_array`, in single or double precision.

    Raises:
        UsageError: no such file, no such format, malformed, not square, NaN or infinity.
    """
    matrix = _read(path)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UsageError(f"{path}: got an array of shape {matrix.shape}; expected a square matrix.")
    if matrix.shape[0] == 0:
        raise UsageError(f"{path}: the matrix is empty (0 x 0); expected at least one row.")
    return _checked(path, matrix)


def read_any_matrix(path: Path) -> tuple[Any, Any]:
    """A matrix of any shape with finite entries as it is in the file, and made ready as by `read_matrix`.

    Raises:
        UsageError: no such file, no such format, malformed, not two axes, NaN or infinity.
    """
    matrix = _read(path)
    if matrix.ndim != 2:
        raise UsageError(f"{path}: got an array of shape {matrix.shape}; expected a matrix, of two axes.")
    return matrix, _checked(path, matrix)


def read_rhs(path: Path, n: int) -> np.ndarray:
    """A right-hand side `(n,)` or several as columns `(n, k)`, dense.

    Raises:
        UsageError: as for `read_matrix`, or another number of rows than the matrix.
    """
    found = _read(path)
    if found.ndim not in (1, 2) or found.shape[0] != n or 0 in found.shape:
        hint = " Transpose it: one right-hand side per column." if found.shape[1:] == (n,) else ""
        raise UsageError(f"{path}: got the shape {found.shape}; expected ({n},) or ({n}, k) to fit the matrix.{hint}")
    found = _checked(path, found)
    return found.toarray() if sp.issparse(found) else found


def _read(path: Path) -> Any:
    reader = _for_name(path, _READERS, "read")
    if not path.exists():
        raise UsageError(f"{path}: there is no such file.")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; expected a file.")
    try:
        with warnings.catch_warnings(action="ignore"):
            return reader(path)
    except UsageError:
        raise
    except MemoryError as error:
        raise UsageError(f"{path}: does not fit into memory.") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # parsers raise anything, from KeyError to zlib.error; all of it is about this file
        raise UsageError(f"{path}: malformed: {error or type(error).__name__}") from error


def _for_name(path: Path, table: dict[str, Callable[..., Any]], verb: str) -> Callable[..., Any]:
    return table[_check_ending(path, tuple(table), verb)]


def _check_ending(path: Path, endings: Sequence[str], verb: str) -> str:
    for ending in endings:
        if path.name.lower().endswith(ending):
            return ending
    raise UsageError(f"{path}: cannot {verb} this kind of file; expected a name that ends in {', '.join(endings)}.")


def _read_matrix_market(path: Path) -> Any:
    from scipy.io import mminfo, mmread

    _, _, entries, layout, _, _ = mminfo(str(path))
    size = path.stat().st_size
    if layout == "coordinate" and entries * _BYTES_PER_ENTRY > size + 1:
        raise UsageError(
            f"{path}: truncated: {size} bytes cannot hold the {entries} entries that its header announces."
        )
    return mmread(str(path))


def _read_compressed_matrix_market(path: Path) -> Any:
    from scipy.io import mmread

    with gzip.open(path) as stream:
        return mmread(stream)


def _read_npy(path: Path) -> Any:
    with path.open("rb") as stream:
        start = stream.read(len(_NPY_START))
    if start != _NPY_START:  # np.load would take it for a pickle, or for an archive
        raise UsageError(f"{path}: is no .npy file (of numpy.save).")
    return np.load(path, allow_pickle=False)


def _read_npz(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        raise UsageError(f"{path}: is no .npz archive (of numpy.savez or scipy.sparse.save_npz).")
    with np.load(path, allow_pickle=False) as archive:
        names = archive.files
        if "format" not in names and len(names) == 1:
            return archive[names[0]]
    if "format" not in names or "shape" not in names:
        found = f"{len(names)} arrays ({', '.join(names[:5])})" if names else "no array"
        raise UsageError(f"{path}: holds {found}; expected one array, or a matrix of scipy.sparse.save_npz.")
    return sp.load_npz(path)


_READERS: dict[str, Callable[..., Any]] = {
    ".mtx": _read_matrix_market,
    ".mtx.gz": _read_compressed_matrix_market,
    ".npz": _read_npz,
    ".npy": _read_npy,
}
MATRIX_NAMES = tuple(_READERS)


def _checked(path: Path, array: Any) -> Any:
    """Indices inside the matrix, numbers that are finite, a dtype to compute with."""
    if array.dtype.kind not in "biufc":
        raise UsageError(f"{path}: holds values of type {array.dtype}; expected real or complex numbers.")
    dtype = _dtype(array.dtype)
    array = _as_csr(path, array, dtype) if sp.issparse(array) else array.astype(dtype)
    values = array.data if sp.issparse(array) else array
    bad = np.count_nonzero(~np.isfinite(values))
    if bad:
        kind = "NaN" if np.isnan(values).any() else "infinity (or beyond the largest number)"
        raise UsageError(f"{path}: {bad} of {values.size} entries are not finite: {kind}. Remove them.")
    return array


def _as_csr(path: Path, matrix: Any, dtype: np.dtype) -> Any:
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            matrix.check_format(full_check=True)  # indices outside the matrix would be read from foreign memory
        return sp.csr_array(matrix.astype(dtype))
    except (ValueError, IndexError, OverflowError) as error:
        raise UsageError(f"{path}: malformed sparse matrix: {error}") from error
    except MemoryError as error:
        raise UsageError(f"{path}: a matrix of shape {matrix.shape} does not fit into memory.") from error


def _dtype(dtype: np.dtype) -> np.dtype:
    """Single precision stays, half becomes single, all else double."""
    single = dtype.kind in "fc" and np.finfo(dtype).bits <= 32
    if dtype.kind == "c":
        return np.dtype(np.complex64 if single else np.complex128)
    return np.dtype(np.float32 if single else np.float64)


def check_output(path: Path, endings: Sequence[str]) -> None:
    """See before the work whether its result can be written.

    Raises:
        UsageError: another ending than those that can be written, or no such folder.
    """
    _check_ending(path, endings, "write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written: there is no folder {path.parent}.")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; expected the name of a file.")


def write(path: Path, x: np.ndarray) -> None:
    """Write a vector, or several as columns.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        _for_name(path, _WRITERS, "write")(path, x)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}.") from error


def _write_npy(path: Path, x: np.ndarray) -> None:
    with path.open("wb") as stream:
        np.save(stream, x)


def _write_npz(path: Path, x: np.ndarray) -> None:
    with path.open("wb") as stream:
        np.savez(stream, x=x)


def _write_matrix_market(path: Path, x: np.ndarray) -> None:
    from scipy.io import mmwrite

    with path.open("wb") as stream:
        mmwrite(stream, x.reshape(len(x), -1), symmetry="general", precision=np.finfo(x.dtype).precision + 2)


_WRITERS: dict[str, Callable[..., Any]] = {".npy": _write_npy, ".npz": _write_npz, ".mtx": _write_matrix_market}
VECTOR_NAMES = tuple(_WRITERS)
