"""Harwell-Boeing and Rutherford-Boeing files: columns of Fortran, read by their widths.

SciPy's reader takes real matrices without symmetry only, and no Rutherford-Boeing file.

Source: Duff, Grimes and Lewis, The Rutherford-Boeing Sparse Matrix Collection, RAL-TR-97-031; and User's guide for the
Harwell-Boeing sparse matrix collection, TR/PA/92/86.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .market import mirrored

_TYPE = re.compile(r"[RCPI][SUHZR]A", re.IGNORECASE)
_FORMAT = re.compile(
    r"\((?:[+-]?(?P<scale>\d+)P,?)?(?P<count>\d*)\(?(?:[+-]?(?P<inner>\d+)P,?)?(?P<times>\d*)"
    r"(?P<letter>[IEDFG])(?P<width>\d+)(?:\.\d+(?:E\d+)?)?\)?\)"
)
_SYMMETRIES = {"S": "symmetric", "H": "hermitian", "Z": "skew-symmetric"}
_EXPONENT = re.compile(r"(?<=[\d.])(?=[+-])")  # Fortran leaves out the letter of 1.5-101


class _TextLine(NamedTuple):
    text: str
    ended: bool  # by a line feed


class _Header(NamedTuple):
    kind: str
    shape: tuple[int, int]
    entries: int
    formats: tuple[str, str, str, str]
    right_hand_sides: tuple[str, int]  # their kind, and how many


class _FortranFormat(NamedTuple):
    per_line: int
    width: int
    letter: str


def is_boeing(content: bytes) -> bool:
    """Does the third line start with the type of a matrix?"""
    lines = content[:1024].split(b"\n")
    return len(lines) > 2 and re.match(rb"[RCPIQ][SUHZR][AE] {2,}\d", lines[2], re.IGNORECASE) is not None


def read_boeing(content: bytes, name: str) -> tuple[Any, Any]:
    """A `coo_matrix` with both triangles, and the right-hand sides `(n, k)` of a Harwell-Boeing file, or None.

    Raises:
        ValueError: malformed, of finite elements that are not assembled, or in columns of a format that is not known.
    """
    texts = content.decode("latin-1").replace("\r\n", "\n").split("\n")
    lines = iter([_TextLine(text, True) for text in texts[:-1]] + [_TextLine(texts[-1], False)])
    header = _header(lines, name)
    (m, n), count = header.shape, header.entries
    starts = _integers(lines, n + 1, header.formats[0], name, "column starts")
    rows = _integers(lines, count, header.formats[1], name, "row indices")
    if starts[0] != 1 or starts[-1] != count + 1 or np.any(np.diff(starts) < 0):
        raise ValueError(f"{name}: malformed: the column starts do not rise from 1 to {count + 1}.")
    if count and not (rows.min() >= 1 and rows.max() <= m):
        raise ValueError(f"{name}: malformed: a row index is out of bounds, 1 to {m}.")
    values = np.ones(count)
    if header.kind[0] != "P":
        values = _values(lines, count, header.formats[2], name, header.kind[0])
    columns = np.repeat(np.arange(n), np.diff(starts))
    A = sp.coo_matrix((values, (rows - 1, columns)), (m, n))
    if header.kind[1] in _SYMMETRIES:
        A = mirrored(A, _SYMMETRIES[header.kind[1]], name)
    return A, _right_hand_sides(lines, header, name)


def _header(lines: Iterator[_TextLine], name: str) -> _Header:
    head = [next(lines, _TextLine("", True)).text for _ in range(4)]
    counts = head[1].split()
    kind, numbers = head[2][:3].upper(), head[2][3:].split()
    if kind[2:] == "E":
        raise ValueError(f"{name}: holds finite elements ({kind}); expected an assembled matrix.")
    if _TYPE.fullmatch(kind) is None or len(numbers) < 3 or len(counts) < 4:
        raise ValueError(f"{name}: is no Harwell-Boeing or Rutherford-Boeing file: its third line is {head[2][:30]!r}.")
    m, n, entries = _counted(numbers[:3], name)
    if kind[1] in _SYMMETRIES and m != n:
        raise ValueError(f"{name}: its header says {_SYMMETRIES[kind[1]]}, but {m} x {n}; expected a square matrix.")
    text = head[3].ljust(72).upper()
    formats = text[:16], text[16:32], text[32:52], text[52:72]
    if len(counts) < 5 or not _counted(counts[4:5], name)[0]:
        return _Header(kind, (m, n), entries, formats, ("", 0))
    sides = next(lines, _TextLine("", True)).text
    return _Header(
        kind, (m, n), entries, formats, (sides[:3].upper(), _counted(sides[3:].split()[:1] or ["0"], name)[0])
    )


def _counted(words: list[str], name: str) -> list[int]:
    if not all(word.isascii() and word.isdigit() for word in words):
        raise ValueError(f"{name}: malformed: its header has {' '.join(words)!r}; expected integers >= 0.")
    return [int(word) for word in words]


def _format(text: str, name: str) -> _FortranFormat:
    found = _FORMAT.fullmatch("".join(text.split()))
    if found is None or not int(found["width"]):
        raise ValueError(
            f"{name}: has columns of the Fortran format {text.strip()!r}; expected such as (8I10) or (4E20.12)."
        )
    if found["letter"] == "F" and int(found["scale"] or found["inner"] or 0):
        raise ValueError(f"{name}: has numbers in the Fortran format {text.strip()!r}, scaled by a power of ten.")
    per_line = int(found["count"] or 1) * int(found["times"] or 1)
    return _FortranFormat(per_line, int(found["width"]), found["letter"])


def _fields(lines: Iterator[_TextLine], count: int, text: str, name: str, what: str) -> Iterator[str]:
    """The next `count` fields, line by line; what is missing is an error before memory is taken for it."""
    form, left = _format(text, name), count
    while left > 0:
        line, ended = next(lines, _TextLine("", False))
        here = min(form.per_line, left)
        needed = (here - 1) * form.width + 1 if ended else here * form.width  # a number that was cut may be another one
        if len(line.rstrip()) < needed:
            raise ValueError(f"{name}: truncated: {left} of {count} {what} are missing.")
        for i in range(here):
            yield line[i * form.width : (i + 1) * form.width].strip()
        if line[here * form.width :].strip():
            raise ValueError(
                f"{name}: malformed: a line of {what} goes on after {here} numbers of {form.width} characters."
            )
        left -= here


def _integers(lines: Iterator[_TextLine], count: int, text: str, name: str, what: str) -> np.ndarray:
    return np.array([_number(int, field, name, what) for field in _fields(lines, count, text, name, what)], np.int64)


def _reals(lines: Iterator[_TextLine], count: int, text: str, name: str) -> np.ndarray:
    fields = _fields(lines, count, text, name, "values")
    return np.array([_number(_real, field, name, "values") for field in fields], np.float64)


def _values(lines: Iterator[_TextLine], count: int, text: str, name: str, kind: str) -> np.ndarray:
    if kind == "I":
        return _integers(lines, count, text, name, "values")
    found = _reals(lines, count * (2 if kind == "C" else 1), text, name)
    return found.view(np.complex128) if kind == "C" else found


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


def _right_hand_sides(lines: Iterator[_TextLine], header: _Header, name: str) -> Any:
    """Full vectors; those that are stored as sparse ones are left alone."""
    kind, count = header.right_hand_sides
    if kind[:1] != "F" or not count or header.kind[0] == "P":
        return None
    m = header.shape[0]
    values = _values(lines, m * count, header.formats[3], name, "C" if header.kind[0] == "C" else "R")
    return values.reshape(count, m).T
