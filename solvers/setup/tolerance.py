"""The `rtol` and `atol` arguments: one number, or one per system."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout

_EXPECTED = {
    "rtol": (">= 0 and below 1", "with 1 or more x = 0 would be a solution"),
    "atol": (">= 0 and finite", "0 leaves it to rtol"),
}


def default_rtol(dtype: np.dtype) -> float:
    """Default rtol of a solve in this dtype."""
    return 1e-5 if dtype.itemsize == (8 if dtype.kind == "c" else 4) else 1e-10


def check_tolerance_number(name: str, value: Any) -> None:
    """Refuse an invalid tolerance; anything but a number passes unchecked.

    Raises:
        TypeError: a boolean or a complex number.
        ValueError: another one that is not in the range.
    """
    if isinstance(value, bool | np.bool_ | complex):
        raise TypeError(f"{name} must be a number {_EXPECTED[name][0]}; got {value!r}.")
    if isinstance(value, Number | np.number) and not _is_valid(name, np.float64(value)):  # type: ignore[arg-type]
        _refuse(name, value)


def tolerance(
    bk: Backend, value: Any, default: float, name: str, layout: Layout, rows: Array, dtype: np.dtype
) -> Array:
    """A number, or one per system, as `(1, 1)` or `(systems, 1)` of the real `dtype`.

    A value that a compiled program gets when it runs cannot be refused: one out of range becomes NaN, and the solve
    ends as diverged.

    Raises:
        TypeError, ValueError: got / expected.
    """
    value = default if value is None else value
    if type(value) is not float or not 0 <= value < 1:  # most are
        check_tolerance_number(name, value)
    if isinstance(value, (int, float)):
        return bk.asarray(np.full((1, 1), value, dtype), like=rows)
    array = _array(bk, value, name, rows)
    if tuple(array.shape) not in ((), layout.batch):
        raise ValueError(
            f"{name} has the shape {tuple(array.shape)}; expected one number, or one per system {layout.batch}."
        )
    if bk.compiled(array):
        valid = (array >= 0) & (array < (1 if name == "rtol" else np.inf))
        array = bk.where(valid, bk.astype(array, dtype), bk.full_like(array, np.nan, dtype))
    elif not np.all(_is_valid(name, np.asarray(bk.to_numpy(array)))):
        _refuse(name, value)
    return bk.reshape(bk.astype(array, dtype), (-1, 1) if len(array.shape) else (1, 1))


def _array(bk: Backend, value: Any, name: str, rows: Array) -> Array:
    words = f"{name} must be a number or one number per system; got {value!r}."
    if bk.is_array(value):
        if bk.dtype(value).kind not in "iuf":
            raise TypeError(words)
        return value
    try:
        numbers = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(words) from error
    if numbers.dtype.kind not in "iuf":
        raise TypeError(words)
    return bk.asarray(numbers.astype(np.float64), like=rows)


def _is_valid(name: str, values: np.ndarray | np.floating) -> Any:
    return (values >= 0) & (values < (1 if name == "rtol" else np.inf))


def _refuse(name: str, value: Any) -> None:
    expected, why = _EXPECTED[name]
    raise ValueError(f"{name} must be {expected}; got {value!r} ({why}).")
