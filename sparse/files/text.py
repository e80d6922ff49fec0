"""Plain text and CSV: rows of numbers, separated by white space, commas, semicolons or tabulators."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import numpy as np

_COMMENTS = ("#", "%")
_NUMBERS = re.compile(rb"[ \t]*[(]?[+-]?(?:\d|\.\d)[\d.dDeEijIJ+\-,; \t()]*")
_FORTRAN = re.compile(r"(?<=[\d.])[dD](?=[+-]?\d)")  # an exponent of double precision
_MATLAB = re.compile(r"(?<=[\d.])[iI](?![A-Za-z])")  # an imaginary unit, j for Python


def is_numbers(content: bytes) -> bool:
    """Does the first line that is no comment look like a row of numbers?"""
    lines = (
        line for line in content[:65536].splitlines() if line.strip() and not line.lstrip().startswith((b"#", b"%"))
    )
    first = next(lines, b"")
    return _NUMBERS.fullmatch(first) is not None


def read_text(content: bytes, name: str) -> Any:
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
    delimiter = _delimiter(text, name)
    dtype = complex if re.search("[jJ]", text) else float
    try:
        with warnings.catch_warnings(action="error"):
            return np.loadtxt(io.StringIO(text), dtype, _COMMENTS, delimiter, ndmin=2, encoding=None)
    except ValueError as error:
        problem = str(error).split("; use `usecols`")[0].rstrip(".")
        raise ValueError(
            f"{name}: {problem} (counted from 0); expected rows of as many numbers, 1.5 or 1+2j, without titles."
        ) from error


def _delimiter(text: str, name: str) -> str | None:
    """None stands for white space."""
    there = [mark for mark in ",;\t" if mark in text]
    if there == [","] or there == [";"]:
        return there[0]
    if "," in there and ";" in there:
        raise ValueError(f"{name}: holds commas and semicolons; expected one of them, and decimal points.")
    if "," in there or ";" in there:
        raise ValueError(f"{name}: holds tabulators beside commas or semicolons; expected one of them.")
    return None
