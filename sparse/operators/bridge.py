"""Operators of any library, seen from the host: what SciPy's methods get to work with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, get_backend
from ..formats.dense import DenseOperator
from ..operator import Operator


class BridgedOperator(Operator):
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

    def per_system(self, i: int) -> Any:
        return rows_as_scipy(self, i)


def products_for_host(
    operator: Operator, compiled: bool, like: Array | None = None
) -> tuple[Sequence[Array], Callable[..., Operator]]:
    """`for_host` of an operator that only knows its products.

    Eagerly the host calls it in its own library; inside a compiled function its entries are found first, because a
    host call must not start computations of the library that waits for it.
    """
    if operator.bk.name == "numpy":
        return (), lambda _: operator
    if not compiled:
        return (), lambda _: BridgedOperator(operator, like)
    return (operator.dense(),), lambda arrays: DenseOperator(get_backend("numpy"), arrays[0])


def rows_as_scipy(operator: Operator, i: int) -> Any:
    """System `i` of an operator on NumPy rows as a SciPy LinearOperator (with one system per call, the rest zero)."""
    from scipy.sparse.linalg import LinearOperator

    transposed: list[Operator] = []

    def product(of: Operator, v: np.ndarray) -> np.ndarray:
        rows = np.zeros((of.systems or 1, of.shape[1]), of.dtype)
        rows[i if of.systems is not None else 0] = v.reshape(-1)
        return of.apply(rows)[i if of.systems is not None else 0].copy()  # SciPy's methods write to what they get

    def adjoint(v: np.ndarray) -> np.ndarray:
        if not transposed:  # made once, as that may cost evaluations
            transposed.append(operator.transpose())
        return np.conj(product(transposed[0], np.conj(v)))

    return LinearOperator(operator.shape, matvec=lambda v: product(operator, v), rmatvec=adjoint, dtype=operator.dtype)
