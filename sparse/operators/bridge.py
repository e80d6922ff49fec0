"""Adapters of operators of any library to NumPy arrays, for SciPy's methods and for loops on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...backends import Array, get_backend
from ..formats import Dense
from ..operator import Operator
from .composed import Composed
from .products import Products
from .symmetric_dia import as_symmetric_dia


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


@dataclass(eq=False, repr=False)
class OnHost(Composed):
    """`inner` of any library for a loop of the host on rows of NumPy: each product is in its own library.

    It gets each row in an array of its library, in the same memory where that can be.
    """

    inner: Operator

    def _settle(self) -> None:
        super()._settle()
        self.bk = get_backend("numpy")
        self.products = self.inner.products  # type: ignore[misc]

    def _register(self) -> None:
        """It lives as long as a loop, and no library takes it apart."""

    @property
    def in_steps(self) -> Operator:
        return OnHost(as_symmetric_dia(self.inner.in_steps))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.inner.apply_on_host(x)

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed


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
