"""SciPy's LinearOperator as an operator: products are host calls, also from compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend
from ..errors import UnsupportedOperation
from ..formats.matrix import Matrix
from ..operator import Operator
from ..tracing.front_end import opaque_front_end
from ..tracing.matrix_from_function import traced_matrix
from .guarded import Guarded
from .products import Turned


class HostOperator(Turned):
    """A `scipy.sparse.linalg.LinearOperator`, one for all systems.

    Attributes:
        linear: it.
        name: what to call it in a message.
        exact: may it not return less precise numbers than it is given?
    """

    def __init__(
        self,
        bk: Backend,
        linear: Any,
        dtype: np.dtype,
        name: str = "A",
        *,
        exact: bool = False,
        transposed: bool = False,
        conjugated: bool = False,
    ) -> None:
        self.bk, self.linear, self.dtype, self.name, self.exact = bk, linear, dtype, name, exact
        self.transposed, self.conjugated = transposed, conjugated
        shape = _shape(linear, name)
        self.shape = shape[::-1] if transposed else shape
        self._guarded = Guarded(linear, name, dtype, exact)

    def product(self, x: Array) -> Array:
        if self.bk.on_host:
            return self._on_host(x)[0]
        return self.bk.host_call(self._on_host, [((int(x.shape[0]), self.shape[0]), self.dtype)], x)[0]

    def _on_host(self, x: np.ndarray) -> tuple[np.ndarray]:
        if not self.transposed:
            return (self._guarded.product(x),)
        return (np.conj(self._guarded.adjoint(np.conj(x))),)

    def turned(self, *, transposed: bool, conjugated: bool) -> HostOperator:
        if transposed:
            self._guarded.check_adjoint_exists()
        return self._with(transposed=transposed, conjugated=conjugated)

    def astype(self, dtype: np.dtype) -> HostOperator:
        return self._with(dtype=dtype)

    def on_backend(self, bk: Backend, like: Array | None) -> HostOperator:
        return self._with(bk=bk)

    def of_part(self, bk: Backend) -> HostOperator:
        """The same on the backend of a communicator."""
        self._guarded.trust_adjoint()
        return self._with(bk=bk)

    def exactly(self) -> HostOperator:
        """The same as A of a solve, whose products must have its precision."""
        return self._with(exact=True)

    def dense(self) -> Array:
        if self.bk.on_host:
            return super().dense()
        return self.bk.asarray(self._for_host().dense())

    def matrix(self) -> Matrix:
        """Its entries, found by evaluations, see `matrix_from_function`; known also while a function is compiled.

        Raises:
            UnsupportedOperation: evaluations do not tell them.
        """
        host = self._for_host()
        like = np.zeros(self.shape[1], self.dtype)
        found = traced_matrix(opaque_front_end(), lambda x: host.apply(x[None])[0], like, verify=False)[0]
        moved = found if self.bk.on_host else found.on_backend(self.bk, None)
        if moved is None:
            raise UnsupportedOperation(f"{found!r} has no way to {self.bk.name}.")
        return moved

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self._for_host()

    def _for_host(self) -> HostOperator:
        return self.on_backend(get_backend("numpy"), None)

    def _with(self, **changes: Any) -> HostOperator:
        names = ("bk", "linear", "dtype", "name", "exact", "transposed", "conjugated")
        return HostOperator(**{name: changes.get(name, getattr(self, name)) for name in names})


def _shape(linear: Any, name: str) -> tuple[int, int]:
    """
    Raises:
        ValueError: it is not that of a matrix.
    """
    try:
        rows, columns = map(int, linear.shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a {type(linear).__name__} with `matvec` and the shape {linear.shape!r}; expected two numbers, "
            "(rows, columns)."
        ) from error
    return rows, columns
