"""The matrix that `krylix inspect` reports on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..sparse.analysis.facts import canonical
from .errors import UsageError
from .files import name_of, read_matrix
from .system import read_example


@dataclass(frozen=True)
class Inspected:
    """A matrix on the host.

    Attributes:
        A: `csr_array` of any shape, without duplicates and zeros.
        source: where it comes from, in words.
        sparse: was it stored as a sparse matrix?
        stored: number of entries that were stored.
        duplicates: how many of these came after another one of the same place.
        zeros: how many were zero.
    """

    A: Any
    source: str
    sparse: bool
    stored: int
    duplicates: int
    zeros: int


def load(options: argparse.Namespace) -> Inspected:
    """Read the file, or the example.

    Raises:
        UsageError: a file that cannot be used.
    """
    if options.example is not None:
        found = read_example(options.example)
        return _inspected(found, found, f"example {options.example} (pyamg)")
    try:
        file = read_matrix(options.matrix)
        return _inspected(file.stored, file.A, file.source)
    except MemoryError as error:
        raise UsageError(f"{name_of(options.matrix)}: does not fit into memory.") from error


def _inspected(raw: Any, ready: Any, source: str) -> Inspected:
    A = canonical(ready)
    if not sp.issparse(raw):
        return Inspected(A, source, False, raw.size, 0, int(raw.size - np.count_nonzero(raw)))
    entries = raw.tocoo()
    zeros = int(entries.nnz - np.count_nonzero(entries.data))
    places = sp.csr_array((np.ones(entries.nnz, np.int8), entries.coords), entries.shape).nnz
    return Inspected(A, source, True, entries.nnz, entries.nnz - places, zeros)
