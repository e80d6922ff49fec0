"""The rules by NumPy's functions, and from a call of NumPy to the rule for it.

    UFUNCS, METHODS    elementwise functions, and their `reduce`, `accumulate` and `outer`
    FUNCTIONS          functions of whole arrays: their parameters are those of NumPy's function
    WRITERS            those that write to their first argument: positions and what goes there
    CREATORS           make arrays of the shape of another
    DESCRIPTIONS       tell shapes and dtypes

A function that is in none of them is not followed; NONLINEAR has the names of those that no rule could follow.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (4,), float)
>>> FUNCTIONS[np.roll](u, -1).terms[0].offset
1
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .....backends.numpy.lending import StandIn
from ....errors import NonlinearError, UnsupportedOperation
from ...engine.arithmetic import conjugate, negate
from ...engine.linear import Linear
from ...engine.operands import NotLinear
from ...engine.positions import select
from ...interpreter import leaves_of
from ..values import NotFollowed, assigned, cast, not_linear, opaque, refused, translated
from .arithmetic import METHODS, SUMS, UFUNCS
from .products import PRODUCTS, einsum, matmul
from .structure import STRUCTURE, WRITERS


def _conjugate(x: Any) -> Any:
    return conjugate(x) if isinstance(x, Linear) else np.conj(x)


_VECTOR_PRODUCTS = {
    "vecdot": lambda x, y: einsum("...i,...i->...", _conjugate(x), y),
    "matvec": lambda x, y: einsum("...ij,...j->...i", x, y),
    "vecmat": lambda x, y: einsum("...i,...ij->...j", _conjugate(x), y),
}
UFUNCS.update({getattr(np, name): rule for name, rule in _VECTOR_PRODUCTS.items() if hasattr(np, name)})
_NEW: dict[Any, dict[str, Callable[..., Any]]] = {  # in NumPy 2
    np: {"cumulative_sum": lambda x, axis=None, dtype=None: SUMS[np.cumsum](x, axis, dtype)},
    np.linalg: {
        "matmul": matmul,
        "outer": PRODUCTS[np.outer],
        "tensordot": PRODUCTS[np.tensordot],
        "vecdot": _VECTOR_PRODUCTS["vecdot"],
        "trace": lambda x, offset=0, dtype=None: SUMS[np.trace](x, offset, -2, -1, dtype),
    },
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **SUMS,
    **STRUCTURE,
    **PRODUCTS,
    **{
        getattr(module, name): rule
        for module, new in _NEW.items()
        for name, rule in new.items()
        if hasattr(module, name)
    },
}
CREATORS = frozenset(
    getattr(np, name)
    for name in ("zeros_like", "ones_like", "full_like", "empty_like", "zeros", "ones", "full", "empty")
)
DESCRIPTIONS = frozenset(
    getattr(np, name)
    for name in ("shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj", "can_cast", "common_type")
)
NONLINEAR = frozenset(
    (
        *("amax", "amin", "max", "min", "nanmax", "nanmin", "argmax", "argmin", "sort", "argsort", "lexsort"),
        *("partition", "median", "percentile", "quantile", "std", "var", "nanstd", "nanvar", "prod", "cumprod"),
        *("nanprod", "any", "all", "clip", "round", "around", "array_equal", "array_equiv", "allclose"),
        *("isclose", "count_nonzero", "nonzero", "argwhere", "flatnonzero", "unique", "searchsorted", "digitize"),
        *("histogram", "bincount", "nan_to_num", "ptp", "norm", "det", "slogdet", "inv", "pinv", "eig", "eigh"),
        *("eigvals", "eigvalsh", "svd", "qr", "cholesky", "matrix_rank", "cond", "fix", "sinc", "i0", "angle"),
        *("unwrap", "corrcoef", "cov", "nansum", "nanmean", "isin", "in1d", "isposinf", "isneginf", "isreal"),
        *("iscomplex", "poly", "polyval", "matrix_power", "multi_dot"),
    )
)

__all__ = ["CREATORS", "DESCRIPTIONS", "FUNCTIONS", "METHODS", "NONLINEAR", "UFUNCS", "WRITERS"]


# --- calls ------------------------------------------------------------------------------------------------------------

_PLAIN_TARGET = (
    "its result goes into an ordinary array, which cannot hold what depends on the input. Make that array by "
    "np.zeros_like(x), or by np.zeros(shape, like=x)."
)


def run_ufunc(tracing: Any, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """See `__array_ufunc__`."""
    if method == "at":
        return _add_at(tracing, ufunc, inputs)
    targets = tuple(x for x in (kwargs.pop("out", None) or ()) if x is not None)
    target = targets[0] if targets else None
    name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    if len(targets) > 1 or (target is not None and not isinstance(target, StandIn)):
        raise opaque(name, _PLAIN_TARGET)
    values = [tracing.value_of(x) for x in inputs]
    plain = target is not None and not target.is_scalar and not kwargs and method == "__call__"
    if plain and _accumulated(ufunc, target, inputs, values):
        return target
    where = tracing.value_of(kwargs.pop("where", True))
    result = _guarded(name, values, lambda: _ufunc(ufunc, method, values, where, kwargs))
    if where is not True:
        old = None if target is None else tracing.value_of(target)
        result = _guarded(name, values, lambda: _chosen(where, old, result))
    return _returned(tracing, name, result, target)


def run_function(tracing: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """See `__array_function__`."""
    name = function.__name__
    args, kwargs, target = _without_out(function, args, kwargs)
    if target is not None and not isinstance(target, StandIn):
        raise opaque(name, _PLAIN_TARGET)
    if function in WRITERS:
        return _write(tracing, function, args, kwargs)
    values = [tracing.value_of(x) for x in args]
    named = {key: tracing.value_of(x) for key, x in kwargs.items()}
    if function in DESCRIPTIONS or function in CREATORS:
        found = function(*_replaced(values, _form), **{key: _replaced(x, _form) for key, x in named.items()})
        if function not in CREATORS:
            return found
        return tracing.wrap(np.zeros_like(found, order="C") if name.startswith("empty") else found, is_scalar=False)
    linear = [x for x in leaves_of([*values, *named.values()]) if isinstance(x, Linear)]
    if not linear:
        result = function(*values, **named)
    else:
        rule = FUNCTIONS.get(function)
        if rule is None and name in NONLINEAR:
            raise not_linear(name)
        if rule is None or not _accepts(rule, values, named):
            raise opaque(name, f"there is no rule for it{' with these arguments' if rule else ''}.")
        result = _guarded(name, linear, lambda: rule(*values, **named))
    returned = _returned(tracing, name, result, target)
    if function in (np.einsum, np.real, np.imag) and isinstance(returned, StandIn) and target is None:
        returned.flags.writeable = False  # NumPy may have made a view of the operand
    return returned


def _guarded(name: str, values: Sequence[Any], call: Callable[[], Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return call()
    except (NotFollowed, NonlinearError, UnsupportedOperation) as error:
        raise translated(error, name, list(values)) from None


def _ufunc(ufunc: np.ufunc, method: str, values: Sequence[Any], where: Any, kwargs: dict[str, Any]) -> Any:
    if not any(isinstance(value, Linear) for value in values):
        if ufunc is np.matmul and not kwargs:
            return operator.matmul(*values)  # one may be sparse, which the ufunc does not take
        return getattr(ufunc, method)(*values, **kwargs)
    dtype = kwargs.pop("dtype", None)
    rest = {key: x for key, x in kwargs.items() if key not in ("casting", "order", "subok")}
    rules = UFUNCS if method == "__call__" else METHODS.get(method, {})
    if ufunc not in rules:
        if getattr(np, ufunc.__name__, None) is not ufunc:
            raise NotFollowed("it is no function of NumPy.")
        if ufunc in UFUNCS:
            raise NotFollowed(f"there is no rule for its method '{method}'.")
        raise NotLinear
    if where is not True and method != "__call__":
        raise NotFollowed("there is no rule for where=.")
    result = rules[ufunc](*values, **rest)
    return result if dtype is None else cast(result, dtype)


def _chosen(where: Any, old: Any, result: Any) -> Any:
    if isinstance(where, Linear):
        raise NotLinear("the condition depends on it")
    if old is None:
        raise NotFollowed("elements where the condition does not hold are not defined; give out=.")
    where, result = np.broadcast_to(where, old.shape), assigned(result, old.shape)
    if isinstance(old, Linear) or isinstance(result, Linear):
        return select(where, [old, result])
    return np.where(where, result, old)


def _accumulated(ufunc: np.ufunc, target: Any, inputs: Sequence[Any], values: Sequence[Any]) -> bool:
    """Was it `target += x` or `target -= x`? Then only x is added, whatever lies around."""
    if ufunc not in (np.add, np.subtract) or not _is_target(inputs[0], target):
        return False
    added = values[1] if isinstance(values[1], Linear) else np.asarray(values[1])
    if added.dtype.kind not in "biuf" + target.dtype.kind:
        return False
    if ufunc is np.subtract:
        added = negate(added) if isinstance(added, Linear) else -added.astype(target.dtype)
    name = ufunc.__name__
    _guarded(name, values, lambda: target.accumulate(added, name))
    return True


def _is_target(x: Any, target: Any) -> bool:
    if x is target:
        return True
    return isinstance(x, StandIn) and x.buffer is target.buffer and is_same_view(x.ghost, target.ghost)


def is_same_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Do two views have the same elements of memory?"""
    here, there = a.__array_interface__, b.__array_interface__
    return bool(here["data"][0] == there["data"][0] and a.shape == b.shape and a.strides == b.strides)


def _returned(tracing: Any, name: str, result: Any, target: Any) -> Any:
    if target is None or target.is_scalar:
        return tracing.wrap(result)
    dtype = result.dtype if isinstance(result, Linear) else np.asarray(result).dtype
    if not np.can_cast(dtype, target.dtype, "same_kind"):
        raise refused(name, f"its result of {dtype} does not fit into an array of {target.dtype}.")
    if tuple(np.shape(result) if not isinstance(result, Linear) else result.shape) != target.shape:
        result = _guarded(name, [], lambda: assigned(result, target.shape))
    _guarded(name, [], lambda: target.write(result, name))
    return target


def _add_at(tracing: Any, ufunc: np.ufunc, inputs: Sequence[Any]) -> None:
    name = f"{ufunc.__name__}.at"
    target, key, *rest = inputs
    if not isinstance(target, StandIn):
        raise opaque(name, _PLAIN_TARGET)
    if ufunc not in (np.add, np.subtract):
        raise opaque(name, "there is no rule for it.")
    positions = target.positions_at(key, name)
    value = tracing.value_of(rest[0])
    value = value if isinstance(value, Linear) else np.asarray(value)

    def run() -> None:
        added = assigned(cast(value, target.dtype), positions.shape)
        if ufunc is np.subtract:
            added = negate(added) if isinstance(added, Linear) else -added
        target.buffer.accumulate_at(positions, added)

    _guarded(name, [value], run)


def _write(tracing: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    target, *rest = args
    if not isinstance(target, StandIn):
        raise opaque(function.__name__, _PLAIN_TARGET)
    if not _accepts(WRITERS[function], args, kwargs):
        raise opaque(function.__name__, "there is no rule for it with these arguments.")
    own = np.arange(target.size).reshape(target.shape)
    values = [tracing.value_of(x) for x in rest]
    named = {key: tracing.value_of(x) for key, x in kwargs.items()}
    positions, value = _guarded(function.__name__, values, lambda: WRITERS[function](own, *values, **named))
    index = np.unravel_index(positions, target.shape) if target.ndim else ()
    target[index] = tracing.wrap(value) if isinstance(value, Linear) else value


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # compiled, without one
        return None


def _accepts(rule: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    signature = _signature(rule)
    try:
        if signature is not None:
            signature.bind(*args, **kwargs)
        return True
    except TypeError:
        return False


def _without_out(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    kwargs, args = dict(kwargs), list(args)
    target = kwargs.pop("out", None)
    signature = _signature(function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [] if signature is None else [p.name for p in signature.parameters.values() if p.kind in kinds]
    if "out" in names and names.index("out") < len(args):
        place = names.index("out")
        target = args[place]
        kwargs.update(zip(names[place + 1 :], args[place + 1 :]))
        args = args[:place]
    return args, kwargs, target


def _replaced(x: Any, by: Callable[[Any], Any]) -> Any:
    return type(x)(_replaced(part, by) for part in x) if type(x) in (list, tuple) else by(x)


def _form(x: Any) -> Any:
    """An array of zeros that costs no memory, of the shape and dtype of an input-dependent one."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Linear) else x
