"""What the errors of tracing say: the operation, its operands, the user's line and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax.interpreters import ad

from ..errors import NonlinearError, UnsupportedOperation
from .engine.linear import Linear
from .jax.known.table import is_known

_PACKAGE = Path(__file__).parents[__name__.count(".") - 1]  # wherever in the package this module lies
_FOLDERS = tuple(f"{_PACKAGE / name}/" for name in ("backends", "sparse", "solvers"))
_UNKNOWN = "an unknown line"
_LINEAR = {  # in their input-dependent operand, but without a rule
    "custom_linear_solve": "The inverse of a matrix is dense",
    "triangular_solve": "The inverse of a matrix is dense",
    "tridiagonal_solve": "The inverse of a matrix is dense",
    "reduce": "It combines elements by a function of its own",
    "reduce_window": "It combines elements by a function of its own",
}
_OPAQUE = {
    *("pure_callback", "io_callback", "ffi_call", "custom_call", "pallas_call", "tpu_custom_call"),
    *("custom_partitioning", "shard_map", "run_state", "get", "swap", "addupdate", "call_exported", "composite"),
}


def nonlinear(equation: Any, values: Sequence[Any], why: str | None = None) -> NonlinearError:
    """The operation is not linear in the input."""
    return _marked(
        NonlinearError,
        f"{_operation(equation, values)} is not linear in the input{f': {why}' if why else ''}. Expected a linear or "
        "affine function; of a non-linear one, jacobian_matrix(f, x) gives the sparse Jacobian at x.",
    )


def unsupported(equation: Any, values: Sequence[Any], why: str) -> UnsupportedOperation:
    """The operation may be linear, but has no sparse matrix here; `why` ends with the way out."""
    return _marked(UnsupportedOperation, f"{_operation(equation, values)} cannot be traced: {why}")


def no_rule(equation: Any, values: Sequence[Any]) -> Exception:
    """The error for an operation that the tables do not know."""
    name = equation.primitive.name
    matrix_free = "Leave it out of the traced function, or solve with the function itself instead of its matrix."
    if name in _LINEAR:
        return unsupported(equation, values, f"{_LINEAR[name]}. {matrix_free}")
    if name in _OPAQUE:
        return unsupported(equation, values, f"tracing cannot look into it. {matrix_free}")
    if equation.primitive in getattr(ad, "primitive_transposes", {}) and name not in ("mul", "div", "pow"):
        return unsupported(equation, values, f"it has no rule for these operands. {matrix_free}")
    return nonlinear(equation, values)


def static_needed(equation: Any, values: Sequence[Any], what: str, value: Any) -> Exception:
    """`value`, which decides the structure, depends on the input or is not known while tracing."""
    if isinstance(value, Linear):
        return nonlinear(equation, values, f"the {what} depends on it")
    return unsupported(
        equation,
        values,
        f"the {what} is not known while the function is traced, and the structure of a matrix must be. Compute it with "
        "NumPy, or inside jax.ensure_compile_time_eval().",
    )


def located(error: Exception, equation: Any, values: Sequence[Any]) -> Exception:
    """An error of the engine with the place added; one from inside a call with the line of the call, if it has none.

    JAX's own functions are compiled pieces whose operations do not know the user's line.
    """
    message = str(error)
    if not hasattr(error, "located"):
        between = ":" if isinstance(error, NonlinearError) else " cannot be traced:"
        return _marked(type(error), f"{_operation(equation, values)}{between} {message}")
    return _marked(type(error), message.replace(_UNKNOWN, place(equation))) if _UNKNOWN in message else error


def _marked(kind: type[Exception], message: str) -> Any:
    error: Any = kind(message)
    error.located = True
    return error


def _operation(equation: Any, values: Sequence[Any]) -> str:
    kinds = [_kind(value) for value in values]
    if len(kinds) > 4:
        kinds = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    return f"'{equation.primitive.name}' at {place(equation)} (operands: {', '.join(kinds)})"


def _kind(value: Any) -> str:
    if isinstance(value, Linear):
        return "input-dependent"
    return "constant" if is_known(value) else "traced constant"


def place(equation: Any) -> str:
    """`file:line (function)` of the user's code."""
    try:
        from jax._src.source_info_util import user_frames  # not public; without it the message has no line

        traceback = equation.source_info.traceback
        for frame in user_frames(traceback):
            if not frame.file_name.startswith(_FOLDERS):
                return f"{frame.file_name}:{frame.start_line} ({frame.function_name})"
    except Exception:
        pass
    return _UNKNOWN
