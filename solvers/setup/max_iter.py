"""The `max_iter` argument: one number, checkpoints, one number per system, or checkpoints per system."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Backend
from ..iteration.limits import Limits

_MOST_BY_DEFAULT = 10_000
_LARGEST = 2**31 - 1
_EXPECTED = (
    "expected an integer, an increasing sequence of integers (checkpoints), or an array of them with one column per "
    "system of the batch {batch}"
)


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
    counts = _array(bk, max_iter, batch)
    if batch and counts.shape == batch and hasattr(max_iter, "shape"):
        return _checked(counts.reshape(1, -1), max_iter, batch), False
    if counts.ndim == 0 and hasattr(max_iter, "shape"):
        return _checked(counts.reshape(1, 1), max_iter, batch), False
    if counts.ndim == 1:
        return _checked(counts.reshape(-1, 1), max_iter, batch), True
    if counts.ndim and counts.shape[1:] == batch:
        return _checked(counts.reshape(len(counts), -1), max_iter, batch), True
    raise ValueError(f"max_iter has the shape {counts.shape}; {_EXPECTED.format(batch=batch)}.")


def _array(bk: Backend, max_iter: Any, batch: tuple[int, ...]) -> np.ndarray:
    if bk.is_array(max_iter) and bk.compiled(max_iter):
        raise TypeError(
            "max_iter is an array of a compiled program; it decides how many steps are compiled, so it must be known: "
            "give an int or a NumPy array."
        )
    try:
        counts = np.asarray(bk.to_numpy(max_iter) if bk.is_array(max_iter) else [*max_iter])
    except (TypeError, ValueError) as error:
        raise TypeError(f"max_iter is {max_iter!r}; {_EXPECTED.format(batch=batch)}.") from error
    if counts.dtype.kind not in "iuO" or not counts.size:
        raise (TypeError if counts.size else ValueError)(f"max_iter is {max_iter!r}; {_EXPECTED.format(batch=batch)}.")
    return counts


def _checked(counts: np.ndarray, given: Any, batch: tuple[int, ...]) -> Limits:
    if np.any(counts < 0) or np.any(counts > _LARGEST):
        raise ValueError(f"max_iter must be >= 0 and at most {_LARGEST}; got {given!r}.")
    if np.any(counts[1:] <= counts[:-1]):
        raise ValueError(f"max_iter must be >= 0, or an increasing sequence of such integers; got {given!r}.")
    return Limits.of(counts)
