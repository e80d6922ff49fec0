"""Matrix file parsers; all sizes and indices of a file are validated before they are used."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from ..formats.entries.checked import checked_scipy
from . import boeing, collection, matlab, packing, text
from .archive import HEADER, HEADERS, check_archive
from .contents import Contents
from .market import BANNER, BYTE_ORDER_MARK, read_market

ENDINGS = {
    ".mtx": "mtx", ".npz": "npz", ".npy": "npy", ".mat": "mat", ".rb": "boeing", ".hb": "boeing", ".rua": "boeing",
    ".rsa": "boeing", ".txt": "text", ".csv": "text", ".tar": "tar", ".tgz": "tar.gz",
}  # fmt: skip
"""Of names of files -> their form, which compressed files (.gz, .bz2) have with a dot and the packing."""
_PACKABLE = ("mtx", "mat", "boeing", "text", "tar")
_STARTS = {b"PK": "npz", b"\x93NUMPY": "npy", **dict.fromkeys(matlab.STARTS, "mat")}
_PART = re.compile(r"(.+\.(?:mat(?:\.gz|\.bz2)?|tar(?:\.gz|\.bz2)?|tgz)):([^:]+)", re.IGNORECASE)
_ALWAYS = 2**24  # rows or columns that any file may ask for
_PER_ENTRY = 16  # and, beyond these, for each of its entries


def form_of_name(name: str) -> str | None:
    """File form by name: "mtx", "mtx.gz", "npz", "npy", "mat", "boeing", "text", "tar.gz" and so on, or None."""
    path, packed = Path(name.lower()), ""
    if path.suffix[1:] in packing.PACKINGS:
        path, packed = path.with_suffix(""), path.suffix
    base = ENDINGS.get(path.suffix)
    return None if base is None or (packed and base not in _PACKABLE) else base + packed


def form_of_file(path: Path) -> str | None:
    """File form by its first bytes where they are a signature, else by its name."""
    try:
        with path.open("rb") as stream:
            form = form_of_content(stream.read(2**16), None)
    except OSError:
        form = None
    named = form_of_name(path.name)
    return named if form is None or (form.startswith("text") and named is not None) else form


def form_of_content(content: bytes, otherwise: str | None = "mtx") -> str | None:
    """File form by its first bytes; `otherwise` is that of a compressed stream whose content tells none."""
    packed = next((form for start, form in packing.STARTS.items() if content.startswith(start)), None)
    if packed is None:
        return _form_of_bytes(content)
    try:
        start = packing.opened(io.BytesIO(content), packed).read(2**16)
    except Exception:  # zlib.error, EOFError, OSError: the reader of this form will say so
        start = b""
    base = _form_of_bytes(start) or otherwise
    return f"{base}.{packed}" if base in _PACKABLE else None


def _form_of_bytes(content: bytes) -> str | None:
    content = content.removeprefix(BYTE_ORDER_MARK)
    known = next((form for start, form in _STARTS.items() if content.startswith(start)), None)
    known = "mtx" if content[: len(BANNER)].lower() == BANNER.lower() else known
    if known is not None:
        return known
    if collection.is_archive(content):
        return "tar"
    return "boeing" if boeing.is_boeing(content) else "text" if text.is_numbers(content) else None


def split_part(path: Path) -> tuple[Path, str | None]:
    """A file, and what is meant in it: `K` of `A.mat:K`, a member of an archive. Files are called as they are called.

    >>> split_part(Path("A.mat:K")), split_part(Path("A.mtx"))
    ((PosixPath('A.mat'), 'K'), (PosixPath('A.mtx'), None))
    """
    found = _PART.fullmatch(str(path))
    return (Path(found[1]), found[2]) if found is not None and not path.exists() else (path, None)


def read_matrix_file(source: Path | BinaryIO, form: str, name: str) -> Any:
    """Read a dense array, or a sparse matrix of SciPy that is not validated yet (see `accepted`).

    Args, Raises: as `read_contents`.
    """
    return read_contents(source, form, name).matrix


def read_contents(
    source: Path | BinaryIO, form: str, name: str, part: str | None = None, wants_rhs: bool = False
) -> Contents:
    """Read a matrix that is not validated yet (see `accepted`), and the right-hand side that its file has beside it.

    Args:
        source: the path, or a stream that can be read twice.
        form: of `form_of_file`.
        name: what to call it in a message.
        part: the variable or member that is meant, of a form that has several.
        wants_rhs: a right-hand side is wanted, not a matrix.

    Raises:
        ValueError: it is malformed, or holds something else; one line, which names it.
        OSError: it cannot be read.
        MemoryError: it does not fit.
    """
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return read_contents(stream, form, name, part, wants_rhs)
    base, _, packed = form.partition(".")
    try:
        with warnings.catch_warnings(action="ignore"):
            if base in _READERS:
                return Contents(_READERS[base](source, packed or None, name))
            content = packing.content_of(source, packed or None, name)
            if base == "boeing":
                A, b = boeing.read_boeing(content.removeprefix(BYTE_ORDER_MARK), name)
                return Contents(b if wants_rhs and b is not None else A, "", b, "right-hand side")
            if base == "mat":
                return matlab.read_matlab(content, part, wants_rhs, name)
            return collection.read_collection(content, part, wants_rhs, name, _is_member, _read_member)
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


def _read_market(source: BinaryIO, packed: str | None, name: str) -> Any:
    most = packing.MOST[packed] * packing.size_of(source)
    return read_market(packing.opened(source, packed), most, name)


def _read_text(source: BinaryIO, packed: str | None, name: str) -> Any:
    return text.read_text(packing.content_of(source, packed, name), name)


def _is_member(name: str) -> bool:
    form = form_of_name(name)
    return form is not None and form.partition(".")[0] != "tar"


def _read_member(content: bytes, member: str, name: str) -> Any:
    return read_contents(io.BytesIO(content), str(form_of_name(member)), name).matrix


def _read_npy(source: BinaryIO, packed: str | None, name: str) -> Any:
    if _form_of_bytes(source.read(6)) != "npy":  # np.load would take it for a pickle, or for an archive
        raise ValueError(f"{name}: is no .npy file (of numpy.save).")
    source.seek(0)
    return np.load(source, allow_pickle=False)


def _read_npz(source: BinaryIO, packed: str | None, name: str) -> Any:
    if not zipfile.is_zipfile(source):
        raise ValueError(f"{name}: is no .npz archive (of numpy.savez or scipy.sparse.save_npz).")
    check_archive(source, name)
    source.seek(0)
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
    source.seek(0)
    return sp.load_npz(source)


def _check_integers(archive: Any, name: str) -> None:
    """Raise ValueError for indices that are no integers, which SciPy would convert."""
    for key in {"indices", "indptr", "row", "col", "offsets"} & set(archive.files):
        with archive.zip.open(f"{key}.npy") as stream:
            _, _, dtype = HEADERS[np.lib.format.read_magic(stream)](stream)
        if dtype.kind not in "iu":
            raise ValueError(f"{name}: malformed: {key} holds {dtype}; expected integers.")


_READERS: dict[str, Callable[[BinaryIO, str | None, str], Any]] = {
    "mtx": _read_market,
    "npz": _read_npz,
    "npy": _read_npy,
    "text": _read_text,
}
