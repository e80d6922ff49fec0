"""A sparse matrix as a list of entries, the form that every library's own matrices can be brought to."""

from __future__ import annotations

from typing import Any, NamedTuple


class Entries(NamedTuple):
    """Arrays of the library; duplicates add up, so that their order does not matter."""

    values: Any  # (nnz,)
    rows: Any  # (nnz,) integers
    cols: Any  # (nnz,) integers
    shape: tuple[int, int]
