"""What stands in for an array of NumPy while a function runs, and records what is done to it.

NumPy hands its functions and operators to the tables in rules/; slices and the like are views, which write through.
Memory of the input is read-only, and a scalar (an element, a sum) is a new object, as in NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ....backends.numpy.lending import StandIn
from ..engine.linear import Linear
from . import messages
from .buffer import Buffer
from .methods import NONLINEAR_METHODS, OPAQUE_METHODS, VIEWS
from .rules.call import run_function, run_ufunc
from .values import HOST, Value, assigned, cast

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

    # --- what NumPy asks ----------------------------------------------------------------------------------------

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
            raise messages.opaque("asarray", "numbers are asked for where only their origin is known.")
        self.buffer.exposed = True
        numbers = np.array(value, dtype)
        numbers.flags.writeable = False
        return numbers

    def __jax_array__(self) -> NoReturn:
        raise messages.opaque("jax.numpy.asarray", "JAX takes the array.").by("jax")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise messages.opaque("torch", "PyTorch takes the array.").by("torch")

    # --- attributes ---------------------------------------------------------------------------------------------

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
        raise messages.opaque("flat", "it steps through the elements; use x.reshape(-1).")

    def __getattr__(self, name: str) -> Any:
        if name in VIEWS.methods:
            return lambda *args, **kwargs: self._viewed(getattr(np.ndarray, name), (self, *args), kwargs)
        if name in NONLINEAR_METHODS or name in OPAQUE_METHODS:
            return lambda *args, **kwargs: self._known_method(name, args, kwargs)
        return super().__getattr__(name)

    def _known_method(self, name: str, args: Any, kwargs: Any) -> Any:
        """Methods that need numbers: there are some where the array does not depend on the input."""
        value = self.read()
        if not isinstance(value, Linear):
            return self.tracing.wrap(getattr(np.asarray(value), name)(*args, **kwargs))
        if name in NONLINEAR_METHODS:
            raise messages.not_linear(name)
        raise messages.opaque(name, "numbers are asked for where only their origin is known.")

    # --- numbers ------------------------------------------------------------------------------------------------

    def _number(self, name: str) -> Any:
        value = self.read()
        if isinstance(value, Linear):
            raise messages.opaque(name, "a number is asked for where only its origin is known.")
        return np.asarray(value)

    def __bool__(self) -> bool:
        value = self.read()
        if isinstance(value, Linear):
            raise messages.not_linear("bool", "a branch depends on the values")
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

    # --- elements -----------------------------------------------------------------------------------------------

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
        if isinstance(value, TracedArray) and value.buffer is self.buffer and _same(value.ghost, part):
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
            raise messages.refused(
                name, "it writes to an array that is read-only here, as the function's argument is. Write to x.copy()."
            )
        if self.buffer.exposed:
            raise messages.opaque(name, "it writes to an array whose numbers other code has.")

    # --- views and copies ---------------------------------------------------------------------------------------

    def _view(self, ghost: np.ndarray) -> TracedArray:
        return TracedArray(self.tracing, self.buffer, ghost)

    def view(self, dtype: Any = None) -> TracedArray:
        if dtype is not None and np.dtype(dtype) != self.dtype:
            raise messages.opaque("view", "other bits of the numbers are asked for.")
        return self._view(self.ghost.view())

    def _viewed(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function that moves whole axes: a view where NumPy makes one, else a copy."""
        if len(args) > 1 and function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):  # each array by itself
            return tuple(function(x) for x in args)
        found = [x for x in (*args, *kwargs.values()) if isinstance(x, TracedArray)]
        if len(found) != 1:
            raise messages.opaque(function.__name__, "several arrays are moved at once.")
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
            raise messages.translated(error, "astype", [self.read()]) from None

    def fill(self, value: Any) -> None:
        self[...] = value

    def __copy__(self) -> TracedArray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise messages.opaque("pickle", "the numbers are asked for where only their origin is known.")

    # --- methods that are functions ------------------------------------------------------------------------------

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        return np.sum(self, axis, dtype, out, **kwargs)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        return np.mean(self, axis, dtype, out, **kwargs)

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return np.cumsum(self, axis, dtype, out)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return np.trace(self, *args, **kwargs)

    def dot(self, b: Any, out: Any = None) -> Any:
        return np.dot(self, b, out)

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        return np.take(self, indices, axis, out, mode)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        return np.repeat(self, repeats, axis)

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


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    same_start = a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    return bool(same_start and a.shape == b.shape and a.strides == b.strides)
