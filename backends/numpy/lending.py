"""Arrays that a user's function gets: read-only views, copies for compiled code that asks for writable memory, proxies.

NumPy refuses writes to read-only memory, and so do Cython, pybind11 and numba, also where nothing would be written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..interface.arrays import WRITES

REFUSALS = (ValueError, TypeError, RuntimeError, BufferError)  # of read-only memory
_WORDS = ("read-only", "readonly", "not writeable", "not writable")  # in their messages
_NUMPYS = ("assignment destination is", "output array is")  # which it says where something is written
_harmless: weakref.WeakSet[Any] = weakref.WeakSet()  # what was seen to ask for writable memory, and not to write


def with_copies(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    whole: Callable[[Sequence[Any]], Any],
    args: Sequence[Any],
    error: Exception,
) -> Any:
    """Call `function(whole(arrays), *args)` on copies, after it raised `error` with read-only memory.

    Raises:
        ValueError: it writes to one of the arrays.
        Exception: `error`, where that tells of something else.
    """
    what = str(error)
    if not any(word in what for word in _WORDS) or not all(isinstance(x, np.ndarray) for x in arrays):
        raise error
    copies = [x.copy() for x in arrays]
    image = function(whole(copies), *args)  # raises again where the read-only memory is another one
    owner = getattr(function, "__self__", function)  # bound methods are made anew for each call
    with suppress(TypeError):  # of what cannot be remembered, and is looked at each time
        if owner in _harmless:
            return image
    same = all(np.array_equal(x, copy, equal_nan=True) for x, copy in zip(arrays, copies, strict=True))
    if not same or what.startswith(_NUMPYS):
        raise ValueError(WRITES.format("x += y or x[0] = 0", "x.copy()")) from error
    if all(x.all() for x in arrays):  # else zeros may have been set to zero
        with suppress(TypeError):
            _harmless.add(owner)
    return image


class StandIn:
    """Array proxy: attributes, methods and operators of an array, but no values."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'{type(self).__name__}', which stands in for an array of NumPy, has no {name!r}.")
