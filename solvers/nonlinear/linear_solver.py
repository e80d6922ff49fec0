"""The linear solves of Newton's method and of derivatives: on a dense or a traced Jacobian, or on its products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...backends import Array, Backend, without_compilers
from ...sparse import Layout, NonlinearError, UnsupportedOperation, matrix_from_function
from ..linear_solve import linear_solve
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from .equations import DENSE, Linear, dense_of

_SETTINGS = ("method", "preconditioner", "rtol", "atol", "max_iter", "nullspace", "matrix_offset")


@dataclass(frozen=True)
class LinearSolver:
    """Settings of `linear_solve` for the systems J dx = -f(x).

    Attributes:
        settings: pairs (name, value), in order.
    """

    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: Any) -> LinearSolver:
        """From what a user gives: a method, or a dictionary of settings.

        Raises:
            TypeError, ValueError: got / expected.
        """
        if given is None:
            return cls()
        if isinstance(given, str | Method):
            given = {"method": given}
        if not isinstance(given, Mapping):
            raise TypeError(
                "linear_solver must be the name of a method, a method object, or a dictionary of arguments of "
                f"linear_solve, as {{'method': 'GMRES', 'preconditioner': 'ilu'}}; got {given!r}."
            )
        unknown = [name for name in given if name not in _SETTINGS]
        if unknown:
            raise TypeError(f"linear_solver has no setting {unknown[0]!r}; there are {', '.join(_SETTINGS)}.")
        method = given.get("method", "auto")
        if not is_auto(method):
            find_method(method)  # refuses a name that there is not
        return cls(tuple(sorted(given.items())))

    def solve_dense(self, bk: Backend, matrix: Array, rhs: Array, policy: str) -> tuple[Array, Array]:
        """x with J x = rhs as rows, and which systems were solved, `(systems, 1)`; J is `(systems, n, n)`."""
        found = self._linear_solve(matrix, rhs, policy)
        return found.x, bk.reshape(found._record.array("converged"), (-1, 1))

    def solve(self, bk: Backend, layout: Layout, product: Linear, rhs: Array, policy: str) -> tuple[Array, Array]:
        """As `solve_dense`, of the product of J with rows.

        Args:
            policy: `on_failure` of the solve.
        """
        if layout.size <= DENSE:
            return self.solve_dense(bk, dense_of(bk, product, rhs), rhs, policy)
        systems = int(rhs.shape[0])

        def on_arrays(x: Any) -> Any:
            return layout.unflatten(bk, product(layout.flatten(bk, x, bk.dtype(rhs), "x")))

        if systems == 1 and layout.structure is None:
            try:
                traced = matrix_from_function(on_arrays, layout.unflatten(bk, rhs))[0]
            except (NonlinearError, UnsupportedOperation, TypeError, NotImplementedError):
                pass  # the last is PyTorch's, for products made of a reverse derivative
            else:
                found = self._linear_solve(traced, bk.reshape(rhs, (layout.size,)), policy)
                return bk.reshape(found.x, (1, layout.size)), bk.reshape(found._record.array("converged"), (1, 1))
        found = self._linear_solve(on_arrays, layout.unflatten(bk, rhs), policy, batch_ndim=len(layout.batch))
        return layout.flatten(bk, found.x, bk.dtype(rhs), "x"), bk.reshape(
            found._record.array("converged"), (systems, 1)
        )

    def _linear_solve(self, A: Any, b: Any, policy: str, **more: Any) -> Any:
        return without_compilers(linear_solve)(A, b, on_failure=policy, **more, **dict(self.settings))
