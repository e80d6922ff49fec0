"""Memory of a matrix in each storage format, and the recommended format, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends import get_backend
from ..sparse.analysis.facts import occupied_diagonals
from ..sparse.formats import FormatChoice, choose_format, from_entries
from ..sparse.formats.hyb import PIECE, best_width
from .errors import UsageError
from .facts import Line

_MAX_BYTES = 4 * 2**30  # of a matrix that is built to be looked at
_INDEX = 4  # bytes


def describe(A: Any, backend: str, wanted: str | None) -> list[Line]:
    """Memory, and the format that was asked for or that krylix would choose.

    Raises:
        UsageError: the matrix cannot be stored in the format that was asked for.
    """
    sizes = bytes_of(A)
    choice = chosen(A, backend)
    text = ", ".join(f"{name} {in_words(size)}" for name, size in sizes.items())
    found = f"{choice.format}, chosen for {backend}: {choice.reason}"
    if wanted is None:
        return [("memory", text), ("format", found)]
    return [("memory", text), ("format", _stored(A, wanted, sizes[wanted])), ("otherwise", found)]


def chosen(A: Any, backend: str) -> FormatChoice:
    """The format that krylix would choose, and why."""
    return choose_format(get_backend(backend), A.indptr, A.indices, A.shape)


def bytes_of(A: Any) -> dict[str, int]:
    """Bytes of values and 32-bit indices of a canonical `csr_array` in each format; nothing is built."""
    (n, m), nnz, size = A.shape, int(A.nnz), A.dtype.itemsize
    place = size + _INDEX
    lengths = np.diff(A.indptr)
    width = best_width(lengths)
    pieces = int(np.sum(-(-np.maximum(lengths - width, 0) // PIECE)))
    diagonals = len(occupied_diagonals(A))
    return {
        "csr": nnz * place + (n + 1) * _INDEX,
        "csc": nnz * place + (m + 1) * _INDEX,
        "coo": nnz * (place + _INDEX),
        "dia": diagonals * (n * size + _INDEX),
        "ell": int(lengths.max(initial=0)) * n * place,
        "hyb": (width * n + pieces * PIECE) * place + pieces * _INDEX,
        "dense": n * m * size,
    }


def in_words(size: int) -> str:
    """Bytes with three digits.

    >>> in_words(999), in_words(1000), in_words(283240), in_words(8 * 10**12)
    ('999 B', '1 kB', '283 kB', '8 TB')
    """
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if number < 999.5:
            break
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def _stored(A: Any, wanted: str, size: int) -> str:
    if size > _MAX_BYTES:
        raise UsageError(
            f"--format {wanted}: the matrix would take {in_words(size)}; at most {in_words(_MAX_BYTES)} are built "
            "to look at it. Choose another format."
        )
    text = f"{wanted}, asked for: {in_words(size)}"
    if wanted == "dense":
        return text
    rows, columns = A.tocoo().coords
    try:
        matrix = from_entries(get_backend("numpy"), rows, columns, A.data, A.shape, format=wanted)
    except (ValueError, MemoryError) as error:
        raise UsageError(f"--format {wanted}: {error or 'does not fit into memory.'}") from error
    summary = matrix.structure.summary()
    return f"{text}, {summary}" if summary else text
