"""The arguments that say when a solve stops: `rtol`, `atol` and `max_iter`, one number or one per system.

`max_iter` may also be checkpoints, or checkpoints per system.
"""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout
from ..iteration.stopping import Limits

_EXPECTED = {
    "rtol": (">= 0 and below 1", "with 1 or more x = 0 would be a solution"),
    "atol": (">= 0 and finite", "0 leaves it to rtol"),
}
_MOST_BY_DEFAULT = 10_000
_LARGEST = 2**31 - 1
_EXPECTED_LIMITS = (
    "expected an integer, an increasing sequence of integers (checkpoints), or an array of them with one column per "
    "system of the batch {batch}"
)


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


def find_limits(bk: Backend, max_iter: Any, n: int, batch: tuple[int, ...]) -> tuple[Limits, bool]:
    """The limits for systems of n unknowns; and whether they are checkpoints, which get an axis of their own.

    An array (of NumPy or a library) whose shape is `batch` holds one limit per system, one of shape
    `(checkpoints, *batch)` checkpoints for each; lists, tuples and ranges of integers are checkpoints.

    Raises:
        TypeError, ValueError: got / expected.
    """
    if max_iter is None:
        return Limits(((max(1, min(10 * n, _MOST_BY_DEFAULT)),),)), False
    if isinstance(max_iter, int | np.integer) and not isinstance(max_iter, bool):
        return _checked(np.array([[max_iter]], object), max_iter, batch), False
    counts = _counts(bk, max_iter, batch)
    if batch and counts.shape == batch and hasattr(max_iter, "shape"):
        return _checked(counts.reshape(1, -1), max_iter, batch), False
    if counts.ndim == 0 and hasattr(max_iter, "shape"):
        return _checked(counts.reshape(1, 1), max_iter, batch), False
    if counts.ndim == 1:
        return _checked(counts.reshape(-1, 1), max_iter, batch), True
    if counts.ndim and counts.shape[1:] == batch:
        return _checked(counts.reshape(len(counts), -1), max_iter, batch), True
    raise ValueError(f"max_iter has the shape {counts.shape}; {_EXPECTED_LIMITS.format(batch=batch)}.")


def _counts(bk: Backend, max_iter: Any, batch: tuple[int, ...]) -> np.ndarray:
    if bk.is_array(max_iter) and bk.compiled(max_iter):
        raise TypeError(
            "max_iter is an array of a compiled program; it decides how many steps are compiled, so it must be known: "
            "give an int or a NumPy array."
        )
    try:
        counts = np.asarray(bk.to_numpy(max_iter) if bk.is_array(max_iter) else [*max_iter])
    except (TypeError, ValueError) as error:
        raise TypeError(f"max_iter is {max_iter!r}; {_EXPECTED_LIMITS.format(batch=batch)}.") from error
    if counts.dtype.kind not in "iuO" or not counts.size:
        raise (TypeError if counts.size else ValueError)(
            f"max_iter is {max_iter!r}; {_EXPECTED_LIMITS.format(batch=batch)}."
        )
    return counts


def _checked(counts: np.ndarray, given: Any, batch: tuple[int, ...]) -> Limits:
    if np.any(counts < 0) or np.any(counts > _LARGEST):
        raise ValueError(f"max_iter must be >= 0 and at most {_LARGEST}; got {given!r}.")
    if np.any(counts[1:] <= counts[:-1]):
        raise ValueError(f"max_iter must be >= 0, or an increasing sequence of such integers; got {given!r}.")
    return Limits.of(counts)
