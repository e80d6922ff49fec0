"""What a file holds: a matrix, and with some forms a right-hand side beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Contents(NamedTuple):
    """Attributes:
    matrix: a dense array, or a sparse matrix of SciPy; of a file that was asked for a right-hand side, that one.
    part: what it is called inside of the file; "" where the file holds nothing else.
    rhs: the right-hand side beside it, or None.
    rhs_part: what that is called.
    """

    matrix: Any
    part: str = ""
    rhs: Any = None
    rhs_part: str = ""


def chosen(part: str | None, names: Sequence[str], found: Sequence[str], what: str, file: str) -> str:
    """The part that was asked for, or the only one that it can be.

    Args:
        part: what was asked for, if anything.
        names: what there is.
        found: of these, what it can be unasked.
        what: what is looked for, in words.
        file: what to call the file in a message.

    Raises:
        ValueError: there is no such part, or none, or several.
    """
    if part is not None:
        if part in names:
            return part
        raise ValueError(f"{file}: holds nothing called {part!r}; it has {_listed(names)}.")
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"{file}: holds no {what}; it has {_listed(names)}.")
    raise ValueError(
        f"{file}: holds several that may be the {what}; say which: {file}:{found[0]}, or {_listed(found[1:])}."
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) < 60 else f"{name[:57]}..." for name in names[:8])
    return (shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "nothing"
