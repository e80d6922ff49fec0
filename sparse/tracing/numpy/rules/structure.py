"""Rules for functions that move elements: each takes the elements of its arguments somewhere else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine import structural
from ...engine.indexing import Labels, pad_by_mode, roll
from ...engine.linear import Linear
from ...engine.operands import NotLinear, static_needed, triangle, where
from ...engine.positions import assemble
from ...interpreter import leaves_of, mapped
from ..values import NotFollowed, Value, broadcast, cast, concatenate, plus, reshape


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if isinstance(shift, Linear):
        raise static_needed("shift", shift)
    return roll(a, shift, axis)


def _fftshift(sign: int) -> Callable[..., Any]:
    def shifted(x: Any, axes: Any = None) -> Any:
        axes = list(range(x.ndim)) if axes is None else np.atleast_1d(axes)
        return roll(x, [sign * (x.shape[k] // 2) for k in axes], axes)

    return shifted


def _pad(array: Any, pad_width: Any, mode: Any = "constant", **settings: Any) -> Any:
    if any(isinstance(x, Linear) for x in settings.values()):
        raise NotFollowed("the values around depend on the input; use np.concatenate.")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, pad_width.get(k - array.ndim, (0, 0))) for k in range(array.ndim)]
    widths = [(int(lo), int(hi)) for lo, hi in np.broadcast_to(pad_width, (array.ndim, 2))]
    if mode == "empty" or (mode == "constant" and set(settings) <= {"constant_values"}):
        padded = structural.pad(array, [(lo, hi, 0) for lo, hi in widths])
        around = settings.get("constant_values", 0)
        if not np.any(around):
            return padded
        zeros = np.zeros(array.shape, array.dtype)
        return plus(padded, np.pad(zeros, widths, constant_values=around))
    if mode in ("edge", "wrap", "reflect", "symmetric") and settings.get("reflect_type", "even") == "even":
        return pad_by_mode(array, widths, mode)
    if mode in ("maximum", "minimum", "median"):
        raise NotLinear
    raise NotFollowed(f"there is no rule for mode={mode!r}.")


def _joined(arrays: Any, axis: Any = 0, dtype: Any = None, casting: Any = "same_kind") -> Any:
    parts = [stacked(x) for x in arrays]
    if axis is None:
        parts, axis = [reshape(x, (_size(x),)) for x in parts], 0
    found = concatenate(parts, axis)
    return found if dtype is None else cast(found, dtype)


def _stack(arrays: Any, axis: Any = 0, dtype: Any = None, casting: Any = "same_kind") -> Any:
    parts = [stacked(x) for x in arrays]
    axis %= parts[0].ndim + 1
    return _joined([reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts], axis, dtype)


def stacked(x: Any) -> Value:
    """Nested lists of arrays as one array."""
    if isinstance(x, Linear):
        return x
    if isinstance(x, list | tuple) and x and any(isinstance(leaf, Linear) for leaf in leaves_of(x)):
        return _stack(x)
    return np.asarray(x)


def _size(x: Any) -> int:
    return int(x.size)


def _at_least(x: Any, ndim: int) -> Value:
    x = stacked(x)
    if x.ndim >= ndim:
        return x
    if ndim == 3:
        return reshape(x, {0: (1, 1, 1), 1: (1, _size(x), 1), 2: (*x.shape, 1)}[x.ndim])
    return reshape(x, (*(1,) * (ndim - x.ndim), *x.shape))


def _hstack(tup: Any, dtype: Any = None, casting: Any = "same_kind") -> Any:
    parts = [_at_least(x, 1) for x in tup]
    return _joined(parts, 0 if parts[0].ndim == 1 else 1, dtype)


def _columns(tup: Any) -> Any:
    parts = [stacked(x) for x in tup]
    return _joined([reshape(x, (_size(x), 1)) if x.ndim < 2 else x for x in parts], 1)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise NotFollowed("there is no rule for these arguments.")
    return where(condition if isinstance(condition, Linear) else np.asarray(condition) != 0, stacked(x), stacked(y))


def _meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    settings: Any = {"copy": copy, "sparse": sparse, "indexing": indexing}
    own = np.meshgrid(*[np.arange(_size(x)) for x in xi], **settings)
    return [assemble([x], where) if isinstance(x, Linear) else np.reshape(x, -1)[where] for x, where in zip(xi, own)]


def _moved(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Run by NumPy on the positions of elements, counted from 1, so that zeros that it fills in are none.

    Only for functions that are known to do nothing else with these arguments.
    """
    signature = inspect.signature(function)

    def rule(*args: Any, **kwargs: Any) -> Any:
        bound, labels = signature.bind(*args, **kwargs), Labels()
        rest = [x for name, x in bound.arguments.items() if name not in names]
        if any(isinstance(leaf, Linear) for leaf in leaves_of(rest)):
            raise NotLinear("what is moved where depends on it")

        def labelled(x: Any) -> np.ndarray:
            return labels.of(x if isinstance(x, Linear) else np.asarray(x))

        for name in names:
            if name in bound.arguments:
                bound.arguments[name] = mapped(labelled, bound.arguments[name])
        return labels.result(function(*bound.args, **bound.kwargs))

    return rule


def _labelled(names: dict[str, Sequence[str]]) -> dict[Any, Callable[..., Any]]:
    return {getattr(np, name): _moved(getattr(np, name), *own) for name, own in names.items()}


def _block(arrays: Any) -> Any:
    def depth(x: Any) -> int:
        return 1 + depth(x[0]) if isinstance(x, list) else 0

    deepest = depth(arrays)

    def joined(x: Any, level: int) -> Value:
        if not isinstance(x, list):
            x = stacked(x)
            return reshape(x, (*(1,) * (deepest - x.ndim), *x.shape)) if x.ndim < deepest else x
        return concatenate([joined(piece, level + 1) for piece in x], level - deepest)

    return joined(arrays, 0)


STRUCTURE: dict[Any, Callable[..., Any]] = {
    np.roll: _roll,
    np.fft.fftshift: _fftshift(1),
    np.fft.ifftshift: _fftshift(-1),
    np.pad: _pad,
    np.concatenate: _joined,
    np.stack: _stack,
    np.hstack: _hstack,
    np.vstack: lambda tup, dtype=None, casting="same_kind": _joined([_at_least(x, 2) for x in tup], 0, dtype),
    np.dstack: lambda tup: _joined([_at_least(x, 3) for x in tup], 2),
    np.column_stack: _columns,
    np.append: lambda arr, values, axis=None: _joined([arr, values], axis),
    np.block: _block,
    np.where: _where,
    np.copy: lambda a, order="K", subok=False: a,
    np.tril: lambda m, k=0: triangle(m, np.tril, k),
    np.triu: lambda m, k=0: triangle(m, np.triu, k),
    np.meshgrid: _meshgrid,
    **_labelled(
        {
            **dict.fromkeys(("take", "repeat", "resize", "compress"), ("a",)),
            "tile": ("A",),
            "take_along_axis": ("arr",),
            "diag": ("v",),
            "diagflat": ("v",),
            "insert": ("arr", "values"),
            "select": ("choicelist", "default"),
            "delete": ("arr",),
            "extract": ("arr",),
        }
    ),
}


def _copyto(own: np.ndarray, src: Any, casting: Any = "same_kind", where: Any = True) -> Any:
    if isinstance(where, Linear):
        raise NotLinear("the condition depends on it")
    mask = np.broadcast_to(where, own.shape)
    src = broadcast(src if isinstance(src, Linear) else np.asarray(src), own.shape)
    if mask.all():
        return own, src
    return own[mask], _elements(src, np.flatnonzero(mask))


def _elements(x: Value, positions: np.ndarray) -> Value:
    return assemble([x], positions) if isinstance(x, Linear) else np.asarray(x).reshape(-1)[positions]


def _put(own: np.ndarray, ind: Any, v: Any, mode: Any = "raise") -> Any:
    index = np.arange(own.size).take(np.asarray(ind).reshape(-1), mode=mode)
    return index, _repeated(v, len(index))


def _place(own: np.ndarray, mask: Any, vals: Any) -> Any:
    index = np.flatnonzero(np.asarray(mask))
    return index, _repeated(vals, len(index))


def _putmask(own: np.ndarray, mask: Any, values: Any) -> Any:
    index = np.flatnonzero(np.asarray(mask))
    return index, _elements(_repeated(values, own.size), index)


def _repeated(x: Any, count: int) -> Value:
    x = stacked(x)
    return _elements(x, np.arange(count) % max(_size(x), 1))


def _fill_diagonal(own: np.ndarray, val: Any, wrap: bool = False) -> Any:
    marked = np.zeros(own.shape, bool)
    np.fill_diagonal(marked, True, wrap=wrap)
    index = np.flatnonzero(marked)
    return index, _repeated(val, len(index))


WRITERS: dict[Any, Callable[..., Any]] = {
    np.copyto: _copyto,
    np.put: _put,
    np.place: _place,
    np.putmask: _putmask,
    np.fill_diagonal: _fill_diagonal,
}
