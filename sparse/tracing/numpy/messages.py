"""The errors of tracing for an operation of NumPy, at the line of the user's that called it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from ...errors import NonlinearError, UnsupportedOperation
from .. import messages
from ..engine.linear import Linear
from ..messages import Operation, kind_of, place_of
from ..opaque import OpaqueFunction
from .values import NotFollowed

_LIBRARIES = tuple(f"{Path(str(module.__file__)).parent}/" for module in (np, scipy))
PROBING = "matrix_from_function(f, like) finds the matrix of such a function by evaluating it."


def operation(name: str, values: list[Any]) -> Operation:
    """What is being done now, to which operands."""
    operands = [v for v in values if isinstance(v, Linear | np.ndarray | np.number)]
    return Operation(name, place_of(_frames()), [kind_of(value, known=True) for value in operands])


def opaque(name: str, why: str) -> OpaqueFunction:
    """The input goes where it cannot be followed."""
    return messages.opaque(Operation(name, place_of(_frames()), ["input-dependent"]), f"{why} {PROBING}")


def refused(name: str, why: str) -> UnsupportedOperation:
    """The operation is not allowed."""
    return messages.unsupported(Operation(name, place_of(_frames()), ["input-dependent"]), why)


def not_linear(name: str, why: str | None = None) -> NonlinearError:
    """The operation needs the values of what depends on the input."""
    return messages.nonlinear(Operation(name, place_of(_frames()), ["input-dependent"]), why)


def translated(error: Exception, name: str, values: list[Any]) -> Exception:
    """An error of a rule or of the engine, with the place and the operands."""
    where = operation(name, values)
    if isinstance(error, NotFollowed):
        return messages.opaque(where, f"{error} {PROBING}")
    return messages.located(error, where)


def _frames() -> Iterator[tuple[str, int, str]]:
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
