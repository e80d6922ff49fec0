"""Matrices as text in the forms of collections: Matrix Market, Harwell-Boeing and Rutherford-Boeing.

Lines of Matrix Market are validated first, then SciPy parses the numbers: alone it drops surplus columns, digits after
a comma, decimals of integers and the exponent of 1.5D2, and adds up both triangles of a symmetric matrix. It is given
what Fortran writes, 1.5D2, as 1.5E2. Of Boeing files SciPy reads real matrices without symmetry only.

Source: Duff, Grimes and Lewis, The Rutherford-Boeing Sparse Matrix Collection, RAL-TR-97-031; and User's guide for the
Harwell-Boeing sparse matrix collection, TR/PA/92/86.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import scipy
import scipy.sparse as sp

BANNER, BYTE_ORDER_MARK = b"%%MatrixMarket", b"\xef\xbb\xbf"
_SHORTEST = {"coordinate": 4, "array": 2}  # bytes of a line: "1 1" or "1", and its end
_CHUNK = 2**20  # bytes that are looked at together
_LONGEST = 2**12  # bytes of a line
_LONGEST_HEADER = 2**20  # bytes of comments
_EMPTY = 1000  # empty lines, beyond as many as there are entries

_REAL = rb"[+-]?(?:[0-9]++\.?[0-9]*+(?:[eEdD][+-]?[0-9]++)?|\.[0-9]++(?:[eEdD][+-]?[0-9]++)?|(?i:nan|inf(?:inity)?))"
_VALUES: dict[str, list[bytes]] = {
    "real": [_REAL], "complex": [_REAL, _REAL], "integer": [rb"[+-]?[0-9]++"], "unsigned-integer": [rb"[0-9]++"],
    "pattern": [],
}  # fmt: skip
_NAMES = {
    "real": "a real number", "complex": "two real numbers", "integer": "an integer", "pattern": "no value",
    "unsigned-integer": "an integer >= 0",
}  # fmt: skip
_FORTRAN = bytes.maketrans(b"dD", b"eE")  # exponents of double precision


# --- Matrix Market ---


def read_market(stream: BinaryIO, size: int, name: str) -> Any:
    """Read a dense array or a `coo_matrix` from a stream that can be read twice.

    Args:
        size: bytes that it has at most.
        name: what to call it in a message.

    Raises:
        ValueError: a line is not what the header announces, or the entries are none of a symmetric matrix where it
            says so.

    Cost: beside SciPy's own, about twice as much again.
    """
    banner, sizes, first = _read_header(stream)
    begin, comments = stream.tell(), b"%\n" * (first - 3)  # so that SciPy counts lines as they are
    rows, columns, entries, layout, field, symmetry = scipy.io.mminfo(io.BytesIO(banner + comments + sizes))
    if symmetry != "general" and rows != columns:
        raise ValueError(f"{name}: its header says {symmetry}, but {rows} x {columns}; expected a square matrix.")
    if field == "pattern" and symmetry not in ("general", "symmetric"):
        raise ValueError(f"{name}: its header says pattern and {symmetry}; expected general or symmetric.")
    expected = entries
    if layout != "coordinate":
        triangle = rows * (rows + (-1 if symmetry == "skew-symmetric" else 1)) // 2
        expected = rows * columns if symmetry == "general" else triangle
    if expected * _SHORTEST[layout] > size + 1:
        raise ValueError(f"{name}: truncated: it cannot hold the {expected} entries that its header announces.")
    count, fortran = _check_lines(stream, layout, field, first, expected)
    if count < expected:
        raise ValueError(f"{name}: truncated: it has {count} of the {expected} entries that its header announces.")
    stream.seek(begin)
    if layout == "coordinate":
        banner = f"%%MatrixMarket matrix {layout} {field} general\n".encode()  # SciPy would add up both triangles
    found = scipy.io.mmread(_Forward(banner + comments + sizes, stream, fortran))
    if layout == "array":
        if symmetry == "hermitian":
            _check_diagonal(np.diagonal(found), symmetry, name)
        return found
    return found if symmetry == "general" else _mirrored(found, symmetry, name)


def _read_header(stream: BinaryIO) -> tuple[bytes, bytes, int]:
    """The banner as SciPy reads it, the line of sizes, and the number of the line where entries begin."""
    line, number = stream.readline(_LONGEST).removeprefix(BYTE_ORDER_MARK), 1
    words = line.split()
    if words and re.fullmatch(b"%%?MatrixMarket", words[0], re.IGNORECASE) is None:
        raise ValueError("Line 1: Not a Matrix Market file. Missing banner.")
    if len(words) != 5 or words[1].lower() != b"matrix":
        raise ValueError(
            f"Line 1: got {line[:60].decode('latin-1').strip()!r}; expected %%MatrixMarket matrix and three more words."
        )
    banner, left = b" ".join([BANNER, *(word.lower() for word in words[1:])]) + b"\n", _LONGEST_HEADER
    while line and (number == 1 or not line.strip() or line.lstrip().startswith(b"%")):
        line, number = stream.readline(_LONGEST), number + 1
        left -= len(line)
        if left < 0:
            raise ValueError(f"Line {number}: the comments have more than {_LONGEST_HEADER} bytes.")
        if b"\0" in line or len(line) == _LONGEST:  # SciPy would read beyond its memory
            raise ValueError(f"Line {number}: is no line of text.")
    return banner, line.rstrip() + b"\n", number + 1


def _check_lines(stream: BinaryIO, layout: str, field: str, first: int, expected: int) -> tuple[int, bool]:
    """Count the lines with entries, and see whether numbers have Fortran's exponents.

    Raises:
        ValueError: there are more than expected, which is seen without reading on; a line is malformed.
    """
    values = _VALUES.get(field, _VALUES["real"])
    words = [rb"[0-9]++"] * (2 if layout == "coordinate" else 0) + values
    entry = re.compile(rb"^[ \t]*+" + rb"[ \t]++".join(words) + rb"[ \t]*+\r?\n", re.MULTILINE)
    nothing = re.compile(rb"(?:[ \t]*+\r?\n)*+")
    part, rest, number, found, fortran = b"-", b"", first, 0, False
    while part:
        part = stream.read(_CHUNK)
        text, end, rest = (rest + part).rpartition(b"\n") if part else (rest.strip(), b"\n", b"")
        if len(rest) > _LONGEST:
            raise ValueError(f"After line {number}: a line of {len(rest)} characters; expected {len(words)} numbers.")
        text += end
        fortran = fortran or (_REAL in values and (b"D" in text or b"d" in text))
        left, count = entry.subn(b"", text)  # what is left of a malformed line is not nothing
        if left and nothing.fullmatch(left) is None:
            for i, line in enumerate(text.split(b"\n")[:-1]):
                if entry.fullmatch(line + b"\n") is None and nothing.fullmatch(line + b"\n") is None:
                    got, places = line.decode("latin-1").strip(), "row, column and " if layout == "coordinate" else ""
                    raise ValueError(
                        f"Line {number + i}: got {got if len(got) < 60 else got[:60] + '...'!r}; expected "
                        f"{places}{_NAMES.get(field, 'a real number')}, as the header says."
                    )
        number, found = number + text.count(b"\n"), found + count
        empty = number - first - found
        if found > expected or empty > expected + _EMPTY:
            at = first + expected + empty
            raise ValueError(f"Line {at}: the file goes on after the {expected} entries that its header announces.")
    return found, fortran


class _Forward:
    """Read-only stream of a header, the entries with Fortran's exponents as C writes them, and a newline.

    Where SciPy fails to set a stream back, or meets spaces at the end of the last line, the process ends.
    """

    def __init__(self, header: bytes, entries: BinaryIO, fortran: bool) -> None:
        self.header, self.entries, self.end, self.fortran = header, entries, b"\n", fortran

    def read(self, count: int = -1) -> bytes:
        found, self.header = self.header, b""
        if found:
            return found
        found = self.entries.read(count)
        if not found:
            found, self.end = self.end, b""
        return found.translate(_FORTRAN) if self.fortran else found


def _mirrored(triangle: Any, symmetry: str, name: str) -> Any:
    """Expand a triangle to the whole matrix."""
    below, above = triangle.row > triangle.col, triangle.row < triangle.col
    if below.any() and above.any():
        i = int(np.flatnonzero(above)[0])
        raise ValueError(
            f"{name}: its header says {symmetry}, and it has entries on both sides of the diagonal, as in row "
            f"{triangle.row[i] + 1} and column {triangle.col[i] + 1}; expected one triangle. Say general, or leave out "
            "the entries above the diagonal."
        )
    off, values = below | above, triangle.data
    _check_diagonal(values[~off], symmetry, name)
    mirror = {"symmetric": values, "skew-symmetric": -values, "hermitian": np.conj(values)}[symmetry][off]
    rows, columns = triangle.row, triangle.col
    places = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
    return sp.coo_matrix((np.concatenate([values, mirror]), places), triangle.shape)


def _check_diagonal(diagonal: np.ndarray, symmetry: str, name: str) -> None:
    wrong = diagonal if symmetry == "skew-symmetric" else diagonal.imag
    if symmetry != "symmetric" and np.any(wrong != 0):
        expected = "zeros" if symmetry == "skew-symmetric" else "real numbers"
        raise ValueError(f"{name}: its header says {symmetry}; expected {expected} on the diagonal.")


# --- Harwell-Boeing, Rutherford-Boeing: columns of Fortran, read by their widths ---

_TYPE = re.compile(r"[RCPI][SUHZR]A")
_FORMAT = re.compile(
    r"\((?:[+-]?(?P<scale>\d+)P,?)?(?P<count>\d*)\(?(?:[+-]?(?P<inner>\d+)P,?)?(?P<times>\d*)"
    r"(?P<letter>[IEDFG])(?P<width>\d+)(?:\.\d+(?:E\d+)?)?\)?\)"
)
_SYMMETRIES = {"S": "symmetric", "H": "hermitian", "Z": "skew-symmetric"}
_EXPONENT = re.compile(r"(?<=[\d.])(?=[+-])")  # Fortran leaves out the letter of 1.5-101


def is_boeing(content: bytes) -> bool:
    """Does the third line start with the type of a matrix?"""
    lines = content[:1024].split(b"\n")
    return len(lines) > 2 and re.match(rb"[RCPIQ][SUHZR][AE] {2,}\d", lines[2], re.IGNORECASE) is not None


def read_boeing(content: bytes, name: str) -> tuple[Any, Any]:
    """A `coo_matrix` with both triangles, and the right-hand sides `(n, k)` of a Harwell-Boeing file, or None.

    Right-hand sides that are stored as sparse vectors are left alone.

    Raises:
        ValueError: malformed, of finite elements that are not assembled, or in columns of a format that is not known.
    """
    *whole, last = content.decode("latin-1").replace("\r\n", "\n").split("\n")
    lines = iter([*(f"{line}\n" for line in whole), last])
    _, counts, third, formats = (next(lines, "") for _ in range(4))
    kind, numbers = third[:3].upper(), third[3:].split()
    if kind[2:] == "E":
        raise ValueError(f"{name}: holds finite elements ({kind}); expected an assembled matrix.")
    if _TYPE.fullmatch(kind) is None or len(numbers) < 3 or len(counts.split()) < 4:
        shown = third.rstrip("\n")[:30]
        raise ValueError(f"{name}: is no Harwell-Boeing or Rutherford-Boeing file: its third line is {shown!r}.")
    m, n, count = _counted(numbers[:3], name)
    symmetry = _SYMMETRIES.get(kind[1])
    if symmetry is not None and m != n:
        raise ValueError(f"{name}: its header says {symmetry}, but {m} x {n}; expected a square matrix.")
    formats = formats.rstrip("\n").ljust(72).upper()
    sides = next(lines, "") if any(_counted(counts.split()[4:5], name)) else ""
    starts = _integers(lines, n + 1, formats[:16], name, "column starts")
    rows = _integers(lines, count, formats[16:32], name, "row indices")
    if starts[0] != 1 or starts[-1] != count + 1 or np.any(np.diff(starts) < 0):
        raise ValueError(f"{name}: malformed: the column starts do not rise from 1 to {count + 1}.")
    if count and not (rows.min() >= 1 and rows.max() <= m):
        raise ValueError(f"{name}: malformed: a row index is out of bounds, 1 to {m}.")
    if kind[0] == "I":
        values = _integers(lines, count, formats[32:52], name, "values")
    else:
        values = np.ones(count) if kind[0] == "P" else _reals(lines, count, formats[32:52], name, kind[0] == "C")
    A = sp.coo_matrix((values, (rows - 1, np.repeat(np.arange(n), np.diff(starts)))), (m, n))
    A = A if symmetry is None else _mirrored(A, symmetry, name)
    k = _counted(sides[3:].split()[:1] or ["0"], name)[0]
    if sides[:1].upper() != "F" or not k or kind[0] == "P":
        return A, None
    return A, _reals(lines, m * k, formats[52:72], name, kind[0] == "C").reshape(k, m).T


def _counted(words: list[str], name: str) -> list[int]:
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"{name}: malformed: its header has {' '.join(words)!r}; expected integers >= 0.")
    return [int(word) for word in words]


def _fields(lines: Iterator[str], count: int, form: str, name: str, what: str) -> Iterator[str]:
    """The next `count` fields, line by line; what is missing is an error before memory is taken for it."""
    found = _FORMAT.fullmatch("".join(form.split()))
    per_line, width = (int(found["count"] or 1) * int(found["times"] or 1), int(found["width"])) if found else (0, 0)
    if found is None or not per_line * width:
        raise ValueError(
            f"{name}: has columns of the Fortran format {form.strip()!r}; expected such as (8I10) or (4E20.12)."
        )
    if found["letter"] == "F" and int(found["scale"] or found["inner"] or 0):
        raise ValueError(f"{name}: has numbers in the Fortran format {form.strip()!r}, scaled by a power of ten.")
    for left in range(count, 0, -per_line):
        line, here = next(lines, ""), min(per_line, left)
        ended = line.endswith("\n")
        needed = (here - 1) * width + 1 if ended else here * width  # a number that was cut may be another one
        if len(line.rstrip()) < needed:
            raise ValueError(f"{name}: truncated: {left} of {count} {what} are missing.")
        for i in range(here):
            yield line[i * width : (i + 1) * width].strip()
        if line[here * width :].strip():
            raise ValueError(f"{name}: malformed: a line of {what} goes on after {here} numbers of {width} characters.")


def _integers(lines: Iterator[str], count: int, form: str, name: str, what: str) -> np.ndarray:
    return np.array([_number(int, field, name, what) for field in _fields(lines, count, form, name, what)], np.int64)


def _reals(lines: Iterator[str], count: int, form: str, name: str, in_pairs: bool) -> np.ndarray:
    """Real numbers, or pairs of them as complex ones."""
    fields = _fields(lines, 2 * count if in_pairs else count, form, name, "values")
    found = np.array([_number(_real, field, name, "values") for field in fields], np.float64)
    return found.view(np.complex128) if in_pairs else found


def _number(read: Any, field: str, name: str, what: str) -> Any:
    try:
        if "_" in field:  # Python would take it
            raise ValueError
        return read(field)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: malformed: {field[:40]!r} among the {what}; expected a number.") from error


def _real(field: str) -> float:
    """Also 1.5D2 and 1.5-101; a number without a point would be scaled by the format."""
    value = float(
        _EXPONENT.sub("E", field.upper().replace("D", "E")) if field[-1:].isdigit() or field[-1:] == "." else field
    )
    if value and "." not in field and "n" not in field.lower():
        raise ValueError
    return value
