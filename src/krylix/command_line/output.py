"""Output files of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import SolveFailed, UsageError
from .files import STDIN, name_of


def check_output(path: Path, endings: Sequence[str], inputs: Sequence[Path | None]) -> None:
    """See before the work whether its result can be written, and overwrites nothing that is read.

    Raises:
        UsageError: another ending than those that can be written, no such folder, no permission, or it is one of the
            `inputs`, by whatever name or link.
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
        other = os.fstat(sys.stdin.fileno()) if source == STDIN else source.stat()
        return os.path.samestat(path.stat(), other)
    except (OSError, ValueError, AttributeError):  # one of them is no file, or not there
        return False


def write(path: Path, x: np.ndarray) -> None:
    """Write a vector, or several as columns.

    Raises:
        SolveFailed: the file cannot be written after all.
    """
    writer = next(write for ending, write in _WRITERS.items() if path.name.lower().endswith(ending))
    try:
        writer(path, x)
    except OSError as error:
        raise SolveFailed(f"{path}: cannot be written: {error.strerror or error}.") from error


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
TRACE_NAME = ".json"


def write_profile(path: Path, profile: Any) -> None:
    """Write a file of trace events.

    Raises:
        SolveFailed: as `write`.
    """
    try:
        profile.save(path)
    except OSError as error:
        raise SolveFailed(f"{path}: cannot be written: {error.strerror or error}.") from error
