"""Control flow, states that change for some systems only, and calls of the host from compiled programs.

Loops are Python's own where arrays have values, compiled ones where they do not.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from operator import index
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .arrays import Array, Spec
from .containers import Opened, flatten_with_structure, tree_leaves, tree_map


def _limits(max_iter: Any) -> list[int]:
    given = list(max_iter) if np.ndim(max_iter) else [max_iter]
    limits = [index(limit) for limit in given]
    if not limits or limits[0] < 0 or any(a >= b for a, b in pairwise(limits)):
        raise ValueError(f"max_iter={max_iter!r}; expected a number of steps from 0 on, or increasing ones.")
    return limits


# --- Control flow, masked state updates, and host callbacks from compiled programs ------------------------------------


class Kept(NamedTuple):
    """Persistent reference to a handler in a compiled program that another process may load.

    Attributes:
        name: the same for handlers that do the same, in every process.
        policy: what is done where no handler of this name is there any more: "raise" and "warn" tell `otherwise` if the
            first operand holds True, "keep" returns the operands after the first, "need" raises.
        otherwise: a message.
    """

    name: str
    policy: str
    otherwise: str = ""


class Control(ABC):
    """Backend methods for loops, branches, states that change for some systems only, and calls of the host."""

    asarray: Callable[..., Array]
    copy: Callable[[Array], Array]
    stack: Callable[[Sequence[Array]], Array]
    unleaves: Callable[[Any, Sequence[Array]], Any]
    _open_container: Callable[[Any], Opened | None]
    to_numpy: Callable[[Array], np.ndarray]
    dtype: Callable[[Array], np.dtype]
    where: Callable[[Array, Any, Any], Array]
    xp: Any
    is_eager: ClassVar[bool]
    updates_in_place: ClassVar[bool]

    # --- loops --------------------------------------------------------------------------------------------------------

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

    def _up_to(
        self, condition: Callable[[Any], Any], body: Callable[[Any], Any], done: Any, state: Any, limit: Any
    ) -> Any:
        """`(done, state)` after further steps of a compiled loop, until `limit` of them are done."""
        return self._while_loop(
            lambda s: (s[0] < limit) & condition(s[1]), lambda s: (s[0] + 1, body(s[1])), (done, state)
        )

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

    # --- branches and updates of states -------------------------------------------------------------------------------

    def compiles_numbers(self, x: Array) -> bool:
        """Are loops over such arrays compiled, at the cost of a kernel for each scalar of their state?"""
        return False

    def cond(self, predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
        """One of two branches; only the chosen one runs."""
        return if_true(*operands) if predicate else if_false(*operands)

    def where_needed(self, predicate: Any, function: Callable[[], Sequence[Array]]) -> list[Array]:
        """`function()` if `predicate` holds, else arrays of the same shapes with unspecified values.

        A compiled program computes them only then, unless `function` runs for several devices or lanes at once.
        """
        return list(function())

    def step_active(self, step: Callable[[Any], Any], state: Any, active: Array) -> Any:
        """`step(state)` for the systems where `active` `(batch, 1)`, the old state for the others."""
        if active.shape[0] == 1:
            return step(state)  # the loop runs only while a system is active
        if not self.updates_in_place:
            return select(self, active, step(state), state)
        if bool(active.all()):
            return step(state)
        # Steps overwrite the state, so the finished systems are saved and restored.
        finished = self.xp.nonzero(~active[:, 0])[0]
        before = [leaf[finished] for leaf in tree_leaves(state)]
        new = step(state)
        for leaf, old in zip(tree_leaves(new), before, strict=True):
            leaf[finished] = old
        return new

    # Where arrays are not to be written to, each of these is a pass over all of them.

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        """`buffer[row[i], i] = values[i]` for each system where `active`; `(rows, batch)`, the others `(batch, 1)`."""
        if self.updates_in_place:
            systems = self.xp.nonzero(active[:, 0])[0]
            buffer[row[systems, 0], systems] = values[systems, 0]
            return buffer
        row, active, values = (self.xp.matrix_transpose(x) for x in (row, active, values))
        return self.where(active & (self._numbers(buffer.shape[0], row)[:, None] == row), values, buffer)

    def put_row(self, stack: Array, row: Array, values: Array) -> Array:
        """`stack[i, row[i]] = values[i]` for each i whose row exists; may overwrite `stack`.

        `(batch, rows, n)`, integers `(batch, 1)` and `(batch, n)`.
        """
        if self.updates_in_place:
            systems = self.xp.nonzero(row[:, 0] < stack.shape[1])[0]
            stack[systems, row[systems, 0]] = values[systems]
            return stack
        there = self._numbers(stack.shape[1], row)[None, :] == row
        return self.where(there[:, :, None], values[:, None, :], stack)

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        """`rows[:, start : start + k] = values`, all of it inside; may overwrite `rows`.

        `(batch, n)`, integer `(1,)` and `(batch, k)`.
        """
        first, last = int(start[0]), int(start[0]) + int(values.shape[1])
        if not self.updates_in_place:
            return self.xp.concat([rows[:, :first], values, rows[:, last:]], axis=1)
        rows[:, first:last] = values
        return rows

    def _numbers(self, count: int, like: Array) -> Array:
        return self.asarray(np.arange(int(count), dtype=self.dtype(like)), like=like)

    def errstate(self) -> AbstractContextManager[Any]:
        """Context without floating-point warnings and without recording of derivatives: the loop checks by itself."""
        return np.errstate(all="ignore") if self.is_eager else nullcontext()

    # --- the host -----------------------------------------------------------------------------------------------------

    def rows_on_host(self, rows: Array) -> np.ndarray | None:
        """Rows `(batch, n)` as read-only NumPy arrays, for a NumPy loop around products of the library.

        None where such a loop takes longer, as the length of a row says, never the number of rows; and where it may not
        be: for arrays without a value, on another device, or watched by somebody.
        """
        return None

    def from_host(self, x: np.ndarray, like: Array | None = None) -> Array:
        """An array of the library on the CPU, in the memory of `x` where that can be: the caller gives it away."""
        return self.asarray(x, like=like)

    def in_host_call(self, x: np.ndarray, like: Array | None = None) -> Array:
        """An array of the library for a user's function that a loop calls on the host; takes the memory of `x`."""
        return self.from_host(x, like)

    def may_leave_to_host(self, b: Array, *arrays: Any) -> bool:
        """May NumPy compute with b, and arrays in these containers, what a program would be compiled for?

        Where they lie in its memory, on the only device, with values, and nobody watches what the library does.
        """
        return False

    def results_from_host(self, arrays: Sequence[np.ndarray], like: Array) -> Sequence[Array]:
        """Convert NumPy results to arrays of the library as a program with `like` returns; hands memory over."""
        return [self.asarray(array, like=like) for array in arrays]

    def host_call(self, function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array) -> tuple[Array, ...]:
        """Call `function` with NumPy arrays; it returns a tuple of arrays of the declared shapes and dtypes.

        With nothing to return it is called for its side effect.
        """
        found = function(*(self.to_numpy(x) for x in arrays))
        results = as_declared(found if returns else (), returns)
        reference = self._reference(arrays)
        return tuple(self.asarray(r, like=reference) for r in results)

    def _reference(self, arrays: Sequence[Array]) -> Array | None:
        """The array whose device the results of a host call get."""
        return arrays[0] if arrays else None

    def can_ask_host(self) -> bool:
        """May a loop of the program that is traced now ask the host after each step whether to go on?"""
        return True

    def can_rescue(self) -> bool:
        """May the program that is traced now call the host in `rescued`?"""
        return True

    def rescued(
        self,
        failed: Any,
        function: Callable[..., Any],
        found: Sequence[Array],
        *arrays: Array,
        name: Callable[[], str | None] = lambda: None,
    ) -> tuple[Array, ...]:
        """`found`, or where `failed` what `function(*arrays as NumPy)` finds, in the same shapes and dtypes.

        A compiled program calls the host only then. One that cannot, as it leaves this process or runs on several
        devices, keeps what was found. `name`: the function's, see `Kept`.
        """
        if not failed:
            return tuple(found)
        specs = [(tuple(int(k) for k in x.shape), self.dtype(x)) for x in found]
        return self.host_call(function, specs, *arrays)

    def sets_up_by_host(self) -> bool:
        """Does `by_host` call the host in the program that is traced now, unless that is exported?"""
        return False

    def by_host(
        self,
        function: Callable[..., Sequence[np.ndarray]],
        otherwise: Callable[..., Sequence[Array]],
        returns: Sequence[Spec],
        *arrays: Array,
        name: Callable[[], str | None] = lambda: None,
    ) -> list[Array]:
        """What `otherwise(*arrays)` computes; found as `function(*arrays as NumPy)`, where that is quicker.

        That is in compiled programs on the CPU that may call the host; `otherwise` is then only traced where they are
        exported. Without derivatives. `returns`: the shapes and dtypes. `name`: the function's, see `Kept`.
        """
        return list(otherwise(*arrays))

    def guard(
        self,
        failed: Any,
        handler: Callable[..., None],
        x: Any,
        *arrays: Array,
        kept: Kept | None = None,
        noted: Any | None = None,
    ) -> Any:
        """`x`, after `handler(*arrays as NumPy)` if `failed`: the handler may raise, at run time when compiled.

        `kept`: what stands for the handler in a program that may be stored, and read by another process. `noted`: a
        condition that is no failure, on which the handler is called as well, where a program can.
        """
        if failed or noted:
            handler(*(self.to_numpy(a) for a in arrays))
        return x


def select(bk: Control, active: Array, new: Any, old: Any) -> Any:
    """`new` for the systems where `active` `(batch, 1)`, `old` for the others, in every array of a state."""
    return tree_map(lambda a, b: bk.where(active, a, b), new, old)


def as_declared(results: Sequence[Any], returns: Sequence[Spec]) -> tuple[np.ndarray, ...]:
    """Convert the results of a host function to the declared dtypes.

    Raises:
        ValueError: it has other shapes than declared.
    """
    arrays = tuple(np.asarray(r, dtype) for r, (_, dtype) in zip(results, returns, strict=True))
    for array, (shape, _) in zip(arrays, returns):
        if array.shape != tuple(shape):
            raise ValueError(
                f"A function on the host returned an array of shape {array.shape}; {tuple(shape)} was declared."
            )
    return arrays
