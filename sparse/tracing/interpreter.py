"""The part of an interpreter of recorded functions that is the same for all libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Backend
from ..errors import UnsupportedOperation
from .engine import coefficients as co
from .engine.arithmetic import conjugate, convert
from .engine.limits import check_operations
from .engine.linear import Linear
from .engine.operands import MATRIX_FREE


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of all that lists and tuples hold.

    >>> mapped(abs, [-1, (2, [-3])])
    [1, (2, [3])]
    """
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(function, v) for v in value])
    return function(value)


def leaves_of(value: Any) -> Iterator[Any]:
    """All that lists and tuples hold."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from leaves_of(part)
    else:
        yield value


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
    """A value that is no `Conjugate`."""
    return conjugate(value.linear) if isinstance(value, Conjugate) else value


# --- interpreters -----------------------------------------------------------------------------------------------------


class Interpreter:
    """One trace: a recorded function followed with linear maps in place of the arrays that depend on the input.

    Three kinds of values meet: known ones (NumPy arrays), arrays of the library whose values or derivatives are being
    traced, and `Linear`s. Operations without a `Linear` are left to NumPy or to the library, so that derivatives
    follow; the others have a rule each.

    Attributes:
        bk: the backend of the function's library.
        keep_zeros: does a product with a known zero still depend on the input, for the sake of a steady structure?
        precision: the coarsest rounding unit of any array that depended on the input.
        largest: the largest known number that came up, if `watch` was asked for.
    """

    finfo: Callable[[Any], Any] = staticmethod(np.finfo)

    def __init__(self, bk: Backend, keep_zeros: bool = False, watch: bool = False) -> None:
        self.bk, self.keep_zeros, self.watch = bk, keep_zeros, watch
        self.precision, self.largest = 0.0, 0.0
        self._operations = 0  # of unrolled loops

    def note(self, values: Iterable[Any]) -> None:
        """Take note of the precision of what depends on the input."""
        for value in values:
            if isinstance(value, Linear):
                self.precision = max(self.precision, float(self.finfo(value.dtype).eps))

    def spend(self, operations: int) -> None:
        """Count the operations of an unrolled loop."""
        self._operations += operations
        check_operations(self._operations)

    def settled(self, value: Any) -> Any:
        """An array that does not depend on the input after all is an ordinary one."""
        if isinstance(value, Conjugate) and value.linear.is_zero:
            value = conjugate(value.linear)
        if not isinstance(value, Linear) or (value.terms if self.keep_zeros else not value.is_zero):
            return value
        plain = value.plain()
        return np.asarray(plain, value.dtype) if co.known(plain) else plain

    def by_rule(
        self, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], commutes: bool
    ) -> list[Any]:
        """The results of a rule; for conjugates the conjugates of its results for what they are conjugates of.

        This holds for an operation that commutes with conjugation, and where nothing else depends on a complex input.
        """
        turns = any(isinstance(leaf, Conjugate) for leaf in leaves_of([*args, *kwargs.values()]))
        if turns and not commutes:
            raise UnsupportedOperation(f"it is of a conjugate of the input. {MATRIX_FREE}")

        def turned(value: Any) -> Any:
            if isinstance(value, Conjugate):
                return value.linear
            return proper(self.bk, conjugated(self.bk, value))

        if turns:
            args, kwargs = mapped(turned, list(args)), {key: mapped(turned, v) for key, v in kwargs.items()}
        found = rule(*args, **kwargs)
        results = list(found) if isinstance(found, (list, tuple)) else [found]
        return [conjugated(self.bk, value) for value in results] if turns else results


def in_dtype(value: Linear, dtype: np.dtype) -> Linear:
    """A result in its dtype; numbers give way to the array's."""
    found = convert(value, dtype)
    if found.bias is None or not co.known(found.bias):
        return found
    return found.changed(found.terms, np.asarray(found.bias, found.dtype))
