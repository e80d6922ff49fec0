"""Derivatives of a root of F(x, w) = 0 with respect to w, by the implicit function theorem.

`dx = -J^-1 (dF/dw) dw`. Libraries with a rule for roots, which holds to every order, use that. In others two steps of
Newton's method, differentiated, follow the constant root: the error of a step, as a function of w, is squared by the
next one, so that one gives first derivatives, and two give those up to the third order. Both steps solve for zero,
which takes no iterations, and leave the root as it is, to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array
from .equations import Equations, Linear
from .linear_solver import LinearSolver


@dataclass(frozen=True, eq=False)
class ImplicitRoot:
    """A root that was found, as a function of what the equations depend on.

    Attributes:
        failed: systems `(systems, 1)` that have no root, and no derivatives: NaN.
        policy: `on_failure` of the linear solves.
    """

    equations: Equations
    linear_solver: LinearSolver
    failed: Array
    policy: str

    def of(self, x: Array) -> Array:
        """x, rows, with derivatives."""
        bk = self.equations.bk
        if not bk.has_derivatives:
            return x
        x = bk.constant(x)
        if bk.has_root_rule:
            root = bk.implicit_root(lambda y: self._masked(self.equations.residual(y), y - x), x, self._solve)
        else:
            if not bk.tracks(self.equations.residual(x)):
                return x
            moved = self._step(self._step(x, x), x)
            root = x + (moved - bk.constant(moved))
        return bk.without_derivatives(root, self.failed)

    def _step(self, x: Array, start: Array) -> Array:
        equations, bk = self.equations, self.equations.bk
        f = self._masked(equations.residual(x), x - start)
        rhs = f - bk.constant(f)
        if equations.is_dense:
            matrix = equations.jacobian(x, f)
            identity = bk.asarray(np.eye(equations.layout.size, dtype=bk.dtype(x)), like=x)
            matrix = bk.where(bk.reshape(self.failed, (-1, 1, 1)), identity[None], matrix)
            return x - self.linear_solver.solve_dense(bk, matrix, rhs, self.policy)[0]
        product = equations.linearised(x)
        return x - self._solve(lambda v: self._masked(product(v), v), rhs)

    def _masked(self, values: Array, instead: Array) -> Array:
        return self.equations.bk.where(self.failed, instead, values)

    def _solve(self, product: Linear, rhs: Array) -> Array:
        equations = self.equations
        return self.linear_solver.solve(equations.bk, equations.layout, product, rhs, self.policy)[0]
