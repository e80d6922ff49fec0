"""Matrices in files of SciPy and of other programs; all sizes and indices are validated before they are used."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp

from ...backends import Array, choose_backend
from ..formats.entries.checked import checked_scipy
from ..formats.making.foreign import from_scipy
from ..formats.matrix import Matrix
from ..formats.sparse_matrix import SparseMatrix
from . import market, matlab, packed
from .market import BANNER, BYTE_ORDER_MARK

ENDINGS = {
    ".mtx": "mtx", ".npz": "npz", ".npy": "npy", ".mat": "mat", ".rb": "boeing", ".hb": "boeing", ".rua": "boeing",
    ".rsa": "boeing", ".txt": "text", ".csv": "text", ".tar": "tar", ".tgz": "tar.gz",
}  # fmt: skip
"""Of names of files -> their form, which compressed files (.gz, .bz2) have with a dot and the packing."""
_READ = tuple(ending for ending, form in ENDINGS.items() if form != "npy")
_PACKABLE = ("mtx", "mat", "boeing", "text", "tar")
_STARTS = {b"PK": "npz", b"\x93NUMPY": "npy", **dict.fromkeys(matlab.STARTS, "mat")}
_PART = re.compile(r"(.+\.(?:mat(?:\.gz|\.bz2)?|tar(?:\.gz|\.bz2)?|tgz)):([^:]+)", re.IGNORECASE)
_ALWAYS = 2**24  # rows or columns that any file may ask for
_PER_ENTRY = 16  # and, beyond these, for each of its entries
HEADER = "header"  # the member of an archive that holds the description of an operator


# --- saving and loading ---


def save(path: Any, matrix: Any) -> None:
    """Write a matrix with known values to a file that other programs read: `.npz` of SciPy or `.mtx` (Matrix Market).

    Args:
        path: of the file; its ending tells the form. `.mtx.gz` is compressed.
        matrix: of krylix or SciPy.

    Raises:
        ValueError: the path has another ending.
        UnsupportedOperation: the values are not known yet (inside a compiled function).

    Examples:
        >>> import tempfile
        >>> from krylix.sparse import eye, load, save
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(f"{folder}/A.mtx", eye(3))
        ...     A = load(f"{folder}/A.mtx")
        >>> A.shape
        (3, 3)
    """
    form = form_of_name(Path(path).name)
    if form not in ("npz", "mtx", "mtx.gz"):
        raise ValueError(f"The file {str(path)!r} was given; expected a name that ends with .npz, .mtx or .mtx.gz.")
    A = matrix.to_scipy() if isinstance(matrix, Matrix) else sp.csr_array(checked_scipy(matrix, "the matrix"))
    if form == "npz":
        compressed = sum(part.nbytes for part in vars(A).values() if isinstance(part, np.ndarray)) <= packed.UNPACKED
        sp.save_npz(path, A, compressed=compressed)  # as `load` would not unpack more
        return
    digits = np.finfo(A.dtype).precision + 3 if A.dtype.kind in "fc" else None  # enough to read back the same numbers
    with (gzip.open if form == "mtx.gz" else open)(path, "wb") as file:
        scipy.io.mmwrite(file, A, precision=digits)


def load(path: Any, *, format: str | None = None, dtype: Any = None, like: Array | None = None) -> SparseMatrix:
    """Read a matrix that `save`, SciPy or another program wrote.

    Args:
        path: of the file: of SciPy (`.npz`), Matrix Market (`.mtx`), MATLAB up to version 7 (`.mat`), Harwell-Boeing
            or Rutherford-Boeing (`.rb`, `.hb`, `.rua`, `.cua`, ...), rows of numbers (`.txt`, `.csv`), or an archive of
            the SuiteSparse collection (`.tar`); all but the first also compressed by gzip or bzip2. The content tells
            the form, whatever the name; where it does not, the ending of the name does. `A.mat:K` is the variable K of
            a file that has several, `A.tar.gz:A/K.mtx` a member of an archive.
        format: of the result; None: what suits.
        dtype: of the values; None: that of the file, or double precision for integers.
        like: an array of the library, and on the device, that the matrix is for; None: the default backend's.

    Raises:
        ValueError: neither the content nor the name tells the form; the file is malformed, holds no matrix or NaN or
            infinity, has indices outside of the matrix, or promises far more rows and columns than it has entries; a
            line of a Matrix Market file is not what its header says; a compressed archive unpacks to more than 1 GiB
            and 20 times its size.
        OSError, MemoryError: it cannot be read.

    Examples:
        >>> import tempfile
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.sparse import load
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sp.save_npz(f"{folder}/A.npz", sp.eye_array(3, format="csr"))
        ...     A = load(f"{folder}/A.npz")
        >>> A @ np.ones(3)
        array([1., 1., 1.])
    """
    name = str(path)
    file, part = split_part(Path(path))
    form = form_of_file(file)
    if form is None or form == "npy":
        raise ValueError(f"The file {name!r} was given; expected a name that ends with {', '.join(_READ)}.")
    A = accepted(read_contents(file, form, name, part).matrix, name)
    if A.ndim != 2:
        raise ValueError(f"{name}: holds an array of shape {A.shape}; expected a matrix, of two axes.")
    if not sp.issparse(A):
        A = sp.csr_array(A)
    return from_scipy(choose_backend(like), A, dtype, like, format=format)


# --- forms of files, by their names and their first bytes ---


def form_of_name(name: str) -> str | None:
    """File form by name: "mtx", "mtx.gz", "npz", "npy", "mat", "boeing", "text", "tar.gz" and so on, or None."""
    path, packing = Path(name.lower()), ""
    if path.suffix[1:] in packed.PACKINGS:
        path, packing = path.with_suffix(""), path.suffix
    base = ENDINGS.get(path.suffix)
    return None if base is None or (packing and base not in _PACKABLE) else base + packing


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
    packing = next((form for start, form in packed.STARTS.items() if content.startswith(start)), None)
    if packing is None:
        return _form_of_bytes(content)
    try:
        start = packed.opened(io.BytesIO(content), packing)[0].read(2**16)
    except Exception:  # zlib.error, EOFError, OSError: the reader of this form will say so
        start = b""
    base = _form_of_bytes(start) or otherwise
    return f"{base}.{packing}" if base in _PACKABLE else None


def _form_of_bytes(content: bytes) -> str | None:
    content = content.removeprefix(BYTE_ORDER_MARK)
    if content[: len(BANNER)].lower() == BANNER.lower():
        return "mtx"
    for start, form in _STARTS.items():
        if content.startswith(start):
            return form
    if content[257:262] == b"ustar":
        return "tar"
    return "boeing" if market.is_boeing(content) else "text" if _is_numbers(content) else None


def split_part(path: Path) -> tuple[Path, str | None]:
    """A file, and what is meant in it: `K` of `A.mat:K`, a member of an archive. Files are called as they are called.

    >>> split_part(Path("A.mat:K")), split_part(Path("A.mtx"))
    ((PosixPath('A.mat'), 'K'), (PosixPath('A.mtx'), None))
    """
    found = _PART.fullmatch(str(path))
    return (Path(found[1]), found[2]) if found is not None and not path.exists() else (path, None)


# --- what a file holds ---


class Contents(NamedTuple):
    """Attributes:
    matrix: a dense array, or a sparse matrix of SciPy; of a file that was asked for a right-hand side, that one.
    part: what it is called inside of the file; "" where the file holds nothing else.
    rhs: the right-hand side beside it, or None.
    rhs_part: what that is called.
    """

    matrix: Any
    part: str = ""
    rhs: Any = None
    rhs_part: str = ""


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
    base, _, packing = form.partition(".")
    try:
        with warnings.catch_warnings(action="ignore"):
            if base == "npy" or base == "npz":
                return Contents((_read_npy if base == "npy" else _read_npz)(source, name))
            if base == "mtx":
                return Contents(market.read_market(*packed.opened(source, packing or None), name))
            content = packed.content_of(source, packing or None, name)
            if base == "text":
                return Contents(_read_text(content, name))
            if base == "boeing":
                A, b = market.read_boeing(content.removeprefix(BYTE_ORDER_MARK), name)
                return Contents(b if wants_rhs and b is not None else A, "", b, "right-hand side")
            return (_read_matlab if base == "mat" else _read_collection)(content, part, wants_rhs, name)
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # parsers raise anything, from KeyError to zlib.error; all of it is about this file
        if (isinstance(error, OSError) and error.errno) or str(error).startswith(f"{name}: "):
            raise
        raise ValueError(f"{name}: malformed: {error or type(error).__name__}") from error


def accepted(found: Any, name: str) -> Any:
    """Validate a matrix of `read_contents`; its entries are unchanged.

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


# --- NumPy's and SciPy's own ---


def _read_npy(source: BinaryIO, name: str) -> Any:
    if _form_of_bytes(source.read(6)) != "npy":  # np.load would take it for a pickle, or for an archive
        raise ValueError(f"{name}: is no .npy file (of numpy.save).")
    source.seek(0)
    return np.load(source, allow_pickle=False)


def _read_npz(source: BinaryIO, name: str) -> Any:
    if not zipfile.is_zipfile(source):
        raise ValueError(f"{name}: is no .npz archive (of numpy.savez or scipy.sparse.save_npz).")
    packed.check_archive(source, name)
    with np.load(source, allow_pickle=False) as archive:
        names = archive.files
        for key in {"indices", "indptr", "row", "col", "offsets"} & set(names):
            with archive.zip.open(f"{key}.npy") as stream:
                _, _, dtype = packed.HEADERS[np.lib.format.read_magic(stream)](stream)
            if dtype.kind not in "iu":  # which SciPy would convert
                raise ValueError(f"{name}: malformed: {key} holds {dtype}; expected integers.")
        if "format" not in names and len(names) == 1:
            return archive[names[0]]
    if HEADER in names:
        raise ValueError(f"{name}: holds a preconditioner; read it by krylix.load_preconditioner.")
    if "format" not in names or "shape" not in names:
        found = f"{len(names)} arrays ({', '.join(names[:5])})" if names else "no array"
        raise ValueError(f"{name}: holds {found}; expected one array, or a matrix of scipy.sparse.save_npz.")
    source.seek(0)
    return sp.load_npz(source)


# --- plain text and CSV: rows of numbers, separated by white space, commas, semicolons or tabulators ---

_COMMENTS = ("#", "%")
_NUMBERS = re.compile(rb"[ \t]*[(]?[+-]?(?:\d|\.\d)[\d.dDeEijIJ+\-,; \t()]*")
_FORTRAN = re.compile(r"(?<=[\d.])[dD](?=[+-]?\d)")  # an exponent of double precision
_MATLAB = re.compile(r"(?<=[\d.])[iI](?![A-Za-z])")  # an imaginary unit, j for Python


def _is_numbers(content: bytes) -> bool:
    """Does the first line that is no comment look like a row of numbers?"""
    lines = (line for line in content[:65536].splitlines() if line.strip() and line.lstrip()[:1] not in b"#%")
    return _NUMBERS.fullmatch(next(lines, b"")) is not None


def _read_text(content: bytes, name: str) -> Any:
    """A dense array `(rows, columns)` of double precision; complex numbers are `1+2j` or `1+2i`, exponents `e` or `D`.

    Raises:
        ValueError: no numbers, rows of different lengths, or words, such as a line of titles.
    """
    if b"\0" in content:
        raise ValueError(f"{name}: is no text: it holds zero bytes.")
    text = content.decode("utf-8-sig")
    if not any(line.strip() and not line.lstrip().startswith(_COMMENTS) for line in text.splitlines()):
        raise ValueError(f"{name}: holds no numbers.")
    text = _MATLAB.sub("j", _FORTRAN.sub("e", text))
    marks = [mark for mark in ",;\t" if mark in text]
    if "," in marks and ";" in marks:
        raise ValueError(f"{name}: holds commas and semicolons; expected one of them, and decimal points.")
    if len(marks) > 1:
        raise ValueError(f"{name}: holds tabulators beside commas or semicolons; expected one of them.")
    delimiter = None if marks == ["\t"] else next(iter(marks), None)  # None stands for white space
    dtype = complex if re.search("[jJ]", text) else float
    try:
        with warnings.catch_warnings(action="error"):
            return np.loadtxt(io.StringIO(text), dtype, _COMMENTS, delimiter, ndmin=2, encoding=None)
    except ValueError as error:
        problem = str(error).split("; use `usecols`")[0].rstrip(".")
        raise ValueError(
            f"{name}: {problem} (counted from 0); expected rows of as many numbers, 1.5 or 1+2j, without titles."
        ) from error


# --- files with several parts ---

_PROBLEM = "Problem"  # the record of a matrix of the SuiteSparse collection in MATLAB's form
_OTHERS = ("_b", "_x", "_c", "_coord", "_nodename", "_zeros")  # what the collection appends to names of other files


def _chosen(part: str | None, names: Sequence[str], found: Sequence[str], wants_rhs: bool, file: str) -> str:
    """The part that was asked for, or the only one of `found`, what it can be unasked.

    Raises:
        ValueError: there is no such part, or none, or several.
    """
    what = "right-hand side" if wants_rhs else "matrix"
    if part is not None:
        if part in names:
            return part
        raise ValueError(f"{file}: holds nothing called {part!r}; it has {_listed(names)}.")
    if not found:
        raise ValueError(f"{file}: holds no {what}; it has {_listed(names)}.")
    if len(found) > 1:
        raise ValueError(
            f"{file}: holds several that may be the {what}; say which: {file}:{found[0]}, or {_listed(found[1:])}."
        )
    return found[0]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) < 60 else f"{name[:57]}..." for name in names[:8])
    return (shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "nothing"


def _read_matlab(content: bytes, part: str | None, wants_rhs: bool, name: str) -> Contents:
    """The variable `part`, or the only one that can be meant.

    Unasked this is `A`, or the field `A` of the record `Problem` of the SuiteSparse collection, or the only matrix that
    is no vector; of right-hand sides it is `b`, or the only array. `b` is taken along with a matrix that it fits.
    """
    found = matlab.variables(content, _PROBLEM, name)
    usual = [key for key in (("b", f"{_PROBLEM}.b") if wants_rhs else ("A", f"{_PROBLEM}.A")) if key in found][:1]
    others = [key for key, variable in found.items() if wants_rhs or min(variable.shape) > 1]
    key = _chosen(part, list(found), usual or others or list(found), wants_rhs, name)
    rhs = f"{_PROBLEM}.b" if key.startswith(f"{_PROBLEM}.") else "b"
    A, b = found[key], found.get(rhs)
    if wants_rhs or rhs == key or b is None or b.shape[0] != A.shape[0] or not b.shape[1]:
        return Contents(A.read(), key)
    return Contents(A.read(), key, b.read(), rhs)


def _read_collection(content: bytes, part: str | None, wants_rhs: bool, name: str) -> Contents:
    """The member `part`, or the matrix that has the name of its folder or of which there is no other; and its `..._b`.

    Nothing is written to disk, whatever the members are called; archives in archives are left alone.
    """

    def stem(key: str) -> str:
        return PurePosixPath(key).name.partition(".")[0]

    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        plain = (member for member in archive if member.isreg() and not member.issparse())
        members = {m.name: m for m in plain if not (form_of_name(m.name) or "tar").startswith("tar")}
        if part is not None and part not in members:  # its folder may be left out
            part = next((key for key in reversed(members) if PurePosixPath(key).name == part), part)
        stems = {stem(key) for key in members}
        if wants_rhs:
            found = [key for key in members if stem(key).endswith("_b")] or list(members)
        else:
            found = [key for key in members if not any(stem(key) == one + end for one in stems for end in _OTHERS)]
            found = [key for key in found if PurePosixPath(key).parent.name == stem(key)] or found
        key = _chosen(part, list(members), found, wants_rhs, name)

        def member(key: str) -> Any:
            stream = archive.extractfile(members[key])
            read = b"" if stream is None else stream.read()
            if len(read) != members[key].size:
                raise ValueError(f"{name}: truncated in {key}.")
            return read_contents(io.BytesIO(read), str(form_of_name(key)), f"{name}: {key}").matrix

        path = PurePosixPath(key)
        beside = str(path.with_name(path.name.replace(stem(key), f"{stem(key)}_b", 1)))
        if wants_rhs or beside not in members:
            return Contents(member(key), key)
        return Contents(member(key), key, member(beside), beside)
