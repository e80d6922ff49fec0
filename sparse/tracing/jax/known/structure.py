"""NumPy rules for known operands: what moves elements.

>>> STRUCTURE["pad"]([np.array([1, 2]), np.array(0)], {"padding_config": [(1, 0, 1)]}, [])
array([0, 1, 0, 2])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine.coefficients import pad_known
from ...engine.windows import clamped_start, positions, single_start
from ..windows import fill_value, gather_window, scatter_window, sets_values

Args = Sequence[np.ndarray]
Params = dict[str, Any]


def slices_of(params: Params) -> tuple[slice, ...]:
    """The parameters of `slice`."""
    starts, limits = params["start_indices"], params["limit_indices"]
    return tuple(slice(a, b, s) for a, b, s in zip(starts, limits, params["strides"] or (1,) * len(starts)))


def _reshape(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), order = args, params.get("dimensions")
    return (x if order is None else x.transpose(order)).reshape(avals[0].shape)


def _broadcast_in_dim(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    if len(args) > 1:
        return None  # a shape that is not static
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], args[0].shape):
        shape[axis] = size
    return np.broadcast_to(args[0].reshape(shape), params["shape"])


def _pad(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    return pad_known(args[0], params["padding_config"], args[1])


def _split(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    return np.split(args[0], np.cumsum(params["sizes"])[:-1], params["axis"])


def _unstack(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    return list(np.moveaxis(args[0], params["axis"], 0))


def _box(starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes))


def _dynamic_slice(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    x, *starts = args
    sizes = params["slice_sizes"]
    return x[_box(clamped_start(starts[: x.ndim], x.shape, sizes), sizes)]


def _dynamic_update_slice(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    x, update, *starts = args
    result = np.array(x)
    result[_box(clamped_start(starts, x.shape, update.shape), update.shape)] = update
    return result


def _gather(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    x, indices = args
    window = gather_window(x.shape, params)
    starts = single_start(window, indices)
    if starts is not None:
        return x[_box(starts, window.sizes)].reshape(avals[0].shape)
    where = positions(window, indices, avals[0].shape)
    if not x.size:
        return np.full(avals[0].shape, fill_value(params, x.dtype), x.dtype)
    result = x.reshape(-1)[where]
    return np.where(where < 0, fill_value(params, x.dtype), result) if where.size and where.min() < 0 else result


def _scatter(update: Callable[..., Any] | None) -> Callable[[Args, Params, Sequence[Any]], Any]:
    """A scatter that combines old and new values by a ufunc, or sets them."""

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        x, indices, updates = args
        if x.dtype.char not in "fdFD?" and x.dtype.kind not in "iu":
            return None
        if update is None and not sets_values(params):
            return None
        window = scatter_window(x.shape, updates.shape, params)
        where = positions(window, indices, updates.shape).reshape(-1)
        inside = where >= 0
        where, updates = (where, updates.reshape(-1)) if inside.all() else (where[inside], updates.reshape(-1)[inside])
        result = np.array(x, order="C").reshape(-1)
        if update is None:
            result[where] = updates
        else:
            update.at(result, where, updates)  # type: ignore[attr-defined]
        return result.reshape(x.shape)

    return rule


STRUCTURE: dict[str, Callable[[Args, Params, Sequence[Any]], Any]] = {
    "reshape": _reshape,
    "squeeze": lambda args, params, avals: args[0].reshape(avals[0].shape),
    "expand_dims": lambda args, params, avals: args[0].reshape(avals[0].shape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": lambda args, params, avals: args[0][slices_of(params)],
    "pad": _pad,
    "transpose": lambda args, params, avals: args[0].transpose(params["permutation"]),
    "rev": lambda args, params, avals: np.flip(args[0], params["dimensions"]),
    "concatenate": lambda args, params, avals: np.concatenate(args, params["dimension"]),
    "stack": lambda args, params, avals: np.stack(args, params["axis"]),
    "tile": lambda args, params, avals: np.tile(args[0], params["reps"]),
    "split": _split,
    "unstack": _unstack,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter(np.add),
    "scatter-sub": _scatter(np.subtract),
    "scatter-mul": _scatter(np.multiply),
    "scatter-min": _scatter(np.minimum),
    "scatter-max": _scatter(np.maximum),
}
