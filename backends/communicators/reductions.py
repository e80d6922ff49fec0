"""A library's backend whose reductions over unknowns are summed over the members of a communicator.

Vectors are this member's parts. What a step of a method computes of them for all members goes through the functions
below and through no other: sums of anything else (coefficients of a basis, counts) are the same in every member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..interface.arrays import Array, scattered
from ..interface.backend import Backend
from ..registry import loaded_backends

# While something uses them: a process group that outlived its program would end the process with an error.
_bound: WeakValueDictionary[Any, Backend] = WeakValueDictionary()
_lock = Lock()


def over_members(bk: Backend, over: Any) -> Backend:
    """The backend for parts of vectors; the same object for the same communicator, as long as something uses it.

    Args:
        over: what the user gave, see `linear_solve`.

    Raises:
        TypeError: it is none for arrays of this library.
        ValueError: it is none now.
    """
    communicator = communicator_of(bk, over)
    key = bk.name, communicator.key
    with _lock:
        found = _bound.get(key)
        if found is None:
            found = _bound[key] = _made(bk, communicator)
    return found


def find_communicator(over: Any) -> Any:
    """The `Communicator` of what a user gave, whatever the library of his arrays; None if it is none of any library."""
    for bk in loaded_backends():
        with suppress(ValueError):  # none now: said where the library of the arrays is known
            if (found := bk._communicator(over)) is not None:
                return found
    return None


def communicator_of(bk: Backend, over: Any) -> Any:
    """The `Communicator` of what a user gave, for arrays of this library.

    Raises:
        TypeError, ValueError: see `over_members`.
    """
    found = bk._communicator(over)
    if found is not None:
        return found
    got = f"over={over!r} ({type(over).__module__}.{type(over).__name__}) was given with arrays of {bk.name}"
    if bk._communicators:
        raise TypeError(f"{got}; expected {bk._communicators}.")
    raise TypeError(
        f"{got}, which has no communicators; expected arrays of NumPy (with mpi4py), PyTorch (a process group) or JAX "
        "(mesh axes inside jax.shard_map)."
    )


def _made(bk: Backend, communicator: Any) -> Backend:
    made: Backend = _class_over_members(type(bk))()
    made.__dict__.update(vars(bk), communicator=communicator, alone=bk)
    return made


@cache
def _class_over_members(cls: Any) -> Any:
    bases = (*cls._of_members, SumsOverMembers, cls)
    return type(f"{cls.__name__}OfMembers", bases, {"__module__": __name__})


class SumsOverMembers(Backend):
    """The functions that reduce, each one message.

    Attributes:
        alone: the library's own backend, whose reductions are those of one part.
    """

    alone: Backend

    def dot(self, a: Array, b: Array) -> Array:
        return self.communicator.sum(self.alone.dot(a, b))

    def dots(self, *pairs: tuple[Array, Array]) -> tuple[Array, ...]:
        sums = self.communicator.sum(self.concat(self.alone.dots(*pairs), 1))
        return tuple(sums[:, k : k + 1] for k in range(len(pairs)))

    def square_norm(self, v: Array) -> Array:
        return self.communicator.sum(self.alone.square_norm(v))

    def axpy_norm(self, a: Array, x: Array, y: Array) -> tuple[Array, Array]:
        y, square = self.alone.axpy_norm(a, x, y)
        return y, self.communicator.sum(square)

    def stack_dots(self, stack: Array, v: Array) -> Array:
        return self.communicator.sum(self.alone.stack_dots(stack, v))

    def max_abs(self, v: Array) -> Array:
        largest = self.alone.max_abs(v)
        # of a NaN and a number, members could take one or the other
        return self.communicator.max(self.where(largest == largest, largest, self.full_like(largest, np.inf)))

    def norm(self, v: Array) -> Array:
        return Backend.norm(self, v)

    def binary_scale(self, v: Array) -> Array:
        return Backend.binary_scale(self, v)

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        return function(*blocks)  # whose sums are those of all members, so it is called once

    def unknowns(self, v: Array) -> int:
        return self.communicator.sum_of_numbers([int(v.shape[1])])[0]

    def scatter_numbers(self, n: int, dtype: np.dtype, like: Array) -> Array:
        """Other numbers in each member: vectors that repeat from part to part could be blind to some of A."""
        first = 1 + n * self.communicator.rank
        return self.asarray(scattered(np, np.arange(first, first + n, dtype=np.float64)), dtype, like)

    # --- nothing that looks at arrays of one part, or leaves its library

    def rows_on_host(self, rows: Array) -> np.ndarray | None:
        return None

    def host_view(self, x: Array) -> np.ndarray | None:
        return None

    def may_leave_to_host(self, b: Array, *arrays: Any) -> bool:
        return False

    def can_rescue(self) -> bool:
        return False

    def sets_up_by_host(self) -> bool:
        return False

    def compiles_numbers(self, x: Array) -> bool:
        return False

    def spreads_arrays(self) -> bool:
        return False

    def register(
        self,
        cls: type,
        flatten: Callable[[Any], Any],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        self.alone.register(cls, flatten, unflatten)
