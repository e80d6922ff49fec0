"""State of one run of a function with stand-ins."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends.numpy.lending import StandIn
from ..engine.linear import Linear
from . import messages
from .array import TracedArray
from .buffer import Buffer
from .values import Value

_ARRAYS = (np.ndarray, np.memmap, np.recarray)


class Tracing:
    """Makes stand-ins and takes them apart.

    Attributes:
        keep_zeros: does a product with a known zero still depend on the input?
        precision: the coarsest rounding unit of any array that depended on the input.
    """

    def __init__(self, keep_zeros: bool) -> None:
        self.keep_zeros, self.precision = keep_zeros, 0.0
        self._open = True

    def close(self) -> None:
        """The function has returned; stand-ins that it kept are of no use."""
        self._open = False

    def argument(self, value: Linear) -> TracedArray:
        """A stand-in for an argument, whose memory the function may not write to."""
        buffer = Buffer(value)
        buffer.ghost.flags.writeable = False
        self.seen(value)
        return TracedArray(self, buffer, buffer.ghost.view())

    def seen(self, value: Linear) -> None:
        """Take note of the precision."""
        self.precision = max(self.precision, float(np.finfo(value.dtype).eps))

    def settled(self, value: Value) -> Value:
        """An array that does not depend on the input after all is an ordinary one."""
        if not isinstance(value, Linear) or (value.terms if self.keep_zeros else not value.is_zero):
            return value
        return np.asarray(value.plain(), value.dtype)

    def wrap(self, result: Any, is_scalar: bool | None = None) -> Any:
        """What a function of NumPy returns; arrays of numbers as stand-ins, as they may be written to later."""
        if isinstance(result, list | tuple):
            return type(result)(self.wrap(part) for part in result)
        if isinstance(result, Linear):
            self.seen(result)
            result = self.settled(result)
        elif not (isinstance(result, np.ndarray) and result.dtype.kind in "fc"):
            return result
        buffer = Buffer(result)
        return TracedArray(self, buffer, buffer.ghost, result.ndim == 0 if is_scalar is None else is_scalar)

    def value_of(self, x: Any) -> Any:
        """A stand-in's value, and numbers as NumPy sees them; lists with stand-ins are stacked by the caller."""
        if isinstance(x, StandIn):
            if not self._open:
                raise messages.opaque("use", "it is used after the function returned that it was an argument of.")
            return x.read()
        if isinstance(x, np.ndarray) and type(x) not in _ARRAYS:
            raise messages.opaque("call", f"another operand is a {type(x).__name__}, with products of its own.")
        if isinstance(x, np.generic):
            return np.asarray(x)  # its dtype counts, where those of Python's numbers give way
        if isinstance(x, list | tuple) and any(isinstance(part, StandIn | list | tuple) for part in x):
            return type(x)(self.value_of(part) for part in x) if not hasattr(x, "_fields") else x
        return x

    def known_key(self, key: Any) -> Any:
        """An index, which may not depend on the input."""
        if isinstance(key, tuple):
            return tuple(self.known_key(part) for part in key)
        if not isinstance(key, StandIn):
            return key
        value = self.value_of(key)
        if isinstance(value, Linear):
            raise messages.not_linear("getitem", "the index depends on it")
        return value
