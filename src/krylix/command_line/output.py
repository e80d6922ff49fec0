"""Output files of commands: checked before the work, written after it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..sparse.files.reader import split_part
from .files import STDIN, name_of
from .terminal import SolveFailed, UsageError


def check_output(path: Path, endings: Sequence[str], inputs: Sequence[Path | None]) -> None:
    """Check before the work that its result can be written and overwrites no input.

    Raises:
        UsageError: another ending than those that can be written, no such folder, no permission, or it is one of the
            `inputs`, under any name or link.
    """
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
    """The form of x in this file: the given one, or that of its name; text on standard output.

    Raises:
        UsageError: the name contradicts the given form.
    """
    named = next((known for known in FORMS if path.name.lower().endswith(f".{known}")), None)
    if form is not None and named not in (None, form):
        raise UsageError(f"{path}: is to be written as {form} (--output-format), and its name says {named}.")
    return form or named or "txt"


def as_bytes(form: str, x: np.ndarray) -> bytes:
    """The content of a file with a vector, or with several as columns."""
    stream = io.BytesIO()
    _WRITERS[form](stream, x)
    return stream.getvalue()


def write_vectors(path: Path, form: str, x: np.ndarray) -> None:
    """Write a vector, or several as columns.

    Raises:
        SolveFailed: the file cannot be written.
    """
    with writing(path):
        path.write_bytes(as_bytes(form, x))


def _write_matrix_market(stream: BinaryIO, x: np.ndarray) -> None:
    from scipy.io import mmwrite

    mmwrite(stream, x.reshape(len(x), -1), symmetry="general", precision=np.finfo(x.dtype).precision + 2)


def _write_matlab(stream: BinaryIO, x: np.ndarray) -> None:
    from scipy.io import savemat

    savemat(stream, {"x": x}, oned_as="column")


def _write_text(stream: BinaryIO, x: np.ndarray, delimiter: str = " ") -> None:
    """With as few digits as restore the numbers; complex ones as in Python, without brackets."""
    for row in x.reshape(len(x), -1):
        stream.write(delimiter.join(str(number).strip("()") for number in row).encode() + b"\n")


_WRITERS: dict[str, Callable[..., Any]] = {
    "npy": lambda stream, x: np.save(stream, x),
    "npz": lambda stream, x: np.savez(stream, x=x),
    "mtx": _write_matrix_market,
    "mat": _write_matlab,
    "txt": _write_text,
    "csv": lambda stream, x: _write_text(stream, x, ","),
}
FORMS = tuple(_WRITERS)
VECTOR_NAMES = tuple(f".{form}" for form in FORMS)
TRACE_NAME = ".json"
