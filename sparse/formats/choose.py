"""Choice of a format by the sparsity structure; a sample of rows is tested first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Backend
from .entries.integers import entries_in, evenly_spread

MOST_DIAGONALS = 40
_LEAST_FILLED = 0.3  # entries per place of the diagonals
_WIDEST_ELL = 1.3  # stored values per entry
_SAMPLE = 2000  # rows


class FormatChoice(NamedTuple):
    """A format and the reason for it, with the numbers."""

    format: str
    reason: str


def choose_format(bk: Backend, starts: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> FormatChoice:
    """The format for a matrix given by rows, for products on `bk`.

    Few, well filled diagonals: DIA. Else CSR where the library has a compiled product of rows (NumPy by SciPy,
    PyTorch), ELL where rows are about equally long, HYB for all other rows. Cost: a sample of 2000 rows, and one pass
    over the entries if these lie on few diagonals.
    """
    nnz = len(cols)
    if not nnz:
        return FormatChoice("csr", "it has no entries")
    sample = evenly_spread(shape[0], _SAMPLE)
    rows, there = entries_in(starts[sample], starts[sample + 1], cols, sample)
    if len(np.unique(there - rows)) <= MOST_DIAGONALS:
        diagonals = np.count_nonzero(_all_diagonals(starts, cols, shape))
        if diagonals <= MOST_DIAGONALS and nnz >= _LEAST_FILLED * diagonals * shape[0]:
            filled = nnz / (diagonals * shape[0])
            return FormatChoice("dia", f"{diagonals} diagonals, {filled:.0%} filled")
        why = f"{diagonals} diagonals, {nnz / (diagonals * shape[0]):.0%} filled"
    else:
        why = f"more than {MOST_DIAGONALS} diagonals"
    if bk.has_compiled_rows:
        return FormatChoice("csr", f"{why}; {bk.name} has a compiled product of rows")
    lengths = np.diff(starts)
    padding = int(lengths.max()) * shape[0] / nnz
    text = f"{why}; rows of at most {lengths.max()} entries: {padding:.2f} stored values per entry if all are that long"
    return FormatChoice("ell" if padding <= _WIDEST_ELL else "hyb", text)


def _all_diagonals(starts: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    rows = np.repeat(np.arange(shape[0], dtype=np.int64), np.diff(starts))
    return np.bincount(cols - rows + (shape[0] - 1))
