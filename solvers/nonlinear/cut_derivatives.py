"""Refusals of functions whose derivative by x is not that of their values, as something in them cuts it.

Newton's method may still find the root, but its derivatives would be wrong without a word; and a gradient that is zero
looks like a minimum. Both are compared with differences, of a few values.
"""

from __future__ import annotations

import numpy as np

from ...backends import Array, Backend
from .equations import NonlinearEquations
from .objective import Objective

_CUTS = (
    "Something in f cuts or replaces the derivative by x: detach(), no_grad(), stop_gradient, float(x), or a custom "
    "gradient. Take it out."
)


def refuse_cut_gradient(objective: Objective, x: Array, gradient: Array) -> None:
    """Raises ValueError where the gradient at x is zero and f changes with x to first order. Costs 5 calls of f then.

    An odd change of f that doubles with the step is of first order; at an inflection it grows eightfold.
    """
    bk = objective.user.bk
    zero = bk.max_abs(gradient) == 0
    if not bk.has_derivatives or not bk.any(zero):
        return
    step = float(np.cbrt(np.finfo(bk.dtype(x)).eps)) * _size(bk, x) * _signs(bk, x)
    small, large = (objective.values(x + k * step) - objective.values(x - k * step) for k in (1, 2))
    small, large = bk.reshape(bk.abs(small), (-1, 1)), bk.reshape(bk.abs(large), (-1, 1))
    noise = 1e3 * float(np.finfo(bk.dtype(x)).eps) * bk.abs(bk.reshape(objective.values(x), (-1, 1)))
    if bk.any(zero & (small > noise) & (large > 1.5 * small) & (large < 3 * small)):
        raise ValueError(f"The gradient of f is zero, but f changes with x. {_CUTS}")


def refuse_cut_jacobian(equations: NonlinearEquations, x: Array, failed: Array) -> None:
    """Raises ValueError where the Jacobian at x is not that of differences, of eager calls. Costs a Jacobian."""
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
            step = float(np.sqrt(eps)) * size * _signs(bk, x)
            change = product(step)
            wrong = bk.norm(equations.residual(x + step) - f - change)
            rounding = bk.norm(bound(bk.abs(x))) + bk.norm(change) / float(np.sqrt(eps))
            return wrong > 0.05 * bk.norm(change) + 100 * eps * rounding

        # A small x may be one that is about zero, or one of a problem whose unknowns are small: a cut shows in both.
        wrong = ~failed & differs(_size(bk, x))
        if bk.any(wrong) and bk.any(wrong & differs(bk.where(x == 0, bk.where(largest > 0, largest, 1), bk.abs(x)))):
            raise ValueError(f"The derivative of f by x is not that of its values at the solution. {_CUTS}")


def _size(bk: Backend, x: Array) -> Array:
    return bk.maximum(bk.max_abs(x), 0 * bk.max_abs(x) + 1)


def _signs(bk: Backend, x: Array) -> Array:
    n = int(x.shape[1])
    signs = np.where(np.arange(n) % 3 == 1, -1.0, 1.0) * np.linspace(0.7, 1.3, n)
    return bk.broadcast_to(bk.asarray(np.asarray(signs[None], bk.dtype(x)), like=x), x.shape)
