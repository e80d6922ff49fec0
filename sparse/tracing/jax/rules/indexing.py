"""Rules for gathers, scatters and windows whose place is computed.

`u[i]` for known indices i = 2, 0, 3: the parameters of the gather and i tell the position of each element.

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u, i = identity(get_backend("jax"), (4,), float), np.array([[2], [0], [3]], np.int32)
>>> equation = jax.make_jaxpr(lambda u: u[i[:, 0]])(np.zeros(4)).eqns[-1]
>>> positions(gather_window((4,), equation.params), i, (3,))
array([2, 0, 3])
>>> INDEXING["gather"](equation, [u, i]).terms
(Gathered(columns=array([2, 0, 3], dtype=int32), factor=1, values=None),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from ....formats.entries.integers import row_strides
from ...engine.arithmetic import add, negate, scale
from ...engine.linear import Linear, reshape
from ...engine.operations.replace import replace_box
from ...engine.positions import assemble, scatter_add, take
from ...engine.refusals import NotLinear, static
from ...engine.structural import pad, slice_
from ...engine.windows import clamped_start, positions, single_start
from ..known.reductions import order_by
from ..known.table import bind, evaluate_equation, is_known
from ..windows import fill_value, gather_window, scatter_window, sets_values

Values = Sequence[Any]


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
    starts = clamped_start(_known_starts(starts), x.shape, sizes)
    return slice_(x, starts, _ends(starts, sizes))


def _dynamic_update_slice(equation: Any, values: Values) -> Any:
    x, update, *starts = values
    starts = clamped_start(_known_starts(starts), x.shape, update.shape)
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
        return replace_box(x, _reshaped(updates, window.sizes), starts)
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


def _known_starts(starts: Values) -> list[int]:
    return [int(static("index", start)) for start in starts]


def _ends(starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
    return [start + size for start, size in zip(starts, sizes)]


def _reshaped(x: Any, shape: Sequence[int]) -> Any:
    return reshape(x, shape) if isinstance(x, Linear) else x.reshape(shape)


def _sort(equation: Any, values: Values) -> Any:
    """By known keys; the other operands may depend on the input."""
    axis, count = equation.params["dimension"], equation.params["num_keys"]
    keys = [static("order", key) for key in values[:count]]
    if any(key.dtype.kind == "c" or (key.dtype.kind == "f" and np.isnan(key).any()) for key in keys):
        raise UnsupportedOperation("it orders complex numbers or NaN. Sort by real and finite keys.")
    order = order_by(keys, axis)
    if not equation.params["is_stable"] and _has_equal(keys, order, axis):
        raise UnsupportedOperation("the order of equal keys is not defined. Sort with is_stable=True.")
    along = np.broadcast_to(
        np.arange(order.shape[axis]).reshape([-1 if a == axis else 1 for a in range(order.ndim)]), order.shape
    )
    where = np.arange(order.size).reshape(order.shape) + (order - along) * row_strides(order.shape)[axis]
    return [take(x, where) if isinstance(x, Linear) else _taken(x, where) for x in values]


def _has_equal(keys: Sequence[np.ndarray], order: np.ndarray, axis: int) -> bool:
    same = [np.diff(np.take_along_axis(key, order, axis).astype(np.float64), axis=axis) == 0 for key in keys]
    return bool(np.logical_and.reduce(same).any())


def _taken(x: Any, where: np.ndarray) -> Any:
    return x.reshape(-1)[where.reshape(-1)].reshape(where.shape)


INDEXING: dict[str, Callable[[Any, Values], Any]] = {
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "scatter": _scatter,
    "scatter-add": _scatter_add,
    "scatter-sub": _scatter_add,
    "scatter-mul": _scatter_multiply,
    "sort": _sort,
}
