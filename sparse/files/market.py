"""Matrix Market files: lines are validated first, then SciPy parses the numbers.

SciPy's parser drops surplus columns, digits after a comma, decimals of integers and the exponent of 1.5D2, and adds up
both triangles of a symmetric matrix. It is given what Fortran writes, 1.5D2, as 1.5E2.
"""

from __future__ import annotations

import io
import re
from typing import Any, BinaryIO

import numpy as np
import scipy.io
import scipy.sparse as sp

BANNER, BYTE_ORDER_MARK = b"%%MatrixMarket", b"\xef\xbb\xbf"
_SHORTEST = {"coordinate": 4, "array": 2}  # bytes of a line: "1 1" or "1", and its end
_CHUNK = 2**20  # bytes that are looked at together
_LONGEST = 2**12  # bytes of a line
_LONGEST_HEADER = 2**20  # bytes of comments
_EMPTY = 1000  # empty lines, beyond as many as there are entries

_REAL = rb"(?:[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eEdD][+-]?[0-9]++)?|[+-]?(?:nan|inf|infinity)(?![^ \t\r\n]))"
_VALUES: dict[str, list[bytes]] = {
    "real": [_REAL], "complex": [_REAL, _REAL], "integer": [rb"[+-]?[0-9]++"], "unsigned-integer": [rb"[0-9]++"],
    "pattern": [],
}  # fmt: skip
_NAMES = {
    "real": "a real number", "complex": "two real numbers", "integer": "an integer", "pattern": "no value",
    "unsigned-integer": "an integer >= 0",
}  # fmt: skip
_CHARACTERS = {"real": b"0123456789+-.eE \t\r\n", "integer": b"0123456789+- \t\r\n"}
# Classes of characters, and which never follows which in columns of numbers.
_SPACE, _DIGIT, _SIGN, _POINT, _POWER = range(5)
_CLASSES = bytes.maketrans(b" \t\r\n0123456789+-.eE", bytes([_SPACE] * 4 + [_DIGIT] * 10 + [_SIGN] * 2 + [3, 4, 4]))
_FORTRAN = bytes.maketrans(b"dD", b"eE")  # exponents of double precision
_DIGITS = bytes([_DIGIT])
_NEVER = bytes(8 * a + b for a, b in (
    (_DIGIT, _SIGN), (_POINT, _SIGN), (_SIGN, _SIGN), (_SIGN, _POWER), (_SIGN, _SPACE), (_POWER, _POINT),
    (_POWER, _POWER), (_POWER, _SPACE), (_POINT, _POINT), (_SPACE, _POWER),
))  # fmt: skip
_ALLOWED = bytes(set(range(256)) - set(_NEVER))
_NEVER_WITHOUT_DIGITS = [bytes(found) for found in ((3, 3), (4, 3), (4, 4), (4, 2, 3))]  # two points or powers in one


def read_market(stream: BinaryIO, size: int, name: str) -> Any:
    """Read a dense array or a `coo_matrix` from a stream that can be read twice.

    Args:
        size: bytes that it has at most.
        name: what to call it in a message.

    Raises:
        ValueError: a line is not what the header announces, or the entries are none of a symmetric matrix where it
            says so.

    Cost: beside SciPy's own, as much time again.
    """
    stream = _with_banner(stream, size)
    first = _skip_header(stream)
    stream.seek(0)
    header = scipy.io.mminfo(_Forward(stream))
    _check_header(header, size, name)
    rows, columns, entries, layout, field, symmetry = header
    stream.seek(0)
    _skip_header(stream)
    expected = _lines(rows, columns, entries, layout, symmetry)
    found, fortran = _check_lines(stream, layout, field, first, expected)
    if found < expected:
        raise ValueError(f"{name}: truncated: it has {found} of the {expected} entries that its header announces.")
    stream.seek(0)
    start = ""  # SciPy then counts the lines of the header too
    read_as, sizes = (symmetry, "") if layout == "array" else ("general", f" {entries}")
    if fortran or read_as != symmetry:
        _skip_header(stream)
        start = f"%%MatrixMarket matrix {layout} {field} {read_as}\n{rows} {columns}{sizes}\n"
    found = scipy.io.mmread(_Forward(stream, start.encode(), fortran))
    if layout == "array":
        if symmetry == "hermitian":
            _check_diagonal(np.diagonal(found), symmetry, name)
        return found
    return found if symmetry == "general" else mirrored(found, symmetry, name)


def _with_banner(stream: BinaryIO, size: int) -> BinaryIO:
    """The stream with the banner as SciPy reads it, without a byte-order mark and capitals."""
    first = stream.readline(_LONGEST)
    line = first.removeprefix(BYTE_ORDER_MARK)
    if line[: len(BANNER)].lower() == BANNER.lower():
        line = BANNER + line[len(BANNER) :].lower()
    if first.startswith(line[: len(BANNER)]):  # SciPy reads capitals after the banner
        stream.seek(0)
        return stream
    return io.BytesIO(line + stream.read(size + 1))


def _check_header(header: tuple[Any, ...], size: int, name: str) -> None:
    rows, columns, entries, layout, field, symmetry = header
    if symmetry != "general" and rows != columns:
        raise ValueError(f"{name}: its header says {symmetry}, but {rows} x {columns}; expected a square matrix.")
    if field == "pattern" and symmetry not in ("general", "symmetric"):
        raise ValueError(f"{name}: its header says pattern and {symmetry}; expected general or symmetric.")
    lines = _lines(rows, columns, entries, layout, symmetry)
    if lines * _SHORTEST[layout] > size + 1:
        raise ValueError(f"{name}: truncated: it cannot hold the {lines} entries that its header announces.")


def _lines(rows: int, columns: int, entries: int, layout: str, symmetry: str) -> int:
    """Number of lines of entries that the header announces."""
    if layout == "coordinate":
        return entries
    return rows * columns if symmetry == "general" else rows * (rows + (-1 if symmetry == "skew-symmetric" else 1)) // 2


def _skip_header(stream: BinaryIO) -> int:
    """Read up to the first line of entries, and return its number."""
    line, number = stream.readline(_LONGEST), 1
    words = line.split()
    if words and re.fullmatch(b"%%?MatrixMarket", words[0]) is None:
        raise ValueError("Line 1: Not a Matrix Market file. Missing banner.")
    if len(words) != 5 or words[1].lower() != b"matrix":
        raise ValueError(
            f"Line 1: got {line[:60].decode('latin-1').strip()!r}; expected %%MatrixMarket matrix and three more words."
        )
    left = _LONGEST_HEADER
    while line and (number == 1 or not line.strip() or line.lstrip().startswith(b"%")):
        line, number = stream.readline(_LONGEST), number + 1
        left -= len(line)
        if left < 0:
            raise ValueError(f"Line {number}: the comments have more than {_LONGEST_HEADER} bytes.")
        if b"\0" in line or len(line) == _LONGEST:  # SciPy would read beyond its memory
            raise ValueError(f"Line {number}: is no line of text.")
    return number + 1


def _check_lines(stream: BinaryIO, layout: str, field: str, first: int, expected: int) -> tuple[int, bool]:
    """Count the lines with entries, and see whether numbers have Fortran's exponents.

    Raises:
        ValueError: there are more than expected, which is seen without reading on; a line is malformed.
    """
    values = _VALUES.get(field, _VALUES["real"])
    indices = [rb"[0-9]++"] * (2 if layout == "coordinate" else 0)
    line = re.compile(rb"[ \t]*+(?:" + rb"[ \t]++".join(indices + values) + rb"[ \t]*+)?\r?\n", re.IGNORECASE)
    columns, rest, number, empty, fortran = len(indices + values), b"", first, 0, False
    may_have_powers = field in ("real", "complex")

    def check(text: bytes) -> None:
        nonlocal number, empty, fortran
        lines, same = text.count(b"\n"), text
        if may_have_powers and (b"D" in text or b"d" in text):
            same, fortran = text.translate(_FORTRAN), True
        if not _is_plain(same, columns, field, lines):
            empty += _look(text, number, field, line, layout)
        number += lines
        if number - first - empty > expected or empty > expected + _EMPTY:
            at = first + expected + empty
            raise ValueError(f"Line {at}: the file goes on after the {expected} entries that its header announces.")

    while part := stream.read(_CHUNK):
        whole, end, rest = (rest + part).rpartition(b"\n")
        if len(rest) > _LONGEST:
            raise ValueError(f"After line {number}: a line of {len(rest)} characters; expected {columns} numbers.")
        if end:
            check(whole + end)
    if rest.strip():
        check(rest + b"\n")
    return number - first - empty, fortran


def _look(text: bytes, number: int, field: str, line: re.Pattern[bytes], layout: str) -> int:
    """Raise for the first line, numbered from `number` on, that does not match; return the number of empty lines."""
    lines = text.split(b"\n")[:-1]
    for i, got in enumerate(lines):
        if line.fullmatch(got + b"\n") is None:
            places = "row, column and " if layout == "coordinate" else ""
            shown = got.decode("latin-1").strip()
            raise ValueError(
                f"Line {number + i}: got {shown if len(shown) < 60 else shown[:60] + '...'!r}; expected "
                f"{places}{_NAMES.get(field, 'a real number')}, as the header says."
            )
    return sum(not got.strip() for got in lines)


def _is_plain(text: bytes, columns: int, field: str, lines: int) -> bool:
    """Fast sufficient test that all lines have the columns and numbers of the header; SciPy refuses less."""
    characters = _CHARACTERS["real" if field in ("real", "complex") else "integer"]
    if text.translate(None, characters) or text.count(b"\r") != text.count(b"\r\n"):
        return False
    solid = np.frombuffer(text, np.uint8) > ord(" ")
    if np.count_nonzero(solid[1:] > solid[:-1]) + int(solid[0]) != columns * lines:  # also where lines are empty
        return False
    classes = bytes([_SPACE]) + text.translate(_CLASSES)
    numbers = np.frombuffer(classes, np.uint8)
    before, after = numbers[:-1], numbers[1:]
    if (8 * before + after).tobytes().translate(None, _ALLOWED):
        return False
    points = np.flatnonzero(after == _POINT) + 1
    if np.any((before[points - 1] != _DIGIT) & (after[points] != _DIGIT)):
        return False
    short = classes.translate(None, _DIGITS)
    return not any(pair in short for pair in _NEVER_WITHOUT_DIGITS)


class _Forward:
    """Read-only stream with a prefix and a newline at the end, and Fortran's exponents as C writes them.

    Where SciPy fails to set a stream back, or meets spaces at the end of the last line, the process ends.
    """

    def __init__(self, stream: BinaryIO, start: bytes = b"", fortran: bool = False) -> None:
        self.start, self.stream, self.end, self.fortran = start, stream, b"\n", fortran

    def read(self, count: int = -1) -> bytes:
        first, self.start = self.start, b""
        if first:
            return first
        found = self.stream.read(count)
        if not found:
            found, self.end = self.end, b""
        return found.translate(_FORTRAN) if self.fortran else found


def mirrored(triangle: Any, symmetry: str, name: str) -> Any:
    """Expand a triangle to the whole matrix."""
    below, above = triangle.row > triangle.col, triangle.row < triangle.col
    if below.any() and above.any():
        i = int(np.flatnonzero(above)[0])
        raise ValueError(
            f"{name}: its header says {symmetry}, and it has entries on both sides of the diagonal, as in row "
            f"{triangle.row[i] + 1} and column {triangle.col[i] + 1}; expected one triangle. Say general, or leave out "
            "the entries above the diagonal."
        )
    _check_diagonal(triangle.data[~(below | above)], symmetry, name)
    off, values = below | above, triangle.data
    mirror = {"symmetric": values, "skew-symmetric": -values, "hermitian": np.conj(values)}[symmetry][off]
    rows, columns = triangle.row, triangle.col
    entries = np.concatenate([values, mirror])
    places = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
    return sp.coo_matrix((entries, places), triangle.shape)


def _check_diagonal(diagonal: np.ndarray, symmetry: str, name: str) -> None:
    wrong = diagonal if symmetry == "skew-symmetric" else diagonal.imag
    if symmetry != "symmetric" and np.any(wrong != 0):
        expected = "zeros" if symmetry == "skew-symmetric" else "real numbers"
        raise ValueError(f"{name}: its header says {symmetry}; expected {expected} on the diagonal.")
