"""Loops: Python's own where arrays have values, compiled ones where they do not."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import index
from typing import Any

import numpy as np

from .arrays import Array
from .structure import Opened, flatten_with_structure


class Loops(ABC):
    """Backend methods for them."""

    asarray: Callable[..., Array]
    copy: Callable[[Array], Array]
    stack: Callable[[Sequence[Array]], Array]
    unleaves: Callable[[Any, Sequence[Array]], Any]
    _open_container: Callable[[Any], Opened | None]

    def while_loop(
        self,
        condition: Callable[[Any], Any],
        body: Callable[[Any], Any],
        state: Any,
        max_iter: int | Sequence[int] | None = None,
    ) -> Any:
        """Python's `while` where arrays have values, the library's loop where they do not.

        Args:
            condition: of the state, whether to go on: one truth value.
            body: from one state, an array or a container of arrays, to the next.
            max_iter: the loop ends after so many steps. Several, increasing: the states after so many steps each,
                stacked along a new first axis; where the loop ended before, the last one.
        """
        if not callable(body):
            raise TypeError(
                f"while_loop got a {type(body).__name__} in the place of the body; expected "
                "while_loop(condition, body, state, max_iter)."
            )
        if max_iter is None:
            return self._while_loop(condition, body, state)
        limits = _limits(max_iter)
        return (self._stacked_loop if np.ndim(max_iter) else self._bounded_loop)(condition, body, state, limits)

    def _while_loop(self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
        while condition(state):
            state = body(state)
        return state

    def _bounded_loop(
        self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, limits: Sequence[int]
    ) -> Any:
        """The state after at most `limits[0]` steps."""
        for _ in range(limits[0]):
            if not condition(state):
                break
            state = body(state)
        return state

    def _stacked_loop(
        self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, limits: Sequence[int]
    ) -> Any:
        """The states after at most so many steps each, stacked."""
        states, done = [], 0
        for limit in limits:
            state = self._bounded_loop(condition, body, state, [limit - done])
            # Not `leaves`, for which a tuple of numbers is one array: NumPy makes numbers of arrays without axes.
            leaves, structure = flatten_with_structure(state, self._open_container)
            states.append([self.copy(self.asarray(x)) for x in leaves])  # bodies may overwrite them
            done = limit
        return self.unleaves(structure, [self.stack(column) for column in zip(*states, strict=True)])

    def for_loop(self, count: int, body: Callable[[Any], Any], state: Any) -> Any:
        """Apply `body` `count` times: a compiled loop for traced arrays, with forward and reverse derivatives."""
        for _ in range(count):
            state = body(state)
        return state

    def _counted(self, count: int, body: Callable[[Any], Any], state: Any) -> Any:
        """`for_loop` by `while_loop`, for libraries whose loops have both derivatives."""
        first = self.asarray(np.zeros((), np.int32))
        return self.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, body(s[1])), (first, state))[1]


def _limits(max_iter: Any) -> list[int]:
    given = list(max_iter) if np.ndim(max_iter) else [max_iter]
    limits = [index(limit) for limit in given]
    if not limits or limits[0] < 0 or any(a >= b for a, b in pairwise(limits)):
        raise ValueError(f"max_iter={max_iter!r}; expected a number of steps from 0 on, or increasing ones.")
    return limits
