"""The products of `matvec` once more, after `tune_malloc`. That cannot be undone, so this is the last of the groups."""

from __future__ import annotations

from collections.abc import Iterator

from krylix.backends.settings import tune_malloc

from .matvec import rows as matvec_rows
from .settings import Settings
from .table import Row


def rows(settings: Settings) -> Iterator[Row]:
    if tune_malloc():
        yield from matvec_rows(settings, ", tuned malloc")
    else:
        yield Row("products in jit, tuned malloc", "BCOO", missing="tune_malloc needs Linux with glibc")
