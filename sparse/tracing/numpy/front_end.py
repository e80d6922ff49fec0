"""What NumPy adds to tracing: its functions as linear maps, and their values for a known input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from ....backends.numpy.lending import StandIn
from ....backends.registry import libraries_of
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.coefficients import largest
from ..engine.linear import Linear
from ..front_end import FrontEnd, Traced, arguments, check_dtypes, matrix_dtype
from ..interpreter import Interpreter
from ..messages import OpaqueFunction
from .array import Buffer, TracedArray
from .values import HOST, Value, not_linear, opaque

_ARRAYS = (np.ndarray, np.memmap, np.recarray)


class Tracing(Interpreter):
    """Makes stand-ins and takes them apart."""

    def __init__(self, keep_zeros: bool) -> None:
        super().__init__(HOST, keep_zeros)
        self._open = True

    def close(self) -> None:
        """The function has returned; stand-ins that it kept are of no use."""
        self._open = False

    def argument(self, value: Linear) -> TracedArray:
        """A stand-in for an argument, whose memory the function may not write to."""
        buffer = Buffer(value)
        buffer.ghost.flags.writeable = False
        self.note([value])
        return TracedArray(self, buffer, buffer.ghost.view())

    def wrap(self, result: Any, is_scalar: bool | None = None) -> Any:
        """What a function of NumPy returns; arrays of numbers as stand-ins, as they may be written to later."""
        if isinstance(result, list | tuple):
            return type(result)(self.wrap(part) for part in result)
        if isinstance(result, Linear):
            self.note([result])
            result = self.settled(result)
        elif not (isinstance(result, np.ndarray) and result.dtype.kind in "fc"):
            return result
        buffer = Buffer(result)
        return TracedArray(self, buffer, buffer.ghost, result.ndim == 0 if is_scalar is None else is_scalar)

    def value_of(self, x: Any) -> Any:
        """A stand-in's value, and numbers as NumPy sees them; lists with stand-ins are stacked by the caller."""
        if isinstance(x, StandIn):
            if not self._open:
                raise opaque("use", "it is used after the function returned that it was an argument of.")
            return x.read()
        if isinstance(x, np.ndarray) and type(x) not in _ARRAYS:
            raise opaque("call", f"another operand is a {type(x).__name__}, with products of its own.")
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
            raise not_linear("getitem", "the index depends on it")
        return value


# --- tracing ----------------------------------------------------------------------------------------------------------

_OTHERS = ("jax", "jaxlib", "torch", "tensorflow")
_BACKENDS = {"jaxlib": "jax"}


def specifications(like: Any) -> tuple[list[np.ndarray], Any]:
    """Shapes and dtypes of the arrays of an input, as arrays of zeros without memory, and their container."""
    leaves, structure = HOST.leaves(like)
    arrays = [leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in leaves]
    return [np.broadcast_to(np.zeros((), a.dtype), a.shape) for a in arrays], structure


def trace_function(
    function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
) -> Traced:
    """See `FrontEnd.trace`. The function runs once, with a stand-in for each array of its argument."""
    inputs, structure = specifications(like)
    check_dtypes(inputs, "the input")
    tracing = Tracing(keep_zeros)
    stand_ins = [tracing.argument(value) for value in arguments(HOST, inputs)]
    try:
        result = function(HOST.unleaves(structure, stand_ins), *args, **kwargs)
    except (NonlinearError, UnsupportedOperation):
        raise
    except Exception as error:  # whatever the function does with something that is no array
        raise _opaque(error) from error
    if result is None:
        raise TypeError("The traced function returned None; expected an array. Is a `return` missing?")
    leaves, out_structure = HOST.leaves(result)
    theirs = [name for name in libraries_of(leaves) if name != "numpy"]
    if theirs:
        raise opaque("return", f"it returns arrays of {theirs[0]}.").by(theirs[0])
    outputs = [_own(tracing.value_of(leaf)) for leaf in leaves]
    tracing.close()
    check_dtypes(outputs, "an output")
    return Traced(
        HOST,
        partial(run_function, function, structure, args, kwargs),
        tuple(outputs),
        tuple(inputs),
        (),
        partial(HOST.unleaves, out_structure),
        inputs[0].shape if structure is None else None,
        tuple(outputs[0].shape) if out_structure is None else None,
        matrix_dtype([*inputs, *outputs]),
        tracing.precision,
    )


def run_function(
    function: Callable[..., Any],
    structure: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    leaves: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """What the function returns for arrays, which it may not write to."""
    result = function(HOST.unleaves(structure, [HOST.read_only(leaf) for leaf in leaves]), *args, **kwargs)
    return [np.asarray(leaf) for leaf in HOST.leaves(result)[0]]


def _own(value: Any) -> Value:
    """Without memory of the user's, who may write to it later."""
    if not isinstance(value, Linear):
        return np.array(value)
    return value if value.bias is None else replace(value, bias=np.array(value.bias))


def _opaque(error: Exception) -> OpaqueFunction:
    frames = _modules(error.__traceback__)
    frames += ["jax"] if "JAX has removed its internal frames" in str(getattr(error, "__notes__", "")) else []
    library = next((name for name in reversed(frames) if name in _OTHERS), None)
    found = opaque("call", f"given a stand-in for the array, the function raised {type(error).__name__}: {error}.")
    return found.by(None if library is None else _BACKENDS.get(library, library))


def _modules(traceback: TracebackType | None) -> list[str]:
    """The packages whose code was running, from the outermost call inwards."""
    found = []
    while traceback is not None:
        found.append(str(traceback.tb_frame.f_globals.get("__name__", "")).split(".")[0])
        traceback = traceback.tb_next
    return found


# --- the largest number that comes up ---------------------------------------------------------------------------------


class WatchedArray(np.ndarray):
    """An array whose arithmetic is watched; `seen` is a list of one number, shared by all that is made of it."""

    seen: list[float]

    @classmethod
    def of(cls, array: np.ndarray, seen: list[float]) -> WatchedArray:
        """A view of an array."""
        watched = array.view(cls)
        watched.seen = seen
        return watched

    def __array_finalize__(self, source: Any) -> None:
        self.seen = getattr(source, "seen", [0.0])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, WatchedArray) else x for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, WatchedArray) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        if isinstance(result, np.ndarray) and result.dtype.kind in "fc":
            self.seen[0] = max(self.seen[0], largest(result))
            return out[0] if out is not None else WatchedArray.of(result, self.seen)
        return result


# --- the front end ----------------------------------------------------------------------------------------------------


class NumpyFrontEnd(FrontEnd):
    """Functions of NumPy run once with stand-ins for their arrays."""

    trace = staticmethod(trace_function)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        if not watch:
            return traced.program(leaves), 0.0
        seen = [0.0]
        return traced.program([WatchedArray.of(np.array(leaf), seen) for leaf in leaves]), seen[0]

    def forward_derivative(self, f: Any, x: Any, args: Any, kwargs: Any) -> NoReturn:
        raise UnsupportedOperation(
            "NumPy has no derivatives of functions. Write the function with JAX, and give x as an array of JAX."
        )


FRONT_END: FrontEnd = NumpyFrontEnd()
