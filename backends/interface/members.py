"""Vectors of which this process or device holds a part: reductions over unknowns, by names of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .arrays import Array


class Members:
    """Backend methods for them. Without a communicator, vectors are whole."""

    communicator: Any = None  # of the members that hold the parts of vectors, see `Communicator`
    _communicators: ClassVar[str] = ""  # what `over=` takes with arrays of the library
    _of_members: ClassVar[tuple[type, ...]] = ()  # what it needs beside `communicators.reductions.SumsOverMembers`

    product: Callable[[Array, Array], Array]

    def _communicator(self, over: Any) -> Any:
        """The `Communicator` of what a user gave as `over=`; None if it is none for arrays of this library."""
        return None

    def stack_dots(self, stack: Array, v: Array) -> Array:
        """`(k, n)` or `(batch, k, n)` and each row of `(batch, n)` -> `(batch, k)`: sums over n, nothing conjugated."""
        return self.product(stack, v)

    def unknowns(self, v: Array) -> int:
        """Length n of rows `(batch, n)`; of parts the sum over all members, at the cost of a message."""
        return int(v.shape[1])

    def replicated(self, x: Array) -> Array:
        """A number that is the same in all members, in the type of such a number."""
        return x
