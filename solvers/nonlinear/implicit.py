"""Derivatives of a root of F(x, w) = 0 with respect to w, by the implicit function theorem, and their linear solves.

`dx = -J^-1 (dF/dw) dw`. Libraries with a rule for roots use it, for derivatives of any order. In others, two steps of
Newton's method from the constant root are differentiated. Each step squares the error as a function of w, so that one
gives first derivatives, and two give those up to the third order. Both steps have a zero right-hand side, which takes
no iterations, and leave the root unchanged to the last digit.

Functions that cut the derivative with respect to x are refused. Newton's method may find the root, but its derivatives
would be silently wrong. For the check, the derivative is compared with a few finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend, without_compilers
from ...sparse import Layout, NonlinearError, UnsupportedOperation, matrix_from_function
from ..linear_solve import linear_solve
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from .equations import DENSE, Linear, NonlinearEquations, dense_of

_SETTINGS = ("method", "preconditioner", "rtol", "atol", "max_iter", "nullspace", "matrix_offset")
CUTS = (
    "Something in f cuts or replaces the derivative with respect to x: detach(), no_grad(), stop_gradient, float(x), "
    "or a custom gradient. Take it out."
)


@dataclass(frozen=True)
class LinearSolver:
    """Solves J dx = -f(x) by `linear_solve` with these settings: pairs (name, value), in order."""

    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, given: Any) -> LinearSolver:
        """Check the user's `linear_solver`: None, a method, or a dictionary of settings."""
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
            find_method(method)  # refuses unknown names
        return cls(tuple(sorted(given.items())))

    def solve_dense(self, bk: Backend, matrix: Array, rhs: Array, policy: str) -> tuple[Array, Array]:
        """Solve J x = rhs for rows, with J `(systems, n, n)`; also which systems were solved, `(systems, 1)`."""
        return self._linear_solve(bk, matrix, rhs, policy)

    def solve(self, bk: Backend, layout: Layout, product: Linear, rhs: Array, policy: str) -> tuple[Array, Array]:
        """Like `solve_dense`, with products of J and rows; `policy` is the `on_failure` of the solve."""
        if layout.size <= DENSE:
            return self.solve_dense(bk, dense_of(bk, product, rhs), rhs, policy)

        def on_arrays(x: Any) -> Any:
            return layout.unflatten(bk, product(layout.flatten(bk, x, bk.dtype(rhs), "x")))

        if rhs.shape[0] == 1 and layout.structure is None:
            try:
                traced = matrix_from_function(on_arrays, layout.unflatten(bk, rhs))[0]
            except (NonlinearError, UnsupportedOperation, TypeError, NotImplementedError):
                pass  # PyTorch raises the last one for products that are made of a reverse derivative.
            else:
                x, solved = self._linear_solve(bk, traced, bk.reshape(rhs, (layout.size,)), policy)
                return bk.reshape(x, (1, layout.size)), solved
        b = layout.unflatten(bk, rhs)
        x, solved = self._linear_solve(bk, on_arrays, b, policy, batch_ndim=len(layout.batch))
        return layout.flatten(bk, x, bk.dtype(rhs), "x"), solved

    def _linear_solve(self, bk: Backend, A: Any, b: Any, policy: str, **more: Any) -> tuple[Any, Array]:
        result = without_compilers(linear_solve)(A, b, on_failure=policy, **more, **dict(self.settings))
        return result.x, bk.reshape(result._record.array("converged"), (-1, 1))


def implicit_root(equations: NonlinearEquations, solver: LinearSolver, x: Array, failed: Array, policy: str) -> Array:
    """Give a root x, in rows, derivatives with respect to everything on which the equations depend.

    Args:
        failed: systems `(systems, 1)` without a root, whose derivatives are NaN.
        policy: `on_failure` of the linear solves.
    """
    bk = equations.bk
    if not bk.has_derivatives:
        return x
    x, F = bk.constant(x), equations.residual

    def residual(rows: Array) -> Array:
        # Failed systems keep the derivatives with respect to w, which become NaN, but have an identity Jacobian.
        return F(bk.where(failed, x, rows)) + bk.where(failed, rows - x, bk.zeros_like(x))

    equations = replace(equations, residual=residual)

    def solve(product: Linear, rhs: Array) -> Array:
        return solver.solve(bk, equations.layout, product, rhs, policy)[0]

    def step(x: Array) -> Array:
        f = residual(x)
        rhs = f - bk.constant(f)
        if equations.is_dense:
            return x - solver.solve_dense(bk, equations.jacobian(x, f), rhs, policy)[0]
        return x - solve(equations.linearised(x), rhs)

    if bk.has_root_rule:
        root = bk.implicit_root(residual, x, solve)
    else:
        if not bk.tracks(residual(x)):
            return x
        _refuse_cut_jacobian(equations, x, failed)
        moved = step(step(x))
        root = x + (moved - bk.constant(moved))
    return bk.without_derivatives(root, failed)


def _refuse_cut_jacobian(equations: NonlinearEquations, x: Array, failed: Array) -> None:
    """Raise ValueError if the Jacobian at x differs from finite differences, in eager calls. Costs a Jacobian."""
    bk = equations.bk
    if bk.compiled(x):
        return
    with bk.errstate():
        f, largest = equations.residual(x), bk.max_abs(x)
        if equations.is_dense:
            matrix = equations.jacobian(x, f)
            product, bound = (lambda v: bk.product(matrix, v)), (lambda v: bk.product(bk.abs(matrix), v))
        else:
            product = bound = equations.linearised(x)

        def differs(size: Array) -> Array:
            eps = float(np.finfo(bk.dtype(x)).eps)
            step = float(np.sqrt(eps)) * size * perturbation(bk, x)
            change = product(step)
            wrong = bk.norm(equations.residual(x + step) - f - change)
            rounding = bk.norm(bound(bk.abs(x))) + bk.norm(change) / float(np.sqrt(eps))
            return wrong > 0.05 * bk.norm(change) + 100 * eps * rounding

        # A small x may be zero up to rounding, or all unknowns may be small. A cut shows at both scales.
        wrong = ~failed & differs(magnitude(bk, x))
        if bk.any(wrong) and bk.any(wrong & differs(bk.where(x == 0, bk.where(largest > 0, largest, 1), bk.abs(x)))):
            raise ValueError(
                f"The derivative of f with respect to x does not match finite differences at the solution. {CUTS}"
            )


def magnitude(bk: Backend, x: Array) -> Array:
    """`(systems, 1)`, the largest entry of each row, but at least 1."""
    return bk.maximum(bk.max_abs(x), 0 * bk.max_abs(x) + 1)


def perturbation(bk: Backend, x: Array) -> Array:
    """Rows of numbers of about unit size, irregular enough for any grid."""
    n = int(x.shape[1])
    signs = np.where(np.arange(n) % 3 == 1, -1.0, 1.0) * np.linspace(0.7, 1.3, n)
    return bk.broadcast_to(bk.asarray(np.asarray(signs[None], bk.dtype(x)), like=x), x.shape)
