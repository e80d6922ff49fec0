"""Values in a recorded function: what depends on the input, on its conjugate, or on neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Backend
from .engine import coefficients as co
from .engine.arithmetic import conjugate
from .engine.linear import Linear


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of all that lists and tuples hold.

    >>> mapped(abs, [-1, (2, [-3])])
    [1, (2, [3])]
    """
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(function, v) for v in value])
    return function(value)


# --- conjugates -------------------------------------------------------------------------------------------------------
# `conj(x)` has no matrix, but `conj(conj(x) * c)` has one, and PyTorch and TensorFlow compute derivatives like that.
# What is true of an array is true of its conjugate, as long as the operation itself commutes with conjugation.


@dataclass(frozen=True, slots=True)
class Conjugate:
    """The conjugate of a `Linear` of a complex input."""

    linear: Linear


def conjugated(bk: Backend, value: Any) -> Any:
    """The conjugate of any value."""
    if isinstance(value, Conjugate):
        return value.linear
    if isinstance(value, Linear):
        if value.is_zero:  # and stays known to be: the terms tell the structure only
            value = value.changed([term._replace(values=None) for term in value.terms], value.bias)
        is_itself = value.dtype.kind != "c" or value.real_input or value.is_zero
        return conjugate(value) if is_itself else Conjugate(value)
    if isinstance(value, (complex, np.generic)):
        return value.conjugate()
    if isinstance(value, np.ndarray) or bk.is_array(value):
        return co.side(bk, value).conj(value) if co.dtype_of(bk, value).kind == "c" else value
    return value


def proper(bk: Backend, value: Any) -> Any:
    """A value that is no `Conjugate`.

    Raises:
        UnsupportedOperation: it is one.
    """
    return conjugate(value.linear) if isinstance(value, Conjugate) else value


def on_conjugates(bk: Backend, rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """A rule for operands of which some are conjugates: the conjugate of its results for their conjugates.

    Raises:
        UnsupportedOperation: others depend on a complex input, too.
    """

    def turned(value: Any) -> Any:
        if isinstance(value, Conjugate):
            return value.linear
        return proper(bk, conjugated(bk, value))

    found = rule(*mapped(turned, args), **{key: mapped(turned, v) for key, v in kwargs.items()})
    return [conjugated(bk, value) for value in (found if isinstance(found, (list, tuple)) else [found])]
