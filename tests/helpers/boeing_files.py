"""Harwell-Boeing and Rutherford-Boeing files, written by their definition."""

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp


def fields(values: Iterable[object], per_line: int, form: str) -> list[str]:
    words = [form.format(value) for value in values]
    return ["".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]


def exponents(values: np.ndarray, letter: str = "E") -> list[str]:
    real = values.view(np.float64) if values.dtype.kind == "c" else values
    return [f"{value:.17E}".replace("E", letter) for value in real]


def boeing(A: sp.sparray, kind: str, letter: str = "E", b: np.ndarray | None = None) -> bytes:
    """The file of a matrix; of a symmetric kind the lower triangle is stored. `b` makes it Harwell-Boeing.

    Args:
        kind: three letters, such as "rua".
        letter: of the exponent, E or D.
    """
    shown, kind = kind, kind.lower()
    stored = sp.csc_array(A if kind[1] in "ur" else sp.tril(A, -1 if kind[1] == "z" else 0))
    stored.sort_indices()
    starts, rows = (fields(x + 1, 8, "{:10d}") for x in (stored.indptr, stored.indices))
    if kind[0] == "p":
        values = []
    elif kind[0] == "i":
        values = fields(stored.data.astype(int), 7, "{:11d}")
    else:
        values = fields(exponents(stored.data, letter), 3, "{:>26}")
    sides = [] if b is None else fields(exponents(b.T.reshape(-1), letter), 3, "{:>26}")
    counts = [len(starts), len(rows), len(values)]
    form = "(7I11)" if kind[0] == "i" else f"(1P,3{letter}26.17)" if letter == "E" else "(3D26.17)"
    head = [
        f"{'a matrix of a test':<72}{'TEST':<8}",
        "".join(f"{count:14d}" for count in [sum(counts) + len(sides), *counts, *([] if b is None else [len(sides)])]),
        f"{shown:<14}" + "".join(f"{count:14d}" for count in (*A.shape, stored.nnz, 0)),
        f"{'(8I10)':<16}{'(8I10)':<16}{form if kind[0] != 'p' else '':<20}{form if b is not None else '':<20}".rstrip(),
        *([] if b is None else [f"{'F':<14}{b.shape[1]:14d}{0:14d}"]),
    ]
    return "\n".join([*head, *starts, *rows, *values, *sides, ""]).encode()
