"""Operands, which depend on the input or do not, and the errors that rules raise about them.

Errors name neither the operation nor the user's line, which the front end adds (`messages.Reporter`).

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> bk = get_backend("numpy")
>>> u = identity(bk, (2, 3), float)
>>> [shape_of(reshaped(bk, x, (6,))) for x in (u, np.zeros((2, 3)))]
[(6,), (6,)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ....backends import Backend
from ...errors import NonlinearError, UnsupportedOperation
from . import coefficients as co
from .arithmetic import add, convert, scale
from .coefficients import Coefficient
from .linear import Linear, linear_among, reshape
from .positions import select, take
from .structural import Config, broadcast_to, pad, reverse, transpose

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
    """The values of an operand that decides the structure of the matrix."""
    if not co.known(value):
        raise static_needed(what, value)
    return np.asarray(value)


def integers(what: str, value: Any) -> list[int]:
    """As `static`, a list of numbers of Python."""
    return [int(n) for n in static(what, value).reshape(-1)]


# --- operations on either kind of operand -----------------------------------------------------------------------------

Operand: TypeAlias = Linear | Coefficient


def shape_of(x: Operand) -> tuple[int, ...]:
    """Its shape."""
    return x.shape if isinstance(x, Linear) else co.shape_of(x)


def spread(bk: Backend, x: Operand, shape: Sequence[int]) -> Operand:
    """Repeated to this shape."""
    return broadcast_to(x, shape) if isinstance(x, Linear) else co.broadcast_to(bk, x, shape)


def permuted(bk: Backend, x: Operand, axes: Sequence[int]) -> Operand:
    """With its axes in this order."""
    return transpose(x, axes) if isinstance(x, Linear) else co.transpose(bk, x, axes)


def reshaped(bk: Backend, x: Operand, shape: Sequence[int]) -> Operand:
    """In another shape."""
    return reshape(x, shape) if isinstance(x, Linear) else co.reshape(bk, x, shape)


def taken(bk: Backend, x: Operand, positions: np.ndarray) -> Operand:
    """Its elements at flat positions; zero where one is -1."""
    return take(x, positions) if isinstance(x, Linear) else co.take(bk, co.reshape(bk, x, (-1,)), positions)


def plus(a: Any, b: Any) -> Any:
    """a + b, for arrays that are computed with as they are."""
    return add(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else a + b


def complex_of(bk: Backend, real: Operand, imaginary: Operand, dtype: np.dtype) -> Operand:
    """`real + i imaginary` in a complex dtype."""
    real, x = (convert(v, dtype) if isinstance(v, Linear) else co.cast(bk, v, dtype) for v in (real, imaginary))
    turned = scale(x, 1j) if isinstance(x, Linear) else co.multiply(bk, x, dtype.type(1j))
    return add(real, turned) if isinstance(real, Linear) or isinstance(x, Linear) else co.add(bk, real, turned)


def padded(bk: Backend, x: Operand, config: Config, fill: Operand = 0) -> Operand:
    """With a number around."""
    if isinstance(fill, Linear):
        around = co.pad_known(np.zeros(shape_of(x), fill.dtype), config, 1)
        return add(padded(bk, x, config), scale(fill, around))
    return pad(x, config, fill) if isinstance(x, Linear) else co.pad(bk, x, config, fill)


def flipped(bk: Backend, x: Operand, axes: Sequence[int]) -> Operand:
    """The order reversed along axes."""
    return reverse(x, axes) if isinstance(x, Linear) else co.flip(bk, x, axes)


# --- selection by a condition -----------------------------------------------------------------------------------------


def where(condition: Any, a: Operand, b: Operand) -> Linear:
    """`np.where`, for a known or traced condition."""
    if isinstance(condition, Linear):
        raise static_needed("condition", condition)
    bk, shape = linear_among([a, b], "where").bk, np.broadcast_shapes(*map(shape_of, (condition, a, b)))
    return select(co.broadcast_to(bk, condition, shape), [spread(bk, case, shape) for case in (b, a)])


def triangle(x: Linear, of: Callable[..., np.ndarray], diagonal: int = 0) -> Linear:
    """`of` is `np.tril` or `np.triu`."""
    return where(of(np.ones(x.shape[-2:], bool), diagonal), x, np.zeros((), x.dtype))
