"""Matrix file parsers; all sizes and indices of a file are validated before they are used."""

from __future__ import annotations

import gzip
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from ..formats.entries.checked import checked_scipy
from .archive import HEADER, HEADERS, check_archive
from .market import read_market

ENDINGS = {".mtx": "mtx", ".mtx.gz": "mtx.gz", ".npz": "npz", ".npy": "npy"}
_STARTS = {b"%%MatrixMarket": "mtx", b"\x1f\x8b": "mtx.gz", b"PK": "npz", b"\x93NUMPY": "npy"}
_MOST_PACKED = 1032  # bytes that deflate makes of one
_ALWAYS = 2**24  # rows or columns that any file may ask for
_PER_ENTRY = 16  # and, beyond these, for each of its entries


def form_of_name(name: str) -> str | None:
    """File form by name: "mtx", "mtx.gz", "npz", "npy", or None."""
    return next((form for ending, form in ENDINGS.items() if name.lower().endswith(ending)), None)


def form_of_content(content: bytes) -> str | None:
    """File form by the first bytes of a stream that has no name."""
    return next((form for start, form in _STARTS.items() if content.startswith(start)), None)


def read_matrix_file(source: Path | BinaryIO, form: str, name: str) -> Any:
    """Read a dense array, or a sparse matrix of SciPy that is not validated yet (see `accepted`).

    Args:
        source: the path, or a stream that can be read twice.
        form: of `form_of_name`.
        name: what to call it in a message.

    Raises:
        ValueError: it is malformed, or holds something else; one line, which names it.
        OSError: it cannot be read.
        MemoryError: it does not fit.
    """
    if isinstance(source, Path):
        source.open("rb").close()
    try:
        with warnings.catch_warnings(action="ignore"):
            return _READERS[form](source, name)
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # parsers raise anything, from KeyError to zlib.error; all of it is about this file
        if (isinstance(error, OSError) and error.errno) or str(error).startswith(f"{name}: "):
            raise
        raise ValueError(f"{name}: malformed: {error or type(error).__name__}") from error


def accepted(found: Any, name: str) -> Any:
    """Validate a matrix of `read_matrix_file`; its entries are unchanged.

    Raises:
        ValueError: no numbers, NaN or infinity, indices outside of the matrix, or far more rows or columns than
            entries.

    Cost: a few passes over the entries.
    """
    if found.dtype.kind not in "biufc":
        raise ValueError(f"{name}: holds values of type {found.dtype}; expected real or complex numbers.")
    if sp.issparse(found):
        check_extent(max(found.shape), found.shape, len(found.data), name)
        try:
            found = checked_scipy(found, name)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: malformed sparse matrix: {error}") from error
    check_finite(found, name)
    return found


def check_extent(lines: int, shape: tuple[int, ...], entries: int, name: str) -> None:
    """Refuse a header that promises far more than the file holds, before memory is taken for it.

    Raises:
        ValueError: `lines` are more than 16 million, and more than 16 per entry.
    """
    if lines > max(_ALWAYS, _PER_ENTRY * entries):
        size = " x ".join(map(str, shape))
        raise ValueError(
            f"{name}: promises a matrix of {size} for {entries} entries, which would take {8 * lines / 1e9:.3g} GB of "
            f"memory; expected at most {_ALWAYS} rows and columns, or {_PER_ENTRY} per entry."
        )


def check_finite(array: Any, name: str) -> None:
    """Refuse NaN and infinity: no solve of such a system ends.

    Raises:
        ValueError: there are such.
    """
    values = array.data if sp.issparse(array) else array
    if values.dtype.kind not in "fc":
        return
    bad = np.count_nonzero(~np.isfinite(values))
    if bad:
        kind = "NaN" if np.isnan(values).any() else "infinity (or beyond the largest number)"
        raise ValueError(f"{name}: {bad} of {values.size} entries are not finite: {kind}. Remove them.")


def _read_market(source: Path | BinaryIO, name: str) -> Any:
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return read_market(stream, source.stat().st_size, name)
    return read_market(source, _size(source), name)


def _read_packed_market(source: Path | BinaryIO, name: str) -> Any:
    packed = source.stat().st_size if isinstance(source, Path) else _size(source)
    with gzip.open(source) as stream:
        return read_market(stream, _MOST_PACKED * packed, name)  # type: ignore[arg-type]


def _size(stream: BinaryIO) -> int:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def _read_npy(source: Path | BinaryIO, name: str) -> Any:
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return _read_npy(stream, name)
    if form_of_content(source.read(6)) != "npy":  # np.load would take it for a pickle, or for an archive
        raise ValueError(f"{name}: is no .npy file (of numpy.save).")
    source.seek(0)
    return np.load(source, allow_pickle=False)


def _read_npz(source: Path | BinaryIO, name: str) -> Any:
    if not zipfile.is_zipfile(source):
        raise ValueError(f"{name}: is no .npz archive (of numpy.savez or scipy.sparse.save_npz).")
    if isinstance(source, Path):
        with source.open("rb") as stream:
            check_archive(stream, name)
    else:
        check_archive(source, name)
    with np.load(source, allow_pickle=False) as archive:
        names = archive.files
        _check_integers(archive, name)
        if "format" not in names and len(names) == 1:
            return archive[names[0]]
    if HEADER in names:
        raise ValueError(f"{name}: holds a preconditioner; read it by krylix.load_preconditioner.")
    if "format" not in names or "shape" not in names:
        found = f"{len(names)} arrays ({', '.join(names[:5])})" if names else "no array"
        raise ValueError(f"{name}: holds {found}; expected one array, or a matrix of scipy.sparse.save_npz.")
    return sp.load_npz(source)


def _check_integers(archive: Any, name: str) -> None:
    """Raise ValueError for indices that are no integers, which SciPy would convert."""
    for key in {"indices", "indptr", "row", "col", "offsets"} & set(archive.files):
        with archive.zip.open(f"{key}.npy") as stream:
            _, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        if dtype.kind not in "iu":
            raise ValueError(f"{name}: malformed: {key} holds {dtype}; expected integers.")


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "mtx": _read_market,
    "mtx.gz": _read_packed_market,
    "npz": _read_npz,
    "npy": _read_npy,
}
