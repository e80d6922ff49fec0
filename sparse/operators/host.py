"""SciPy's LinearOperator: products computed on the host, also for compiled functions of a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend
from ..errors import UnsupportedOperation
from ..formats import SparseMatrix
from ..operator import Operator
from ..tracing.front_end import opaque_front_end
from ..tracing.matrix_from_function import traced_matrix
from .products import Products


class HostOperator(Products):
    """A `scipy.sparse.linalg.LinearOperator`, one for all systems."""

    def __init__(self, bk: Backend, linear: Any, dtype: np.dtype) -> None:
        self.bk, self.linear, self.dtype = bk, linear, dtype
        self.shape = (int(linear.shape[0]), int(linear.shape[1]))

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if bk.on_host:
            return self._product(x)[0]
        return bk.host_call(self._product, [((int(x.shape[0]), self.shape[0]), self.dtype)], x)[0]

    def _product(self, x: np.ndarray) -> tuple[np.ndarray]:
        if len(x) == 1:
            return (np.asarray(self.linear.matvec(x[0]), self.dtype)[None],)
        if _has_matmat(self.linear):
            return (np.ascontiguousarray(np.asarray(self.linear.matmat(x.T), self.dtype).T),)
        images = np.empty((len(x), self.shape[0]), self.dtype)
        for row, image in zip(x, images, strict=True):
            image[:] = self.linear.matvec(row)
        return (images,)

    def astype(self, dtype: np.dtype) -> HostOperator:
        return HostOperator(self.bk, self.linear, dtype)

    def on_backend(self, bk: Backend, like: Array | None) -> HostOperator:
        return HostOperator(bk, self.linear, self.dtype)

    def transpose(self) -> HostOperator:
        return HostOperator(self.bk, _Checked(self.linear).T, self.dtype)

    def conj(self) -> HostOperator:
        return HostOperator(self.bk, _conjugate(self.linear), self.dtype)

    def dense(self) -> Array:
        if self.bk.on_host:
            return super().dense()
        return self.bk.asarray(HostOperator(get_backend("numpy"), self.linear, self.dtype).dense())

    def matrix(self) -> SparseMatrix:
        """Its entries, found by evaluations, see `matrix_from_function`; known also while a function is compiled.

        Raises:
            UnsupportedOperation: evaluations do not tell them.
        """
        host = HostOperator(get_backend("numpy"), self.linear, self.dtype)
        like = np.zeros(self.shape[1], self.dtype)
        found: SparseMatrix = traced_matrix(opaque_front_end(), lambda x: host.apply(x[None])[0], like, verify=False)[0]
        moved = found if self.bk.on_host else found.on_backend(self.bk, None)
        if moved is None:
            raise UnsupportedOperation(f"{found!r} has no way to {self.bk.name}.")
        return moved

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: HostOperator(get_backend("numpy"), self.linear, self.dtype)

    def per_system(self, i: int) -> Any:
        return self.linear


def _has_matmat(linear: Any) -> bool:
    """Has it a product with many columns of its own? SciPy's default joins results that may all be the same memory."""
    own = getattr(type(linear), "_matmat", None)
    return hasattr(linear, "A") or not str(getattr(own, "__module__", "scipy")).startswith("scipy")


class _Checked:
    """Says what to do when a LinearOperator has no rmatvec."""

    def __init__(self, linear: Any) -> None:
        try:
            linear.rmatvec(np.zeros(linear.shape[0], linear.dtype))
        except NotImplementedError as error:
            raise UnsupportedOperation(
                "This method needs products with the transposed matrix, and the LinearOperator has no rmatvec. "
                "Define rmatvec (the conjugate transposed product), or choose another method, such as biCG-stab(2)."
            ) from error
        self.T = linear.T


def _conjugate(linear: Any) -> Any:
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator(
        linear.shape,
        matvec=lambda x: np.conj(linear.matvec(np.conj(x))),
        rmatvec=lambda x: np.conj(linear.rmatvec(np.conj(x))),
        dtype=linear.dtype,
    )
