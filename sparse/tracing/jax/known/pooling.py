"""NumPy rules for known operands: windows of which an element is chosen, or which are summed from a start.

>>> import jax
>>> settings = {"window_dimensions": (2,), "window_strides": (2,), "padding": [(1, 1)]}
>>> extreme_positions(np.array([3.0, 5.0, 5.0, 1.0]), {**settings, "select_prim": jax.lax.ge_p})
array([0, 1, 3])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .reductions import dilate, windows

Args = Sequence[np.ndarray]
Params = dict[str, Any]


def extreme_positions(x: np.ndarray, params: Params) -> np.ndarray | None:
    """The flat position in x of the largest (or smallest) element of each window, of equal ones the first.

    -1 for windows in the padding. None where this is not what an operation with these parameters does.
    """
    select, sizes, strides = params["select_prim"].name, params["window_dimensions"], params["window_strides"]
    spread = any(d != 1 for name in ("base_dilation", "window_dilation") for d in params.get(name) or ())
    if select not in ("ge", "le") or spread or x.dtype.char not in "fd" or not np.isfinite(x).all():
        return None
    lowest = -np.inf if select == "ge" else np.inf
    values = np.pad(x, params["padding"], constant_values=lowest)
    places = np.pad(np.arange(x.size).reshape(x.shape), params["padding"], constant_values=-1)
    views = windows(values, sizes, strides, None)
    flat = views.reshape(*views.shape[: x.ndim], -1)
    index = (np.argmax if select == "ge" else np.argmin)(flat, axis=-1)[..., None]
    where = windows(places, sizes, strides, None).reshape(flat.shape)
    return np.asarray(np.take_along_axis(where, index, -1)[..., 0])


def _gather_chosen(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    x, operand = args
    where = extreme_positions(operand, params)
    return None if where is None else np.where(where < 0, x.dtype.type(0), x.reshape(-1)[where])


def _scatter_chosen(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    x, operand = args
    where = extreme_positions(operand, params)
    if where is None:
        return None
    result = np.zeros(operand.size, x.dtype)
    np.add.at(result, where[where >= 0], x[where >= 0])
    return result.reshape(operand.shape)


def window_reduction(x: np.ndarray, params: Params) -> np.ndarray:
    """Sums over windows of known elements, nothing in the padding."""
    spread = np.pad(dilate(x, params["base_dilation"]), params["padding"])
    views = windows(spread, params["window_dimensions"], params["window_strides"], params["window_dilation"])
    return np.asarray(views.sum(axis=tuple(range(x.ndim, 2 * x.ndim)), dtype=x.dtype))


def adds(program: Any) -> bool:
    """Is this program of two numbers their sum?"""
    jaxpr = getattr(program, "jaxpr", program)
    return [e.primitive.name for e in jaxpr.eqns] == ["add"] and set(jaxpr.eqns[0].invars) == set(jaxpr.invars)


def _reduce_window(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    """The start counts once for each window, and is not what stands in the padding."""
    if len(args) != 2 or not adds(params["jaxpr"]) or args[0].dtype.char not in "fdFD":
        return None
    return window_reduction(args[0], params) + args[1]


POOLING: dict[str, Callable[[Args, Params, Sequence[Any]], Any]] = {
    "select_and_gather_add": _gather_chosen,
    "select_and_scatter_add": _scatter_chosen,
    "reduce_window": _reduce_window,
}
