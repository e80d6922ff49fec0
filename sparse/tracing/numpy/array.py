"""The stand-in for an array of NumPy while a function runs, which records what is done to it.

Which elements a view has is left to NumPy: a *ghost*, an array of bytes that nobody writes, is sliced, transposed and
reshaped in place of the numbers, and its strides tell.

>>> buffer = Buffer(np.arange(6.0).reshape(2, 3))
>>> column = buffer.ghost[:, 1]
>>> buffer.read(column)
array([1., 4.])
>>> buffer.write(column, np.zeros(2))
>>> buffer.value
array([[0., 0., 2.],
       [3., 0., 5.]])
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ....backends.numpy.lending import StandIn
from ..engine import storage
from ..engine.linear import Linear
from ..engine.positions import replace_elements, scatter_add
from ..engine.storage import View
from .rules.call import is_same_view, run_function, run_ufunc
from .values import (
    HOST,
    Value,
    assigned,
    broadcast,
    cast,
    not_linear,
    opaque,
    plus,
    refused,
    reshape,
    take,
    translated,
)

_SHAPES = 6  # in which the buffer is looked at that are remembered


class Buffer:
    """Attributes:
    value: what it holds: a `Linear` or an array, which is never written to.
    ghost: a view of all of it.
    """

    def __init__(self, value: Value) -> None:
        self.value: Value = value if isinstance(value, Linear) else np.asarray(value)
        self.dtype = self.value.dtype
        self.shape: tuple[int, ...] = tuple(self.value.shape)
        self.size = math.prod(self.shape)
        self.exposed = False  # does somebody have its numbers?
        self.ghost = np.empty(self.shape, np.int8)
        self._first = self.ghost.__array_interface__["data"][0]
        self._shapes = [self.shape]

    def note(self, ghost: np.ndarray) -> None:
        """Views are parts of a grid that was made by a reshape."""
        if ghost.shape not in self._shapes and len(self._shapes) < _SHAPES and self._view(ghost).is_all(self.size):
            self._shapes.append(ghost.shape)

    def positions(self, ghost: np.ndarray) -> np.ndarray:
        """The flat position of each element of a view."""
        return self._view(ghost).positions

    def take(self, positions: np.ndarray) -> Value:
        """A copy of elements."""
        return take(self.value, positions)

    def read(self, ghost: np.ndarray) -> Value:
        """The elements of a view."""
        return storage.read(HOST, self.value, self._view(ghost), self._shapes)

    def write(self, ghost: np.ndarray, value: Value) -> None:
        """Replace the elements of a view by an array of its shape and of the buffer's dtype."""
        view = self._view(ghost)
        if view.is_all(self.size):
            self._set(value if isinstance(value, Linear) else np.array(value))  # the array may be written to later
        elif 0 not in ghost.shape:
            self._set(storage.replace(HOST, self.value, view, value, self._shapes))

    def assign(self, positions: np.ndarray, value: Value) -> None:
        """Replace elements; of those that are given twice the last one holds."""
        if positions.size:
            self._set(replace_elements(HOST, self.value, positions, broadcast(value, positions.shape)))

    def accumulate(self, ghost: np.ndarray, value: Value) -> None:
        """Add an array to the elements of a view."""
        view = self._view(ghost)
        if view.is_all(self.size):
            self._set(plus(self.value, reshape(value, self.shape)))
        elif isinstance(value, Linear) and 0 not in ghost.shape:
            self._set(storage.accumulate(HOST, self.value, view, value, self._shapes))
        else:
            self.accumulate_at(view.positions, value)

    def accumulate_at(self, positions: np.ndarray, value: Value) -> None:
        """As `np.add.at`, with flat positions, of which some may be the same."""
        if isinstance(self.value, Linear) or isinstance(value, Linear):
            self._set(scatter_add(self.value, positions, broadcast(value, positions.shape)))
        else:
            new = np.array(self.value, order="C")
            np.add.at(new.reshape(-1), positions.reshape(-1), np.broadcast_to(value, positions.shape).reshape(-1))
            self._set(new)

    def _set(self, value: Value) -> None:
        self.value = reshape(value if isinstance(value, Linear) else np.asarray(value), self.shape)

    def _view(self, ghost: np.ndarray) -> View:
        start = int(ghost.__array_interface__["data"][0] - self._first)
        return View(ghost.shape, ghost.strides, start if ghost.size else 0)


# --- functions and methods that are views, need numbers, or leave NumPy -----------------------------------------------


class _Views(frozenset[Callable[..., Any]]):
    """Functions that NumPy applies to the ghost of an array."""

    methods = frozenset(("reshape", "ravel", "transpose", "swapaxes", "squeeze", "diagonal"))


_NAMES = (
    *("reshape", "ravel", "transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims", "atleast_1d"),
    *("atleast_2d", "atleast_3d", "broadcast_to", "flip", "fliplr", "flipud", "rot90", "diagonal", "split"),
    *("array_split", "hsplit", "vsplit", "dsplit", "matrix_transpose", "permute_dims", "unstack"),
)
VIEWS = _Views(
    [getattr(np, name) for name in _NAMES if hasattr(np, name)]  # some are new in NumPy 2
    + [getattr(np.linalg, name) for name in ("diagonal", "matrix_transpose") if hasattr(np.linalg, name)]
    + [np.lib.stride_tricks.sliding_window_view]
)

NONLINEAR_METHODS = frozenset(
    (
        *("min", "max", "argmin", "argmax", "sort", "argsort", "partition", "argpartition", "clip", "round"),
        *("prod", "cumprod", "std", "var", "any", "all", "nonzero", "searchsorted", "ptp", "choose", "byteswap"),
    )
)
_FUNCTIONS = frozenset(("sum", "mean", "cumsum", "trace", "dot", "take", "repeat"))  # with the parameters of methods
OPAQUE_METHODS = frozenset(("item", "tolist", "tobytes", "tofile", "dump", "dumps", "data", "ctypes", "resize", "put"))


# --- the stand-in -----------------------------------------------------------------------------------------------------
# NumPy hands its functions and operators to the tables in rules/; slices and the like are views, which write through.
# Memory of the input is read-only, and a scalar (an element, a sum) is a new object, as in NumPy.

_SPARSE_PRODUCTS = ("_matmul_dispatch", "_rmatmul_dispatch")


class TracedArray(np.lib.mixins.NDArrayOperatorsMixin, StandIn):
    """An array of which is known how it depends on the input.

    Attributes:
        tracing: what takes note of it.
        buffer: the memory.
        ghost: where in it the elements are.
        is_scalar: is it a number, as NumPy's functions return for arrays without axes?
    """

    __array_priority__ = 1e4
    bk = HOST

    def __init__(self, tracing: Any, buffer: Buffer, ghost: np.ndarray, is_scalar: bool = False) -> None:
        self.tracing, self.buffer, self.ghost, self.is_scalar = tracing, buffer, ghost, is_scalar
        buffer.note(ghost)

    def read(self) -> Value:
        """A `Linear`, or an array that does not depend on the input."""
        return self.tracing.settled(self.buffer.read(self.ghost))

    # --- what NumPy asks ----------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return run_ufunc(self.tracing, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function in VIEWS:
            return self._viewed(function, args, kwargs)
        return run_function(self.tracing, function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        frame = sys._getframe(1)
        if frame.f_code.co_name in _SPARSE_PRODUCTS and "scipy" in frame.f_code.co_filename:
            unknown = np.empty((), object)  # SciPy then leaves the product to `__rmatmul__`
            unknown[()] = self
            return unknown
        value = self.read()
        if isinstance(value, Linear):
            raise opaque("asarray", "numbers are asked for where only their origin is known.")
        self.buffer.exposed = True
        numbers = np.array(value, dtype)
        numbers.flags.writeable = False
        return numbers

    def __jax_array__(self) -> NoReturn:
        raise opaque("jax.numpy.asarray", "JAX takes the array.").by("jax")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise opaque("torch", "PyTorch takes the array.").by("torch")

    # --- attributes ---------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ghost.shape

    @property
    def ndim(self) -> int:
        return self.ghost.ndim

    @property
    def size(self) -> int:
        return self.ghost.size

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(stride * self.itemsize for stride in self.ghost.strides)

    @property
    def flags(self) -> Any:
        return self.ghost.flags

    @property
    def T(self) -> TracedArray:
        return self._view(self.ghost.T)

    @property
    def mT(self) -> TracedArray:
        return self._view(self.ghost.swapaxes(-1, -2))

    @property
    def real(self) -> Any:
        return np.real(self) if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Any:
        return np.imag(self)

    @property
    def flat(self) -> NoReturn:
        raise opaque("flat", "it steps through the elements; use x.reshape(-1).")

    def __getattr__(self, name: str) -> Any:
        if name in VIEWS.methods:
            return lambda *args, **kwargs: self._viewed(getattr(np.ndarray, name), (self, *args), kwargs)
        if name in _FUNCTIONS:
            return partial(getattr(np, name), self)
        if name in NONLINEAR_METHODS or name in OPAQUE_METHODS:
            return lambda *args, **kwargs: self._known_method(name, args, kwargs)
        return super().__getattr__(name)

    def _known_method(self, name: str, args: Any, kwargs: Any) -> Any:
        """Methods that need numbers: there are some where the array does not depend on the input."""
        value = self.read()
        if not isinstance(value, Linear):
            return self.tracing.wrap(getattr(np.asarray(value), name)(*args, **kwargs))
        if name in NONLINEAR_METHODS:
            raise not_linear(name)
        raise opaque(name, "numbers are asked for where only their origin is known.")

    # --- numbers ------------------------------------------------------------------------------------------------------

    def _number(self, name: str) -> Any:
        value = self.read()
        if isinstance(value, Linear):
            raise opaque(name, "a number is asked for where only its origin is known.")
        return np.asarray(value)

    def __bool__(self) -> bool:
        value = self.read()
        if isinstance(value, Linear):
            raise not_linear("bool", "a branch depends on the values")
        return bool(np.asarray(value))

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        return int(self._number("index").__index__())

    def __len__(self) -> int:
        return len(self.ghost)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return bool((self == item).any())

    def __repr__(self) -> str:
        return f"<stand-in for an array of NumPy: shape {self.shape}, {self.dtype}>"

    # --- elements -----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        key = self.tracing.known_key(key)
        part = self.ghost[key]
        if not isinstance(part, np.ndarray):
            position = self.buffer.positions(self.ghost)[key]
            return self.tracing.wrap(self.buffer.take(np.asarray(position)))
        if part.size and not np.may_share_memory(part, self.ghost):
            return self.tracing.wrap(self.buffer.take(self.buffer.positions(self.ghost)[key]), is_scalar=False)
        return self._view(part)

    def __setitem__(self, key: Any, value: Any) -> None:
        key = self.tracing.known_key(key)
        part = self.ghost[(*key, ...) if isinstance(key, tuple) and Ellipsis not in _plain(key) else key]
        if not isinstance(part, np.ndarray):
            part = self.ghost[(key, ...)]
        if isinstance(value, TracedArray) and value.buffer is self.buffer and is_same_view(value.ghost, part):
            return  # the end of x[key] += ...
        self._check_writeable("setitem")
        value = assigned(cast(self.tracing.value_of(value), self.dtype), part.shape)
        if part.size and not np.may_share_memory(part, self.ghost):
            self.buffer.assign(self.buffer.positions(self.ghost)[key], value)
        else:
            self.buffer.write(part, value)

    def write(self, value: Value, name: str) -> None:
        """Replace all elements."""
        self._check_writeable(name)
        self.buffer.write(self.ghost, assigned(cast(value, self.dtype), self.shape))

    def accumulate(self, value: Value, name: str) -> None:
        """Add to all elements."""
        self._check_writeable(name)
        self.buffer.accumulate(self.ghost, assigned(cast(value, self.dtype), self.shape))

    def positions_at(self, key: Any, name: str) -> np.ndarray:
        """Where in the buffer elements are that will be written to."""
        self._check_writeable(name)
        return self.buffer.positions(self.ghost)[self.tracing.known_key(key)]

    def _check_writeable(self, name: str) -> None:
        if not self.ghost.flags.writeable:
            raise refused(
                name, "it writes to an array that is read-only here, as the function's argument is. Write to x.copy()."
            )
        if self.buffer.exposed:
            raise opaque(name, "it writes to an array whose numbers other code has.")

    # --- views and copies ---------------------------------------------------------------------------------------------

    def _view(self, ghost: np.ndarray) -> TracedArray:
        return TracedArray(self.tracing, self.buffer, ghost)

    def view(self, dtype: Any = None) -> TracedArray:
        if dtype is not None and np.dtype(dtype) != self.dtype:
            raise opaque("view", "other bits of the numbers are asked for.")
        return self._view(self.ghost.view())

    def _viewed(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function that moves whole axes: a view where NumPy makes one, else a copy."""
        if len(args) > 1 and function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):  # each array by itself
            return tuple(function(x) for x in args)
        found = [x for x in (*args, *kwargs.values()) if isinstance(x, TracedArray)]
        if len(found) != 1:
            raise opaque(function.__name__, "several arrays are moved at once.")
        own = found[0]

        def called(array: np.ndarray) -> Any:
            return function(
                *(array if x is own else x for x in args), **{k: array if x is own else x for k, x in kwargs.items()}
            )

        return own._wrapped(called(own.ghost), lambda: called(own.buffer.positions(own.ghost)))

    def _wrapped(self, result: Any, positions: Callable[[], Any]) -> Any:
        if isinstance(result, list | tuple):
            return type(result)(self._wrapped(part, partial(_part, positions, i)) for i, part in enumerate(result))
        if not isinstance(result, np.ndarray) or (result.size and not np.may_share_memory(result, self.ghost)):
            return self.tracing.wrap(self.buffer.take(np.asarray(positions())), is_scalar=False)
        return self._view(result)

    def copy(self, order: str = "C") -> TracedArray:
        return self.tracing.wrap(self.read(), is_scalar=False)

    def flatten(self, order: str = "C") -> TracedArray:
        return self.ravel(order=order).copy()

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        if np.dtype(dtype) == self.dtype and not copy:
            return self
        try:
            return self.tracing.wrap(cast(self.read(), dtype), is_scalar=False)
        except (TypeError, ValueError) as error:
            raise translated(error, "astype", [self.read()]) from None

    def fill(self, value: Any) -> None:
        self[...] = value

    def __copy__(self) -> TracedArray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise opaque("pickle", "the numbers are asked for where only their origin is known.")

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        return np.compress(condition, self, axis, out)

    def conj(self) -> Any:
        return np.conjugate(self)

    conjugate = conj


def _part(parts: Callable[[], Any], number: int) -> Any:
    return parts()[number]


def _plain(key: Any) -> list[Any]:
    """The parts of a key that are no arrays, which `in` would compare."""
    return [k for k in key if not isinstance(k, np.ndarray | list)]
