"""The Laplacian on a grid as users of NumPy, PyTorch and TensorFlow write it: shifts, padding, writes in place.

In any number of dimensions, grid spacing 1. What a library adds is small, and handed in: `Arrays`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[Any], Any]
Form = Callable[["Arrays"], Function]


class Arrays(NamedTuple):
    """A library, as far as the operators below need it."""

    title: str
    of: Callable[[np.ndarray], Any]
    roll: Callable[[Any, int, int], Any]
    padded: Callable[[Any], Any]  # with one zero at each end of each axis
    copy: Callable[[Any], Any] | None  # to be written to; None where arrays are constant


def arrays_of(library: str) -> Arrays:
    """Of `numpy`, `torch` or `tensorflow`, imported now."""
    return {"numpy": _numpy, "torch": _torch, "tensorflow": _tensorflow}[library]()


def _numpy() -> Arrays:
    return Arrays("NumPy", np.asarray, np.roll, lambda u: np.pad(u, 1), np.copy)


def _torch() -> Arrays:
    import torch
    from torch.nn.functional import pad

    return Arrays("PyTorch", torch.as_tensor, torch.roll, lambda u: pad(u, (1, 1) * u.ndim), torch.clone)


def _tensorflow() -> Arrays:
    import tensorflow as tf

    return Arrays("TensorFlow", tf.constant, tf.roll, lambda u: tf.pad(u, [[1, 1]] * len(u.shape)), None)


def rolled(arrays: Arrays) -> Function:
    """Periodic."""

    def apply(u: Any) -> Any:
        out = -2 * len(u.shape) * u
        for axis in range(len(u.shape)):
            out = out + arrays.roll(u, 1, axis) + arrays.roll(u, -1, axis)
        return out

    return apply


def padded(arrays: Arrays) -> Function:
    """Zero at the boundary."""

    def apply(u: Any) -> Any:
        p, out = arrays.padded(u), -2 * len(u.shape) * u
        for axis in range(len(u.shape)):
            inside = [slice(1, -1)] * len(u.shape)
            for shifted in (slice(2, None), slice(0, -2)):
                inside[axis] = shifted
                out = out + p[tuple(inside)]
        return out

    return apply


def in_place(arrays: Arrays) -> Function:
    """Zero at the boundary; the result is written part by part."""
    copy = arrays.copy
    if copy is None:
        raise TypeError(f"arrays of {arrays.title} cannot be written to")

    def apply(u: Any) -> Any:
        out = copy(u)
        out *= -2 * u.ndim
        for axis in range(u.ndim):
            low = (slice(None),) * axis + (slice(None, -1),)
            high = (slice(None),) * axis + (slice(1, None),)
            out[low] += u[high]
            out[high] += u[low]
        return out

    return apply


# By name, with the boundary of the same operator of a peer.
FORMS: dict[str, tuple[Form, str]] = {
    "roll": (rolled, "periodic"),
    "pad": (padded, "Dirichlet"),
    "in place": (in_place, "Dirichlet"),
}
