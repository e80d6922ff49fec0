"""Rules for operations that move elements: in blocks, by known indices, or chosen by pooling.

`jnp.pad(u, (2, 0))` of 4 elements: the box lies two rows further on.

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("jax"), (4,), float)
>>> (equation,) = jax.make_jaxpr(lambda u: lax.pad(u, 0.0, [(2, 0, 0)]))(np.zeros(4)).eqns
>>> STRUCTURE["pad"](equation, [u, np.asarray(0.0)]).terms
(Box(lo=(2,), shape=(4,), offset=0, strides=(1,), factor=1, values=None, mask=None),)

>>> u, i = identity(get_backend("jax"), (4,), float), np.array([[2], [0], [3]], np.int32)
>>> equation = jax.make_jaxpr(lambda u: u[i[:, 0]])(np.zeros(4)).eqns[-1]
>>> positions(gather_window((4,), equation.params), i, (3,))
array([2, 0, 3])
>>> STRUCTURE["gather"](equation, [u, i]).terms
(Gathered(columns=array([2, 0, 3], dtype=int32), factor=1, values=None),)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from ....errors import UnsupportedOperation
from ...engine.arithmetic import add, negate, scale, window_sum
from ...engine.indexing import clamped_start, numbers, positions, single_start
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import MATRIX_FREE, NotLinear, padded, reshaped, static, static_needed
from ...engine.positions import assemble, scatter_add, select, take
from ...engine.structural import (
    broadcast_in_dim,
    broadcast_to,
    concatenate,
    cut,
    element,
    pad,
    replace_box,
    reverse,
    slice_,
    stack,
    tile,
    transpose,
)
from ..known import (
    adds,
    bind,
    evaluate_equation,
    extreme_positions,
    fill_value,
    gather_window,
    is_known,
    order_by,
    scatter_window,
    sets_values,
    window_reduction,
)

Values = Sequence[Any]


def _reshape(equation: Any, values: Values) -> Any:
    x, dimensions = values[0], equation.params.get("dimensions")
    return reshape(x if dimensions is None else transpose(x, dimensions), equation.outvars[0].aval.shape)


def _broadcast_in_dim(equation: Any, values: Values) -> Any:
    return broadcast_in_dim(values[0], equation.params["shape"], equation.params["broadcast_dimensions"])


def _slice(equation: Any, values: Values) -> Any:
    p = equation.params
    return slice_(values[0], p["start_indices"], p["limit_indices"], p["strides"])


def _pad(equation: Any, values: Values) -> Any:
    (x, fill), config = values, equation.params["padding_config"]
    return padded(linear_among(values, "pad").bk, x, config, fill)


def _split(equation: Any, values: Values) -> Any:
    x, axis = values[0], equation.params["axis"]
    ends = list(itertools.accumulate(int(size) for size in equation.params["sizes"]))
    return [cut(x, axis, start, end) for start, end in zip([0, *ends], ends)]


def _unstack(equation: Any, values: Values) -> Any:
    x, axis = values[0], equation.params["axis"]
    return [element(x, i, axis) for i in range(x.shape[axis])]


def choose(predicate: Any, cases: Sequence[Any]) -> Any:
    """One of some arrays of the same shape by a traced number."""
    if any(isinstance(case, Linear) for case in cases):
        return select(lax.broadcast(predicate, cases[0].shape), cases)
    return lax.select_n(predicate, *cases)


def _select(equation: Any, values: Values) -> Any:
    which, *cases = values
    if isinstance(which, Linear):
        raise static_needed("predicate", which)
    if which.ndim:
        return select(which, cases)
    if is_known(which):
        return cases[int(which)]
    return choose(which, cases)


# --- gathers, scatters and windows ------------------------------------------------------------------------------------
# `u[i]` for known indices i = 2, 0, 3: the parameters of the gather and i tell the position of each element.


def _gather(equation: Any, values: Values) -> Any:
    x, indices = values
    shape = equation.outvars[0].aval.shape
    indices = static("index", indices)
    window = gather_window(x.shape, equation.params)
    starts = single_start(window, indices)
    if starts is not None:
        return reshape(slice_(x, starts, _ends(starts, window.sizes)), shape)
    where = positions(window, indices, shape)
    result = take(x, where)
    outside = where < 0
    if outside.any():
        result = add(result, np.where(outside, fill_value(equation.params, x.dtype), x.dtype.type(0)))
    return result


def _dynamic_slice(equation: Any, values: Values) -> Any:
    x, *starts = values
    sizes = equation.params["slice_sizes"]
    starts = clamped_start(_known(starts), x.shape, sizes)
    return slice_(x, starts, _ends(starts, sizes))


def _dynamic_update_slice(equation: Any, values: Values) -> Any:
    x, update, *starts = values
    starts = clamped_start(_known(starts), x.shape, update.shape)
    return replace_box(x, update, starts)


def _scatter(equation: Any, values: Values) -> Any:
    x, indices, updates = values
    if not sets_values(equation.params):
        raise UnsupportedOperation(
            "x.at[i].apply(f) hides f. Write x.at[i].set(f(x[i])), which is the same unless an index occurs twice."
        )
    indices = static("index", indices)
    window = scatter_window(x.shape, updates.shape, equation.params)
    starts = single_start(window, indices)
    if starts is not None:
        return replace_box(x, reshaped(linear_among(values, "scatter").bk, updates, window.sizes), starts)
    where = positions(window, indices, updates.shape).reshape(-1)
    sources = np.arange(int(np.prod(x.shape)))
    inside = np.flatnonzero(where >= 0)
    sources[where[inside]] = len(sources) + inside  # of updates of one element the last one holds
    return assemble([x, updates], sources.reshape(x.shape))


def _scatter_add(equation: Any, values: Values) -> Any:
    x, indices, updates = values
    indices = static("index", indices)
    if equation.primitive.name == "scatter-sub":
        updates = negate(updates) if isinstance(updates, Linear) else -updates
    window = scatter_window(x.shape, updates.shape, equation.params)
    starts = single_start(window, indices)
    if starts is not None and isinstance(updates, Linear):
        widths = [(start, n - start - size, 0) for start, n, size in zip(starts, x.shape, window.sizes)]
        return add(pad(reshape(updates, window.sizes), widths), x)
    return scatter_add(x, positions(window, indices, updates.shape), updates)


def _scatter_multiply(equation: Any, values: Values) -> Any:
    x, indices, updates = values
    if isinstance(updates, Linear):
        raise NotLinear("the factors depend on it")
    static("index", indices)
    operands = [np.ones(x.shape, x.dtype), indices, updates]
    factors = evaluate_equation(equation, operands) if is_known(updates) else bind(equation, operands)
    return scale(x, factors[0])


def _known(starts: Values) -> list[int]:
    return [int(static("index", start)) for start in starts]


def _ends(starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [start + size for start, size in zip(starts, sizes)]


def _sort(equation: Any, values: Values) -> Any:
    """By known keys; the other operands may depend on the input."""
    axis, count = equation.params["dimension"], equation.params["num_keys"]
    keys = [static("order", key) for key in values[:count]]
    if any(key.dtype.kind == "c" or (key.dtype.kind == "f" and np.isnan(key).any()) for key in keys):
        raise UnsupportedOperation("it orders complex numbers or NaN. Sort by real and finite keys.")
    order = order_by(keys, axis)
    if not equation.params["is_stable"] and _has_equal(keys, order, axis):
        raise UnsupportedOperation("the order of equal keys is not defined. Sort with is_stable=True.")
    where = np.take_along_axis(numbers(order.shape), order, axis)
    return [
        take(x, where) if isinstance(x, Linear) else x.reshape(-1)[where.reshape(-1)].reshape(where.shape)
        for x in values
    ]


def _has_equal(keys: Sequence[np.ndarray], order: np.ndarray, axis: int) -> bool:
    same = [np.diff(np.take_along_axis(key, order, axis).astype(np.float64), axis=axis) == 0 for key in keys]
    return bool(np.logical_and.reduce(same).any())


# --- pooling by known values, and sums from a start -------------------------------------------------------------------


def _gather_chosen(equation: Any, values: Values) -> Any:
    x, operand = values
    return take(x, _positions(equation, operand))


def _scatter_chosen(equation: Any, values: Values) -> Any:
    x, operand = values
    zeros = np.zeros(equation.outvars[0].aval.shape, x.dtype)
    return scatter_add(zeros, _positions(equation, operand), x)


def _positions(equation: Any, operand: Any) -> np.ndarray:
    where = extreme_positions(static("place of the largest element", operand), equation.params)
    if where is None:
        raise UnsupportedOperation(f"it is not the place of a largest finite number. {MATRIX_FREE}")
    return where


def _window_sum(equation: Any, values: Values) -> Any:
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return window_sum(values[0], *(equation.params.get(name) for name in names))


def _reduce_window(equation: Any, values: Values) -> Any:
    x, p = values[0], equation.params
    if len(values) != 2 or not adds(p["jaxpr"]):
        raise UnsupportedOperation(f"it combines elements by a function of its own. {MATRIX_FREE}")
    if isinstance(x, Linear):
        return add(_window_sum(equation, values), values[1])
    shape = equation.outvars[0].aval.shape
    return add(broadcast_to(values[1], shape), window_reduction(static("array", x), p))


STRUCTURE: dict[str, Callable[[Any, Values], Any]] = {
    "reshape": _reshape,
    "squeeze": lambda equation, values: reshape(values[0], equation.outvars[0].aval.shape),
    "expand_dims": lambda equation, values: reshape(values[0], equation.outvars[0].aval.shape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "pad": _pad,
    "transpose": lambda equation, values: transpose(values[0], equation.params["permutation"]),
    "rev": lambda equation, values: reverse(values[0], equation.params["dimensions"]),
    "concatenate": lambda equation, values: concatenate(values, equation.params["dimension"]),
    "stack": lambda equation, values: stack(values, equation.params["axis"]),
    "split": _split,
    "unstack": _unstack,
    "tile": lambda equation, values: tile(values[0], equation.params["reps"]),
    "select_n": _select,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "scatter-sub": _scatter_add,
    "scatter-mul": _scatter_multiply,
    "sort": _sort,
    "select_and_gather_add": _gather_chosen,
    "select_and_scatter_add": _scatter_chosen,
    "reduce_window_sum": _window_sum,
    "reduce_window": _reduce_window,
}
