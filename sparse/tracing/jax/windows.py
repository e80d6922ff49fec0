"""The parameters of JAX's gathers and scatters, in the words of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.windows import Shape, Window

Params = dict[str, Any]


def gather_window(shape: Shape, params: Params) -> Window:
    """The windows of `gather` with these parameters."""
    numbers, mode = params["dimension_numbers"], mode_name(params)
    return Window(
        shape,
        tuple(params["slice_sizes"]),
        numbers.start_index_map,
        numbers.collapsed_slice_dims,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
        numbers.offset_dims,
        mode in ("CLIP", "PROMISE_IN_BOUNDS"),  # XLA clamps what was promised
    )


def scatter_window(shape: Shape, updates: Shape, params: Params) -> Window:
    """The windows of any `scatter` with these parameters and updates of this shape."""
    numbers = params["dimension_numbers"]
    absent = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = [1] * len(shape)
    kept = [axis for axis in range(len(shape)) if axis not in absent]
    for axis, update_axis in zip(kept, numbers.update_window_dims):
        sizes[axis] = updates[update_axis]
    return Window(
        shape,
        tuple(sizes),
        numbers.scatter_dims_to_operand_dims,
        numbers.inserted_window_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
        numbers.update_window_dims,
        mode_name(params) == "CLIP",  # all others drop what is out of range
    )


def mode_name(params: Params) -> str:
    """CLIP, FILL_OR_DROP, PROMISE_IN_BOUNDS or ONE_HOT."""
    return str(getattr(params["mode"], "name", params["mode"]))


def sets_values(params: Params) -> bool:
    """Does `scatter` replace values by the updates? `x.at[...].apply(f)` applies a function to them instead."""
    program = params.get("update_jaxpr")
    return program is None or (not program.eqns and program.outvars[0] is program.invars[1])


def fill_value(params: Params, dtype: np.dtype) -> Any:
    """What a gather gives for a window out of range."""
    if mode_name(params) == "ONE_HOT":
        return dtype.type(0)
    if params.get("fill_value") is not None:
        return dtype.type(params["fill_value"])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(limits.min if dtype.kind == "i" else limits.max)
    return np.True_ if dtype.kind == "b" else dtype.type(np.nan)
