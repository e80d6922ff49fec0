"""Where the elements of JAX's gathers and scatters lie: flat positions into their operand, for known indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Params = dict[str, Any]
Shape = tuple[int, ...]


class Window(NamedTuple):
    """The windows that a gather reads, or that a scatter writes, in the words of gather."""

    shape: Shape  # of the operand
    sizes: Shape  # of one window, along each axis of the operand
    start_map: Sequence[int]  # axis of the operand that each index component moves along
    absent: Sequence[int]  # axes of the operand (window size 1) that the result has no axis for
    operand_batch: Sequence[int]
    index_batch: Sequence[int]
    offset_dims: Sequence[int]  # axes of the result that run inside the window
    clamps: bool  # out of range: the nearest window; else -1


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


def positions(window: Window, indices: np.ndarray, result: Shape) -> np.ndarray:
    """Flat position in the operand for each element of a result of this shape; -1 where the window is out of range."""
    starts = _starts(indices)
    batch_axes = [axis for axis in range(len(result)) if axis not in window.offset_dims]
    steps = strides_of(window.shape)

    def along(values: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        shape = [1] * len(result)
        for axis, size in zip(axes, values.shape):
            shape[axis] = size
        return values.reshape(shape)

    flat = np.zeros((1,) * len(result), np.int64)
    inside = np.ones((1,) * len(result), bool)
    for component, axis in enumerate(window.start_map):
        start, last = starts[..., component], window.shape[axis] - window.sizes[axis]
        if not window.clamps:
            inside = inside & along((start >= 0) & (start <= last), batch_axes)
        flat = flat + along(np.clip(start, 0, max(last, 0)) * steps[axis], batch_axes)
    for axis, index_axis in zip(window.operand_batch, window.index_batch):
        flat = flat + along(np.arange(window.shape[axis]) * steps[axis], [batch_axes[index_axis]])
    present = [a for a in range(len(window.shape)) if a not in window.absent and a not in window.operand_batch]
    for axis, offset_axis in zip(present, window.offset_dims):
        flat = flat + along(np.arange(window.sizes[axis]) * steps[axis], [offset_axis])
    return np.where(np.broadcast_to(inside, result), np.broadcast_to(flat, result), -1)


def single_start(window: Window, indices: np.ndarray) -> list[int] | None:
    """Where the window starts along each axis if there is one window only and it is in range; else None."""
    if window.operand_batch or indices.size != len(window.start_map):
        return None
    starts = [0] * len(window.shape)
    for axis, start in zip(window.start_map, _starts(indices).reshape(-1)):
        last = window.shape[axis] - window.sizes[axis]
        if window.clamps:
            start = min(max(start, 0), last)
        if not 0 <= start <= last:
            return None
        starts[axis] = int(start)
    return starts


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


def dynamic_start(starts: Sequence[Any], shape: Shape, sizes: Sequence[int]) -> list[int]:
    """The start of dynamic_slice and dynamic_update_slice, clamped so that the window is in range."""
    return [min(max(int(start), 0), n - size) for start, n, size in zip(starts, shape, sizes)]


def strides_of(shape: Sequence[int]) -> list[int]:
    """Steps, in elements, of an array in row order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _starts(indices: np.ndarray) -> np.ndarray:
    return np.minimum(indices, 1 << 62).astype(np.int64) if indices.dtype == np.uint64 else indices.astype(np.int64)
