"""Functions to be minimised, on rows: values, gradients, and when a gradient counts as zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array
from ...sparse import UnsupportedOperation
from ..run.outcome import Status
from .equations import DENSE, check_real_array
from .user_function import UserFunction


class Minimum(NamedTuple):
    """What a search ended with: rows `(systems, n)` and numbers `(systems, 1)`."""

    x: Array
    value: Array
    gradient: Array
    norm: Array  # of the projected gradient
    tolerance: Array
    attainable: Array
    status: Array
    steps: Array
    evaluations: Array
    history: Any  # values `(max_iter + 1, systems)`, or ()
    path: Any  # x `(systems, max_iter + 1, n)`, or ()


@dataclass(frozen=True, eq=False)
class Objective:
    """`f(x, *args)`, one number for each system, in the box `lower <= x <= upper` (rows, infinite without bounds)."""

    user: UserFunction
    lower: Array
    upper: Array

    def values(self, rows: Array) -> Array:
        """f, `(systems,)`.

        Raises:
            ValueError, TypeError: f returns something else than one real number for each system.
        """
        bk, batch = self.user.bk, self.user.layout.batch
        image = self.user(rows)
        check_real_array(bk, image)
        shape = tuple(np.shape(image)) if isinstance(image, int | float) else tuple(image.shape)
        if shape != batch:
            raise ValueError(
                f"f returned an array of shape {shape}; expected {batch}, one number for each system"
                f"{' (batch_ndim axes of x0)' if batch else ''}. Sum over the other axes."
            )
        image = image if bk.is_array(image) else bk.asarray(image)
        # A copy, as f may return the same array in each call.
        return bk.copy(bk.reshape(bk.astype(image, self.user.dtype), (self.user.layout.systems,)))

    def value_and_gradient(self, rows: Array) -> tuple[Array, Array]:
        """f `(systems, 1)`, and its gradient as rows."""
        bk = self.user.bk
        if not bk.has_derivatives:
            return self.values(rows)[:, None], self._by_differences(rows)

        def total(rows: Array) -> tuple[Array, Array]:
            values = self.values(rows)
            return bk.sum(values, 0), values

        _, values, gradient = bk.jacobian(total)(rows)
        return bk.reshape(values, (-1, 1)), gradient

    def gradient(self, rows: Array) -> Array:
        """The gradient, to be differentiated again."""
        bk = self.user.bk
        found: Array = bk.jacobian(lambda rows: bk.sum(self.values(rows), 0), get_output=False)(rows)
        return found

    def projected(self, rows: Array, gradient: Array) -> Array:
        """The gradient, cut to what the bounds leave of a step against it."""
        bk, goal = self.user.bk, rows - gradient
        cut = bk.where(goal < self.lower, rows - self.lower, gradient)
        return bk.where(goal > self.upper, rows - self.upper, cut)

    def is_free(self, rows: Array, gradient: Array) -> Array:
        """Which unknowns are not held by a bound?"""
        return ~(((rows <= self.lower) & (gradient > 0)) | ((rows >= self.upper) & (gradient < 0)))

    def inside(self, rows: Array) -> Array:
        """x, moved into the box."""
        rows = self.user.bk.where(rows < self.lower, self.lower, rows)
        return self.user.bk.where(rows > self.upper, self.upper, rows)

    def _by_differences(self, rows: Array) -> Array:
        """Central differences inside of the bounds, for a library without derivatives."""
        bk, n = self.user.bk, rows.shape[1]
        if n > DENSE:
            raise UnsupportedOperation(
                f"{bk.name} has no derivatives of functions, and for {n} unknowns differences take too many calls of "
                f"f (there may be {DENSE}). Write f with JAX, PyTorch or TensorFlow, and give x0 as its array."
            )
        gradient = np.empty_like(rows)
        step = np.cbrt(np.finfo(rows.dtype).eps) * np.maximum(np.abs(rows), 1)
        for i in range(n):
            above, below = rows.copy(), rows.copy()
            above[:, i] = np.minimum(rows[:, i] + step[:, i], self.upper[:, i])
            below[:, i] = np.maximum(rows[:, i] - step[:, i], self.lower[:, i])
            gap = above[:, i] - below[:, i]
            change = self.values(above) - self.values(below)
            gradient[:, i] = np.where(gap == 0, 0, change / np.where(gap == 0, 1, gap))
        return gradient

    def to_precision(self, found: Minimum) -> Minimum:
        """Searches that stopped where rounding hides the rest have converged.

        What is left to gain is `|g|^2 / (2 k)`, for the curvature k along the gradient g, which takes one evaluation.
        Either that is below the rounding of f, or g is below what rounding of x makes of it.
        """
        bk = self.user.bk
        stopped = (found.status == int(Status.STAGNATED)) | (found.status == int(Status.MAX_ITER))
        if not bk.compiled(found.x) and not bk.any(stopped):
            return found
        eps, direction = float(np.finfo(self.user.dtype).eps), self.projected(found.x, found.gradient)
        length = np.sqrt(eps) * bk.maximum(bk.norm(found.x), 0 * found.norm + 1)
        shift = length / bk.where(found.norm > 0, found.norm, 0 * found.norm + 1)
        _, other = self.value_and_gradient(found.x - shift * direction)
        curvature = bk.dot(direction, found.gradient - other) / bk.where(found.norm > 0, found.norm * length, 1)
        gain = 8 * eps * bk.abs(found.value)
        curvature = bk.where(curvature > 0, curvature, 0 * curvature)
        attainable = bk.maximum(bk.sqrt(2 * curvature * gain), 2 * eps * curvature * bk.norm(found.x))
        attainable = bk.where(stopped & bk.isfinite(attainable), attainable, 0 * attainable)
        within = stopped & (found.norm <= attainable)
        return found._replace(
            attainable=attainable,
            tolerance=bk.where(within, bk.maximum(found.tolerance, attainable), found.tolerance),
            status=bk.where(within, int(Status.CONVERGED), found.status),
            evaluations=found.evaluations + bk.where(stopped, 1, 0 * found.evaluations),
        )
