"""The second table: equations whose operands are all known, evaluated by NumPy.

A number that was broadcast to a grid is added once. Integers are divided towards zero, and by zero by JAX only:

>>> grid = np.broadcast_to(2.0, (100, 100))
>>> ELEMENTWISE["add"]([grid, grid], {}, [grid])
array([[4.]])
>>> i = np.array([-7, 7])
>>> ELEMENTWISE["div"]([i, np.array([2, 2])], {}, [i])
array([-3,  3])
>>> ELEMENTWISE["div"]([i, np.array([2, 0])], {}, [i]) is None
True

>>> RULES["pad"]([np.array([1, 2]), np.array(0)], {"padding_config": [(1, 0, 1)]}, [])
array([0, 1, 0, 2])

>>> RULES["cumsum"]([np.array([1, 2, 3])], {"axis": 0, "reverse": True}, [])
array([6, 5, 3])

>>> import jax
>>> settings = {"window_dimensions": (2,), "window_strides": (2,), "padding": [(1, 1)]}
>>> extreme_positions(np.array([3.0, 5.0, 5.0, 1.0]), {**settings, "select_prim": jax.lax.ge_p})
array([0, 1, 3])

>>> (equation,) = jax.make_jaxpr(lambda x: jax.lax.rev(x, (0,)))(np.zeros(3, np.float32)).eqns
>>> evaluate_equation(equation, [np.array([1, 2, 3], np.float32)])
[array([3., 2., 1.], dtype=float32)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from ....backends.jax.sharding.varying import axes_of, is_mapped, vary
from ..engine.coefficients import pad_known, pointwise
from ..engine.indexing import Shape, Window, clamped_start, numbers, positions, single_start

Args = Sequence[np.ndarray]
Params = dict[str, Any]


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(*arrays)` as a rule, which computes once what is the same along an axis."""

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        return pointwise(function, args, avals[0].shape)

    return rule


def _floats(function: Callable[..., Any], dtypes: str = "fdFD") -> Callable[..., Any]:
    """Half precision is left to JAX, which computes in single and rounds once."""
    evaluate = once(function)

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        return evaluate(args, params, avals) if all(a.dtype.char in dtypes for a in args) else None

    return rule


def _real_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return _floats(function, "fd")


def _divide(x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind not in "iu":
        return x / y
    if not y.all():
        return None
    quotient = x // y
    return quotient + ((x % y != 0) & ((x < 0) != (y < 0))) if x.dtype.kind == "i" else quotient  # towards zero


def _remainder(x: np.ndarray, y: np.ndarray) -> Any:
    return None if x.dtype.kind in "iu" and not y.all() else np.fmod(x, y)


def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    def shifted(x: np.ndarray, by: np.ndarray) -> Any:
        inside = not by.size or (by.min() >= 0 and by.max() < 8 * x.dtype.itemsize)
        return function(x, by) if inside else None

    return shifted


def _shift_right_logical(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    unsigned = f"u{x.dtype.itemsize}"
    return (x.view(unsigned) >> by.view(unsigned)).view(x.dtype)


def _select(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    which, *cases = args
    if which.dtype != bool and not (which.size and which.min() >= 0 and which.max() < len(cases)):
        return None
    if not which.ndim:
        return cases[int(which)]
    if which.dtype != bool:
        return np.take_along_axis(np.stack(cases), which[None], axis=0)[0]  # np.choose takes few cases only
    return np.where(which, cases[-1], cases[0])


def _integer_pow(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), y = args, params["y"]
    if x.dtype.char not in "fdFD" and (x.dtype.kind not in "iu" or y < 0):
        return None
    if 0 <= y <= 3:  # products, as XLA computes them
        return [np.ones_like(x), x, x * x, x * x * x][y]
    return once(lambda base: base**y if y >= 0 else 1 / base**-y)(args, params, avals)


def _round(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,) = args
    if x.dtype.char not in "fd":
        return None
    if int(params["rounding_method"]) == 1:
        return np.round(x)
    whole = np.trunc(x)  # halves away from zero
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def _convert(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), to = args, np.dtype(avals[0].dtype)
    if x.dtype == to:
        return x
    if to.kind == "b":
        return x != 0
    if x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    if x.dtype.kind in "iub" and to.kind in "iu":
        return x.astype(to)
    if to.kind in "iu":
        limits = np.iinfo(to)
        inside = x.dtype.char in "fd" and (not x.size or (np.min(x) > limits.min and np.max(x) < limits.max))
        return x.astype(to) if inside else None  # XLA saturates
    return once(lambda a: a.astype(to))([x], params, avals)


def _bitcast(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), to = args, np.dtype(avals[0].dtype)
    return np.array(x, order="C").view(to) if to.itemsize == x.dtype.itemsize and to.kind != "b" else None


def _iota(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    if args:
        return None
    shape, axis, dtype = params["shape"], params["dimension"], np.dtype(params["dtype"])
    if dtype.char not in "fdFD" and dtype.kind not in "iu":
        return None
    ends = [1] * len(shape)
    ends[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(ends), shape)


def _same(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    return list(args)


ELEMENTWISE: dict[str, Callable[[Args, Params, Sequence[Any]], Any]] = {
    "add": once(np.add),
    "add_any": once(np.add),
    "sub": once(np.subtract),
    "mul": once(np.multiply),
    "div": once(_divide),
    "rem": once(_remainder),
    "neg": once(np.negative),
    "sign": once(lambda x: np.sign(x) if x.dtype.kind != "c" else None),
    "abs": once(np.abs),
    "square": once(np.square),
    "max": once(np.maximum),
    "min": once(np.minimum),
    "clamp": once(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "eq": once(np.equal),
    "ne": once(np.not_equal),
    "lt": once(np.less),
    "le": once(np.less_equal),
    "gt": once(np.greater),
    "ge": once(np.greater_equal),
    "and": once(np.bitwise_and),
    "or": once(np.bitwise_or),
    "xor": once(np.bitwise_xor),
    "not": once(np.invert),
    "shift_left": once(_shift(np.left_shift)),
    "shift_right_arithmetic": once(_shift(np.right_shift)),
    "shift_right_logical": once(_shift(_shift_right_logical)),
    "is_finite": once(np.isfinite),
    "real": once(np.real),
    "imag": once(np.imag),
    "conj": once(np.conj),
    "complex": once(lambda x, y: x + 1j * y if np.isfinite(x).all() and np.isfinite(y).all() else None),
    "floor": _real_floats(np.floor),
    "ceil": _real_floats(np.ceil),
    "round": _round,
    "sqrt": _floats(np.sqrt),
    "rsqrt": _real_floats(lambda x: 1 / np.sqrt(x)),
    "cbrt": _real_floats(np.cbrt),
    "exp": _floats(np.exp),
    "exp2": _real_floats(np.exp2),
    "expm1": _real_floats(np.expm1),
    "log": _floats(np.log),
    "log1p": _real_floats(np.log1p),
    "logistic": _real_floats(special.expit),
    "sin": _floats(np.sin),
    "cos": _floats(np.cos),
    "tan": _real_floats(np.tan),
    "asin": _real_floats(np.arcsin),
    "acos": _real_floats(np.arccos),
    "atan": _real_floats(np.arctan),
    "atan2": _real_floats(np.arctan2),
    "sinh": _real_floats(np.sinh),
    "cosh": _real_floats(np.cosh),
    "tanh": _real_floats(np.tanh),
    "erf": _real_floats(special.erf),
    "erfc": _real_floats(special.erfc),
    "erf_inv": _real_floats(special.erfinv),
    "lgamma": _real_floats(special.gammaln),
    "pow": _real_floats(np.power),
    "nextafter": _real_floats(np.nextafter),
    "integer_pow": _integer_pow,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "select_n": _select,
    "iota": _iota,
    "copy": _same,
    "copy_p": _same,
    "pvary": _same,
    "stop_gradient": _same,
    "optimization_barrier": _same,
}


# --- moving elements --------------------------------------------------------------------------------------------------


def _slice(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    starts, limits = params["start_indices"], params["limit_indices"]
    return args[0][tuple(slice(a, b, s) for a, b, s in zip(starts, limits, params["strides"] or (1,) * len(starts)))]


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


# --- windows of gathers and scatters ----------------------------------------------------------------------------------


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


# --- reductions, sorting, products ------------------------------------------------------------------------------------

Rule = Callable[[Args, Params, Sequence[Any]], Any]
MAX_TERMS = 2**26  # of a convolution; longer ones are left to XLA


def _usual(x: np.ndarray) -> bool:
    """Not half precision, whose sums XLA accumulates in single precision."""
    return x.dtype.char in "fdFD?" or x.dtype.kind in "iu"


def _reduce(function: Callable[..., Any], empty: Any = None) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axes = args, tuple(params["axes"])
        if not _usual(x):
            return None
        if not x.size and empty is None:
            return None
        return function(x, axis=axes) if x.dtype.kind == "b" or empty is None else function(x, axis=axes, dtype=x.dtype)

    return rule


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axes = args, params["axes"]
        return function(x, axis=axes[0]) if len(axes) == 1 and x.size and x.dtype.kind in "fiub" else None

    return rule


def _cumulative(function: Any) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axis = args, params["axis"]
        if not _usual(x) or x.dtype.kind == "b":
            return None
        x = np.flip(x, axis) if params["reverse"] else x
        result = function.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(result, axis) if params["reverse"] else result

    return rule


def _sort(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    axis, keys = params["dimension"], params["num_keys"]
    if any(not _usual(x) or x.dtype.kind == "c" for x in args[:keys]):
        return None
    if any(x.dtype.kind == "f" and np.isnan(x).any() for x in args[:keys]):
        return None  # XLA has its own order of these
    if len(args) == 1:
        return [np.sort(args[0], axis, kind="stable")]
    order = order_by(args[:keys], axis)
    return [np.take_along_axis(x, order, axis) for x in args]


def order_by(keys: Args, axis: int) -> np.ndarray:
    """Positions along an axis in the order of the first key, of equal elements in that of the next one."""
    return np.asarray(np.lexsort(tuple(keys)[::-1], axis=axis))


def _dot_general(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    a, b = args
    (a_sum, b_sum), (a_batch, b_batch) = params["dimension_numbers"]
    if not (_usual(a) and _usual(b)) or "b" in (a.dtype.kind, b.dtype.kind):
        return None
    to = np.dtype(avals[0].dtype)
    if to.kind in "iu" and to != a.dtype:
        return None
    letters = iter(range(52))
    a_axes = [next(letters) for _ in range(a.ndim)]
    b_axes = [next(letters) for _ in range(b.ndim)]
    for i, j in (*zip(a_sum, b_sum), *zip(a_batch, b_batch)):
        b_axes[j] = a_axes[i]
    batch = [a_axes[i] for i in a_batch]
    free = [a_axes[i] for i in range(a.ndim) if i not in (*a_sum, *a_batch)]
    free += [b_axes[j] for j in range(b.ndim) if j not in (*b_sum, *b_batch)]
    return np.einsum(a.astype(to), a_axes, b.astype(to), b_axes, batch + free, optimize=True)


def _spread(
    x: np.ndarray, padding: Sequence[tuple[int, int]], distances: Sequence[int] | None, fill: Any = 0
) -> np.ndarray:
    """With numbers around, and between elements that are so far apart."""
    return pad_known(x, [(lo, hi, d - 1) for (lo, hi), d in zip(padding, distances or (1,) * x.ndim)], fill)


def windows(x: np.ndarray, sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int] | None) -> np.ndarray:
    """A view `(*positions, *sizes)` of all windows of `x`."""
    dilation = dilation or (1,) * x.ndim
    reach = [(size - 1) * d + 1 for size, d in zip(sizes, dilation)]
    count = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape, reach, strides)]
    if 0 in count:
        return np.zeros((*count, *sizes), x.dtype)
    steps = [step * s for step, s in zip(x.strides, strides)]
    inner = [step * d for step, d in zip(x.strides, dilation)]
    return np.lib.stride_tricks.as_strided(x, (*count, *sizes), (*steps, *inner), writeable=False)


def _convolution(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    if not all(_usual(x) for x in args) or params["batch_group_count"] != 1:
        return None
    image, kernel = args[0].transpose(numbers.lhs_spec), args[1].transpose(numbers.rhs_spec)
    terms = math.prod(avals[0].shape) * math.prod(kernel.shape[1:])
    if terms == 0 or terms > MAX_TERMS:
        return None
    to = np.dtype(avals[0].dtype)
    image = _spread(image.astype(to), ((0, 0), (0, 0), *params["padding"]), (1, 1, *params["lhs_dilation"]))
    batch, features = image.shape[:2]
    grouped = image.reshape(batch, groups, features // groups, *image.shape[2:])
    kernel = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:]).astype(to)
    ones = (1,) * 3
    views = windows(
        grouped, (*ones, *kernel.shape[3:]), (*ones, *params["window_strides"]), (*ones, *params["rhs_dilation"])
    )
    d = kernel.ndim - 3
    views = views.reshape(*views.shape[: 3 + d], *views.shape[6 + d :])  # (batch, group, in, *space, *window)
    space, window = list(range(10, 10 + d)), list(range(30, 30 + d))
    result = np.einsum(views, [0, 1, 2, *space, *window], kernel, [1, 3, 2, *window], [0, 1, 3, *space], optimize=True)
    result = result.reshape(batch, -1, *result.shape[3:])
    return result.transpose(np.argsort(numbers.out_spec))


def _top_k(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,) = args
    if params.get("axis", x.ndim - 1) not in (-1, x.ndim - 1) or x.dtype.char not in "fd" or np.isnan(x).any():
        return None
    order = np.argsort(-x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]


# --- pooling ----------------------------------------------------------------------------------------------------------


def extreme_positions(x: np.ndarray, params: Params) -> np.ndarray | None:
    """The flat position in x of the largest (or smallest) element of each window, of equal ones the first.

    -1 for windows in the padding. None where this is not what an operation with these parameters does.
    """
    select, sizes, strides = params["select_prim"].name, params["window_dimensions"], params["window_strides"]
    spread = any(d != 1 for name in ("base_dilation", "window_dilation") for d in params.get(name) or ())
    if select not in ("ge", "le") or spread or x.dtype.char not in "fd" or not np.isfinite(x).all():
        return None
    lowest = -np.inf if select == "ge" else np.inf
    values = _spread(x, params["padding"], None, lowest)
    places = _spread(numbers(x.shape), params["padding"], None, -1)
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
    spread = _spread(x, params["padding"], params["base_dilation"])
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


# --- the table --------------------------------------------------------------------------------------------------------
# JAX would compile a program for each of them, which takes longer than tracing the whole function. A rule gets the
# operands, the parameters, and shapes and dtypes of the results; it returns the result, or a list of them, which may be
# smaller where it repeats along an axis. It returns None where NumPy and XLA differ (division of integers by zero, sums
# in half precision ...); such equations, and those without a rule, are evaluated by JAX itself.

RULES: dict[str, Rule] = {
    **ELEMENTWISE,
    "reshape": _reshape,
    "squeeze": lambda args, params, avals: args[0].reshape(avals[0].shape),
    "expand_dims": lambda args, params, avals: args[0].reshape(avals[0].shape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "pad": lambda args, params, avals: pad_known(args[0], params["padding_config"], args[1]),
    "transpose": lambda args, params, avals: args[0].transpose(params["permutation"]),
    "rev": lambda args, params, avals: np.flip(args[0], params["dimensions"]),
    "concatenate": lambda args, params, avals: np.concatenate(args, params["dimension"]),
    "stack": lambda args, params, avals: np.stack(args, params["axis"]),
    "tile": lambda args, params, avals: np.tile(args[0], params["reps"]),
    "split": lambda args, params, avals: np.split(args[0], np.cumsum(params["sizes"])[:-1], params["axis"]),
    "unstack": lambda args, params, avals: list(np.moveaxis(args[0], params["axis"], 0)),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(None),
    "scatter-add": _scatter(np.add),
    "scatter-sub": _scatter(np.subtract),
    "scatter-mul": _scatter(np.multiply),
    "scatter-min": _scatter(np.minimum),
    "scatter-max": _scatter(np.maximum),
    "reduce_sum": _reduce(np.sum, 0),
    "reduce_prod": _reduce(np.prod, 1),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_and": _reduce(np.bitwise_and.reduce),
    "reduce_or": _reduce(np.bitwise_or.reduce),
    "reduce_xor": _reduce(np.bitwise_xor.reduce),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "sort": _sort,
    "top_k": _top_k,
    "dot_general": _dot_general,
    "reduce_window_sum": lambda args, params, avals: window_reduction(args[0], params) if _usual(args[0]) else None,
    "conv_general_dilated": _convolution,
    "select_and_gather_add": _gather_chosen,
    "select_and_scatter_add": _scatter_chosen,
    "reduce_window": _reduce_window,
}


def is_known(x: Any) -> bool:
    """Does this value of the interpreter have values now? Random keys stay arrays of JAX."""
    return isinstance(x, np.ndarray) or (isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer))


def as_known(x: Any, dtype: Any = None) -> Any:
    """A number or array as NumPy, a tracer or a random key as it is."""
    if isinstance(x, jax.core.Tracer):
        return x
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    return np.asarray(x, dtype)


def evaluate_equation(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The results of one equation for known operands.

    They have the equation's dtypes, but where the operands have others: positions that were put in the place of numbers
    stay integers, as those above 2^24 are no numbers of single precision.
    """
    rule = RULES.get(equation.primitive.name)
    avals = [v.aval for v in equation.outvars]
    if rule is not None and all(isinstance(value, np.ndarray) for value in values):
        with np.errstate(all="ignore"):
            result = rule(values, equation.params, avals)
        if result is not None:
            results = result if isinstance(result, list) else [result]
            if any(_is_integer(v.dtype) and not _is_integer(a.aval.dtype) for v, a in zip(values, equation.invars)):
                return [np.broadcast_to(r, aval.shape) for r, aval in zip(results, avals)]
            return [_fitting(r, aval) for r, aval in zip(results, avals)]
    return evaluate_by_jax(equation, values)


def evaluate_by_jax(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The same by JAX, also where a transformation is running; XLA compiles the equation for it."""
    with jax.ensure_compile_time_eval():
        return [as_known(result) for result in bind(equation, [jnp.asarray(value) for value in values])]


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The equation as an operation on arrays and tracers of JAX, as if the user had called it."""
    primitive, params = equation.primitive, equation.primitive.get_bind_params(equation.params)
    if is_mapped():  # known operands are the same on all devices
        values = [vary(v, axes_of([atom.aval])) for v, atom in zip(values, equation.invars)]
    if isinstance(params, tuple):  # JAX < 0.8
        functions, params = params
        result = primitive.bind(*functions, *values, **params)
    else:
        result = primitive.bind(*values, **params)
    return list(result) if primitive.multiple_results else [result]


def _is_integer(dtype: Any) -> bool:
    return np.dtype(dtype).kind in "iu" if isinstance(dtype, np.dtype) else False


def _fitting(result: Any, aval: Any) -> np.ndarray:
    result = np.asarray(result, aval.dtype)
    return result if result.shape == aval.shape else np.broadcast_to(result, aval.shape)
