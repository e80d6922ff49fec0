"""Limits of memory, checked before it is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ....backends.settings import Setting
from ...errors import UnsupportedOperation

MAX_ENTRIES = 2**28  # about 4 GB of rows, columns and float64 values
INT32_LIMIT = 2**31
MAX_OPERATIONS = 20_000  # of unrolled loops


_entries: Setting[int | None] = Setting("most_entries", None, compiled=False)
_operations: Setting[int | None] = Setting("most_operations", None, compiled=False)
_open_ended: Setting[bool] = Setting("open_ended_operations", True, compiled=False)


def entries_at_most(count: int) -> AbstractContextManager[None]:
    """Refuse matrices with more entries: for whoever only looks whether there is a sparse one."""
    return _entries.local(count)


def operations_at_most(count: int) -> AbstractContextManager[None]:
    """Refuse functions whose loops, unrolled, have more: each takes up to half a millisecond."""
    return _operations.local(count)


def without_open_ended() -> AbstractContextManager[None]:
    """Refuse loops until a condition holds, solves inside, and calls of the host: for made-up numbers they may never
    end, fail, or do what nobody asked for.
    """
    return _open_ended.local(False)


def refuse_open_ended(is_open_ended: Callable[[Any], bool], operation: Any) -> None:
    """Refuse an open-ended operation where `without_open_ended` is entered."""
    if not _open_ended.get() and is_open_ended(operation):
        raise UnsupportedOperation("it is not run with made-up numbers, for which it may not end.")


def check_entries(count: int, what: str) -> None:
    """Refuse more stored entries than fit."""
    most = min(MAX_ENTRIES, _entries.get() or MAX_ENTRIES)
    if count > most:
        raise UnsupportedOperation(
            f"{what} would make a matrix with {count:,} stored entries; at most {most:,} fit. A sum "
            "over everything or a transform couples all unknowns: solve with the function itself, not its matrix, or "
            "leave this part out of the traced function and add it as a low-rank term."
        )


def check_rows(shape: Sequence[int], what: str) -> None:
    """Refuse an array whose elements cannot be counted in int32."""
    if math.prod(shape) >= INT32_LIMIT:
        raise UnsupportedOperation(
            f"{what} has {math.prod(shape):,} elements, and indices of a matrix are int32, below {INT32_LIMIT:,}. "
            "Trace a smaller problem, or solve with the function itself instead of its matrix."
        )


def check_operations(count: int) -> None:
    """Refuse more operations of unrolled loops in one trace than are worth their time."""
    most = min(MAX_OPERATIONS, _operations.get() or MAX_OPERATIONS)
    if count > most:
        raise UnsupportedOperation(
            f"unrolled, the loops of this function have more than {most:,} operations that depend on the "
            "input. Trace the body of the loop instead, or solve with the function itself instead of its matrix."
        )
