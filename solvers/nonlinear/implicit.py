"""Derivatives of a root of F(x, w) = 0 with respect to w, by the implicit function theorem.

`dx = -J^-1 (dF/dw) dw`. Libraries with a rule for roots, which holds to every order, use that. In others two steps of
Newton's method, differentiated, follow the constant root: the error of a step, as a function of w, is squared by the
next one, so that one gives first derivatives, and two give those up to the third order. Both steps solve for zero,
which takes no iterations, and leave the root as it is, to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...backends import Array
from .cut_derivatives import refuse_cut_jacobian
from .equations import Linear, NonlinearEquations
from .linear_solver import LinearSolver


@dataclass(frozen=True, eq=False)
class ImplicitRoot:
    """A root that was found, as a function of what the equations depend on.

    Attributes:
        failed: systems `(systems, 1)` that have no root, and no derivatives: NaN.
        policy: `on_failure` of the linear solves.
    """

    equations: NonlinearEquations
    linear_solver: LinearSolver
    failed: Array
    policy: str

    def of(self, x: Array) -> Array:
        """x, rows, with derivatives."""
        bk = self.equations.bk
        if not bk.has_derivatives:
            return x
        x = bk.constant(x)

        def residual(rows: Array) -> Array:
            # What failed keeps the derivatives by w, which become NaN, but has the Jacobian of the identity.
            image = self.equations.residual(bk.where(self.failed, x, rows))
            return image + bk.where(self.failed, rows - x, bk.zeros_like(x))

        equations = replace(self.equations, residual=residual)
        if bk.has_root_rule:
            root = bk.implicit_root(residual, x, lambda product, rhs: self._solve(equations, product, rhs))
        else:
            if not bk.tracks(residual(x)):
                return x
            refuse_cut_jacobian(equations, x, self.failed)
            moved = self._step(equations, self._step(equations, x))
            root = x + (moved - bk.constant(moved))
        return bk.without_derivatives(root, self.failed)

    def _step(self, equations: NonlinearEquations, x: Array) -> Array:
        bk, f = equations.bk, equations.residual(x)
        rhs = f - bk.constant(f)
        if equations.is_dense:
            return x - self.linear_solver.solve_dense(bk, equations.jacobian(x, f), rhs, self.policy)[0]
        return x - self._solve(equations, equations.linearised(x), rhs)

    def _solve(self, equations: NonlinearEquations, product: Linear, rhs: Array) -> Array:
        return self.linear_solver.solve(equations.bk, equations.layout, product, rhs, self.policy)[0]
