"""Copies on the host, and index arrays of NumPy on the device of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..interface.arrays import Array

_REFUSALS = (AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError)


def on_host(x: Array, library: str) -> np.ndarray:
    """The array as one of NumPy, by DLPack, or as CuPy copies it.

    Raises:
        TypeError: the library gives no copy on the host.
    """
    reason: Exception | None = None
    for way in (_by_dlpack, _by_older_dlpack, _by_get):
        try:
            return np.asarray(way(x))
        except _REFUSALS as error:
            reason = error
    raise TypeError(
        f"An array of {library} on the device {getattr(x, 'device', None)} is needed on the host, which the library "
        f"refuses ({reason}). Give a NumPy array in its place, or choose a method and a preconditioner that need no "
        "matrix on the host: method='CG' or 'GMRES' with preconditioner=None or 'jacobi'."
    ) from reason


def _by_dlpack(x: Array) -> np.ndarray:
    found: np.ndarray = np.from_dlpack(x, device="cpu")
    return found


def _by_older_dlpack(x: Array) -> np.ndarray:
    return np.from_dlpack(x)


def _by_get(x: Array) -> Any:
    return x.get()


class _MadeOfIndices(NamedTuple):
    owner: Any  # weak reference to the array with the memory
    copy: np.ndarray  # its numbers, as its owner may write to it
    made: Any


class OfIndices:
    """What was made of index arrays of NumPy, until these are gone: products of a matrix ask each time.

    What a matrix of SciPy has may be written to between two solves, so that numbers are compared each time: a pass over
    them, which is less than what a product does.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[Any, ...], _MadeOfIndices] = {}

    def get(self, index: np.ndarray, key: tuple[Any, ...], make: Callable[[np.ndarray], Any]) -> Any:
        """`make(index)`, made once for each `key`."""
        owner = index
        while isinstance(owner.base, np.ndarray):  # views are made anew for each product
            owner = owner.base
        whole = (id(owner), index.ctypes.data, index.shape, index.strides, index.dtype.str, *key)
        entry = self._entries.get(whole)
        if entry is not None and entry.owner() is owner and np.array_equal(entry.copy, index):
            return entry.made
        copy = index.copy()
        made = make(copy)
        self._entries[whole] = _MadeOfIndices(ref(owner, lambda _: self._entries.pop(whole, None)), copy, made)
        return made
