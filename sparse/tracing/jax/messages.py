"""The errors of tracing for an equation of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.interpreters import ad

from ...errors import UnsupportedOperation
from ..engine.refusals import MATRIX_FREE, NoRule, NotLinear
from ..messages import UNKNOWN, Operation, Reporter, kind_of, place_of
from .known.table import is_known

_LINEAR = {  # in their input-dependent operand, but without a rule
    "reduce": "It combines elements by a function of its own",
}
_OPAQUE = {
    *("pure_callback", "krylix_by_host", "io_callback", "ffi_call", "custom_call", "pallas_call", "tpu_custom_call"),
    *("custom_partitioning", "shard_map", "run_state", "get", "swap", "addupdate", "call_exported", "composite"),
}


def no_rule(equation: Any) -> Exception:
    """The error for an equation that the tables do not know."""
    name = equation.primitive.name
    if name in _LINEAR:
        return UnsupportedOperation(f"{_LINEAR[name]}. {MATRIX_FREE}")
    if name in _OPAQUE:
        return UnsupportedOperation(f"tracing cannot look into it. {MATRIX_FREE}")
    if equation.primitive in getattr(ad, "primitive_transposes", {}) and name not in ("mul", "div", "pow"):
        return NoRule()
    return NotLinear()


def _operation(equation: Any, values: Sequence[Any], name: str | None = None) -> Operation:
    kinds = [kind_of(value, is_known(value)) for value in values]
    return Operation(name or equation.primitive.name, _place(equation), kinds)


def _place(equation: Any) -> str:
    try:
        from jax._src.source_info_util import user_frames  # not public; without it the message has no line

        frames = user_frames(equation.source_info.traceback)
        return place_of((frame.file_name, frame.start_line, frame.function_name) for frame in frames)
    except Exception:
        return UNKNOWN


REPORTER = Reporter(_operation, "Compute it with NumPy, or inside jax.ensure_compile_time_eval().")
