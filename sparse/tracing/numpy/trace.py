"""Tracing of a NumPy function into linear maps, one per array that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from ....backends.registry import libraries_of
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.linear import Linear
from ..opaque import OpaqueFunction
from ..traced import Traced, arguments, check_dtypes, matrix_dtype
from . import messages
from .tracing import Tracing
from .values import HOST, Value

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
        raise messages.opaque("return", f"it returns arrays of {theirs[0]}.").by(theirs[0])
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
    found = messages.opaque(
        "call", f"given a stand-in for the array, the function raised {type(error).__name__}: {error}."
    )
    return found.by(None if library is None else _BACKENDS.get(library, library))


def _modules(traceback: TracebackType | None) -> list[str]:
    """The packages whose code was running, from the outermost call inwards."""
    found = []
    while traceback is not None:
        found.append(str(traceback.tb_frame.f_globals.get("__name__", "")).split(".")[0])
        traceback = traceback.tb_next
    return found
