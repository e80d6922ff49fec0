"""Operations on values (a `Linear` depends on the input, an array of NumPy does not), and the errors about them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy

from ....backends import get_backend
from ...errors import NonlinearError, UnsupportedOperation
from .. import messages
from ..engine import structural
from ..engine.arithmetic import add, convert, real_part
from ..engine.linear import Linear
from ..engine.operands import permuted, reshaped, spread, taken
from ..messages import OpaqueFunction, Operation, kind_of, place_of

Value: TypeAlias = Any  # Linear or np.ndarray
HOST = get_backend("numpy")
reshape, transpose, broadcast, take = (partial(f, HOST) for f in (reshaped, permuted, spread, taken))


class NotFollowed(Exception):
    """What a function does with these arguments may be linear, but is not known here."""


def as_linear(value: Value) -> Linear:
    """An array that does not depend on the input, as one that may."""
    if isinstance(value, Linear):
        return value
    value = np.asarray(value)
    return Linear(HOST, value.shape, value.shape, value.dtype, (), value)


def assigned(x: Value, shape: Sequence[int]) -> Value:
    """As `broadcast`, where more axes of length 1 in front may fall away, as they do in assignments."""
    x = x if isinstance(x, Linear) else np.asarray(x)
    extra = x.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in x.shape[:extra]):
        x = reshape(x, x.shape[extra:])
    return broadcast(x, shape)


def concatenate(parts: Sequence[Value], axis: int) -> Value:
    """Along an axis."""
    if any(isinstance(part, Linear) for part in parts):
        return structural.concatenate([p if isinstance(p, Linear) else np.asarray(p) for p in parts], axis)
    return np.concatenate(parts, axis)


def cast(x: Value, dtype: Any) -> Value:
    """In another dtype, as `astype` does it."""
    dtype = np.dtype(dtype)
    if not isinstance(x, Linear):
        return np.asarray(x).astype(dtype, copy=False)
    if x.dtype.kind == "c" and dtype.kind == "f":
        x = real_part(x)
    return convert(x, dtype)


def plus(a: Value, b: Value) -> Value:
    """a + b."""
    return add(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else np.add(a, b)


# --- errors -----------------------------------------------------------------------------------------------------------

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
