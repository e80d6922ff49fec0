"""Operators of any library, seen from the host: what SciPy's methods get to work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...backends import Array, get_backend
from ..formats import Dense
from ..operator import Operator
from .products import Products


class BridgedOperator(Products):
    """An operator of another library on NumPy arrays; eager only."""

    def __init__(self, inner: Operator, like: Array | None = None) -> None:
        self.bk, self.inner, self.device_like = get_backend("numpy"), inner, like
        self.shape, self.dtype, self.systems = inner.shape, inner.dtype, inner.systems

    def apply(self, x: Array) -> Array:
        theirs = self.inner.bk
        image = self.inner.apply(theirs.asarray(np.ascontiguousarray(x), like=self.device_like))
        return np.array(theirs.to_numpy(image))  # SciPy's methods write to what they get

    @property
    def together(self) -> int | None:
        return self.inner.together

    def transpose(self) -> Operator:
        return BridgedOperator(self.inner.transpose(), self.device_like)

    def conj(self) -> Operator:
        return BridgedOperator(self.inner.conj(), self.device_like)

    def dense(self) -> Array:
        return self.inner.bk.to_numpy(self.inner.dense())

    def diagonals(self) -> Array:
        return self.inner.bk.to_numpy(self.inner.diagonals())

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self


def products_for_host(
    operator: Operator, compiled: bool, like: Array | None = None
) -> tuple[Sequence[Array], Callable[..., Operator]]:
    """`for_host` of an operator that only knows its products.

    Eagerly the host calls it in its own library; inside a compiled function its entries are found first, because a
    host call must not start computations of the library that waits for it.
    """
    if operator.bk.on_host:
        return (), lambda _: operator
    if not compiled:
        return (), lambda _: BridgedOperator(operator, like)
    return (operator.dense(),), lambda arrays: Dense(get_backend("numpy"), arrays[0])
