"""The errors of tracing for an operation of a graph."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from ...errors import UnsupportedOperation
from .. import messages
from ..engine.refusals import MATRIX_FREE
from ..messages import FOLDERS, UNKNOWN, Operation, Reporter, kind_of, place_of

LIBRARY = (f"{Path(tf.__file__).parent}/", *FOLDERS)  # code that is not the user's

_SYMBOLIC = ("SymbolicTensor", "symbolic `tf.Tensor`", "symbolic tf.Tensor")
_OUTSIDE = (
    "it makes a number, a branch or an array outside of TensorFlow of a tensor that {}, and what follows from it is "
    "not traced. {}"
)
_NAMES = {"__bool__": "bool", "__iter__": "iteration", "__array__": "numpy", "__getattr__": "numpy", "__len__": "len"}


def random(op: tf.Operation) -> UnsupportedOperation:
    """It draws random numbers, or tells the time."""
    return REPORTER.unsupported(
        op, "it is random, or tells the time: another result each time, and a matrix has one. Compute it before."
    )


def by_handle(op: tf.Operation) -> UnsupportedOperation:
    """It takes a variable, or a table, itself."""
    return REPORTER.unsupported(
        op,
        "it takes a tf.Variable or a table by its handle, so that nobody sees its value. Take its value, as in "
        "tf.gather(tf.identity(v), i), and write to no variable in the traced function.",
    )


def leaves_tensorflow(error: Exception, depends: Any) -> Exception | None:
    """The error for a function that failed with `error` as a symbolic tensor has no value; None: it failed otherwise.

    Args:
        error: what the function raised.
        depends: whether a tensor depends on the input.
    """
    if not any(words in str(error) for words in _SYMBOLIC):
        return None
    frames = list(_frames(error.__traceback__))
    place = place_of((f.f_code.co_filename, line, f.f_code.co_name) for f, line in reversed(frames) if _is_users(f))
    inner = frames[-1][0] if frames else None
    tensor, name = None, "float, int or range"
    for frame, _ in reversed(frames):
        if _is_users(frame):
            break
        if isinstance(frame.f_locals.get("self"), tf.Tensor):
            tensor, name = frame.f_locals["self"], frame.f_code.co_name
    if tensor is None or inner is None:
        how = "Compute with the tensor, as tf.where does; what does not depend on the input, compute outside."
        operation = Operation(name, place, ["symbolic"])
        return messages.nonlinear(operation, _OUTSIDE.format("may depend on the input", how))
    name = _NAMES.get(name, name)
    if depends(tensor):
        if name == "numpy":
            return messages.unsupported(
                Operation(name, place, ["input-dependent"]),
                "it hands a tensor that depends on the input to NumPy, whose operations are not recorded. Write them "
                "with TensorFlow, or give a function of NumPy's arrays and a `like` of NumPy: those are followed, or "
                "evaluated.",
            )
        how = "Compute with the tensor, as tf.where does"
        return messages.nonlinear(
            Operation(name, place, ["input-dependent"]), _OUTSIDE.format("depends on the input", how)
        )
    how = "Compute it outside of the function, or write tf.cond or tf.while_loop, or @tf.function above the function."
    return messages.unsupported(
        Operation(name, place, ["constant"]), _OUTSIDE.format("has no value while the function is recorded", how)
    )


def failed(error: Exception) -> UnsupportedOperation:
    """The function raised something while its graph was made."""
    frames = [(f, line) for f, line in _frames(error.__traceback__) if _is_users(f)]
    place = place_of((f.f_code.co_filename, line, f.f_code.co_name) for f, line in reversed(frames))
    words = "".join(traceback.format_exception_only(type(error), error)).strip().split("\n")[0]
    return messages.unsupported(
        Operation("tf.function", place, ["symbolic"]),
        f"TensorFlow could not make a graph of the function: {words} {MATRIX_FREE}",
    )


def _is_users(frame: Any) -> bool:
    return not frame.f_code.co_filename.startswith(LIBRARY)


def _frames(found: TracebackType | None) -> Iterator[tuple[Any, int]]:
    while found is not None:
        yield found.tb_frame, found.tb_lineno
        found = found.tb_next


def _operation(op: tf.Operation, values: Sequence[Any], name: str | None = None) -> Operation:
    kinds = [kind_of(value, not isinstance(value, tf.Tensor)) for value in values]
    return Operation(name or op.type, _place(op), kinds or ["input-dependent"])


def _place(op: tf.Operation) -> str:
    frames = op.traceback  # from the outermost call inwards; None in functions that were loaded
    if frames is None:
        return UNKNOWN
    return place_of(
        (frame.filename, frame.lineno, frame.name)
        for frame in reversed(list(frames))
        if not frame.filename.startswith(LIBRARY)
    )


REPORTER = Reporter(_operation, "Compute it with NumPy, or of what is no argument of the tf.function around.")
