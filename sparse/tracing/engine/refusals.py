"""What rules raise, without the operation and the user's line, which the front end adds (`messages.Reporter`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import NonlinearError, UnsupportedOperation
from . import coefficients as co
from .linear import Linear

MATRIX_FREE = "Leave it out of the traced function, or solve with the function itself instead of its matrix."


class NotLinear(NonlinearError):
    """The operation is not linear in the input; the text says why, and may be empty."""


class NotStatic(UnsupportedOperation):
    """A value that decides the structure of the matrix is not known while the function is traced."""


class NoRule(UnsupportedOperation):
    """The operation may be linear, but no table has a rule for it with these operands, or for this of its results."""

    def __init__(self, what: str = "these operands") -> None:
        super().__init__(f"it has no rule for {what}. {MATRIX_FREE}")


def static_needed(what: str, value: Any) -> Exception:
    """The error for a `value` that decides the structure; `what` it is, "index" or the like, is for the message."""
    if isinstance(value, Linear):
        return NotLinear(f"the {what} depends on it")
    return NotStatic(f"the {what} is not known while the function is traced, and the structure of a matrix must be.")


def static(what: str, value: Any) -> np.ndarray:
    """The values of an operand that decides the structure of the matrix.

    Raises:
        NotLinear: it depends on the input.
        NotStatic: it is not known.
    """
    if not co.known(value):
        raise static_needed(what, value)
    return np.asarray(value)


def integers(what: str, value: Any) -> list[int]:
    """As `static`, a list of numbers of Python."""
    return [int(n) for n in static(what, value).reshape(-1)]
