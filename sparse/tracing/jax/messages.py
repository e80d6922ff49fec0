"""The errors of tracing for an equation of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.interpreters import ad

from ...errors import NonlinearError, UnsupportedOperation
from .. import messages
from ..messages import MATRIX_FREE, UNKNOWN, Operation, kind_of, place_of
from .known.table import is_known

_LINEAR = {  # in their input-dependent operand, but without a rule
    "reduce": "It combines elements by a function of its own",
}
_OPAQUE = {
    *("pure_callback", "krylix_by_host", "io_callback", "ffi_call", "custom_call", "pallas_call", "tpu_custom_call"),
    *("custom_partitioning", "shard_map", "run_state", "get", "swap", "addupdate", "call_exported", "composite"),
}


def nonlinear(equation: Any, values: Sequence[Any], why: str | None = None) -> NonlinearError:
    """The equation is not linear in the input."""
    return messages.nonlinear(_operation(equation, values), why)


def unsupported(equation: Any, values: Sequence[Any], why: str) -> UnsupportedOperation:
    """The equation may be linear, but has no sparse matrix here; `why` ends with the way out."""
    return messages.unsupported(_operation(equation, values), why)


def no_rule(equation: Any, values: Sequence[Any]) -> Exception:
    """The error for an equation that the tables do not know."""
    name = equation.primitive.name
    if name in _LINEAR:
        return unsupported(equation, values, f"{_LINEAR[name]}. {MATRIX_FREE}")
    if name in _OPAQUE:
        return unsupported(equation, values, f"tracing cannot look into it. {MATRIX_FREE}")
    if equation.primitive in getattr(ad, "primitive_transposes", {}) and name not in ("mul", "div", "pow"):
        return unsupported(equation, values, f"it has no rule for these operands. {MATRIX_FREE}")
    return nonlinear(equation, values)


def static_needed(equation: Any, values: Sequence[Any], what: str, value: Any) -> Exception:
    """`value`, which decides the structure, depends on the input or is not known while tracing."""
    how = "Compute it with NumPy, or inside jax.ensure_compile_time_eval()."
    return messages.static_needed(_operation(equation, values), what, value, how)


def located(error: Exception, equation: Any, values: Sequence[Any]) -> Exception:
    """An error of the engine with the place added."""
    return messages.located(error, _operation(equation, values))


def _operation(equation: Any, values: Sequence[Any]) -> Operation:
    return Operation(equation.primitive.name, _place(equation), [kind_of(value, is_known(value)) for value in values])


def _place(equation: Any) -> str:
    try:
        from jax._src.source_info_util import user_frames  # not public; without it the message has no line

        frames = user_frames(equation.source_info.traceback)
        return place_of((frame.file_name, frame.start_line, frame.function_name) for frame in frames)
    except Exception:
        return UNKNOWN
