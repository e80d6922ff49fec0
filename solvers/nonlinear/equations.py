"""Non-linear equations F(x) = 0 of a user's function, on rows `(systems, n)`, and their linearisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout, UnsupportedOperation
from ...sparse.tracing.front_end import front_end_for

Linear = Callable[[Array], Array]  # of rows
DENSE = 200  # unknowns of one system up to which its Jacobian is made column by column and factorised
_PYTHON_NUMBERS = (int, float, list, tuple)


@dataclass(frozen=True, eq=False)
class Equations:
    """F on rows.

    Attributes:
        function: `f(x, *args)` of the user, on arrays as x0, with `args`.
        layout: of x and f(x).
        dtype: in which all is computed.
        reverse: has `function` a reverse derivative only?
    """

    bk: Backend
    function: Callable[..., Any]
    args: Sequence[Any]
    layout: Layout
    dtype: np.dtype
    reverse: bool = False

    def residual(self, rows: Array) -> Array:
        """F(x).

        Raises:
            ValueError, TypeError: f returns something else than real arrays shaped as x0.
        """
        bk, layout = self.bk, self.layout
        image = bk.call(self.function, layout.unflatten(bk, rows), self.args)
        self._check(image)
        return layout.flatten(bk, image, self.dtype, "f(x)")

    def _check(self, image: Any) -> None:
        bk, layout = self.bk, self.layout
        leaves, structure = ([image], None) if bk.is_array(image) else bk.leaves(image)
        found = [tuple(getattr(leaf, "shape", np.shape(leaf) if isinstance(leaf, _PYTHON_NUMBERS) else ()))
                 for leaf in leaves]  # fmt: skip
        expected = [(*layout.batch, *shape) for shape in layout.shapes]
        if found != expected or structure != layout.structure:
            raise ValueError(
                f"f returned {_described(found)}; expected {_described(expected)}, as x0 is: one equation for each "
                "unknown. For more equations than unknowns, minimise the sum of squares with krylix.minimize."
            )
        for leaf in leaves:
            if not bk.is_array(leaf) and not isinstance(leaf, (*_PYTHON_NUMBERS, np.ndarray, np.generic)):
                raise TypeError(
                    f"f returned a {type(leaf).__module__}.{type(leaf).__qualname__} for an x of {bk.name}; expected "
                    f"an array of {bk.name}. Give x0 as an array of the library that f computes with."
                )
            if np.dtype(bk.dtype(leaf) if bk.is_array(leaf) else np.asarray(leaf).dtype).kind == "c":
                raise TypeError(
                    "f returned complex numbers; expected real ones. Solve for the real and imaginary parts as "
                    "unknowns of their own, on a new axis of x0."
                )

    @property
    def is_dense(self) -> bool:
        """Is the Jacobian made column by column?"""
        return self.layout.size <= DENSE

    def linearised(self, rows: Array) -> Linear:
        """The product with the Jacobian at x, on rows."""
        front_end = front_end_for(rows)
        if not self.reverse:
            return front_end.forward_derivative(self.residual, rows, (), {})[0]
        backward = front_end.reverse_derivative(self.residual, rows, (), {})[0]
        return self.bk.transpose_function(backward, rows)

    def jacobian(self, rows: Array, residual: Array) -> Array:
        """The Jacobian of each system, `(systems, n, n)`, where systems are independent."""
        bk = self.bk
        units = unit_rows(bk, rows)
        if not bk.has_derivatives:
            return self._by_differences(rows, residual)
        if self.reverse:  # its rows
            backward = front_end_for(rows).reverse_derivative(self.residual, rows, (), {})[0]
            return bk.permute_dims(bk.map_columns(backward, units), (1, 0, 2))
        return dense_of(bk, self.linearised(rows), rows)

    def _by_differences(self, rows: Array, residual: Array) -> Array:
        """Forward differences, for a library without derivatives."""
        systems, n = rows.shape
        matrix = np.empty((systems, n, n), self.dtype)
        step = np.sqrt(np.finfo(self.dtype).eps) * np.maximum(np.abs(rows), 1)
        for i in range(n):
            moved = rows.copy()
            moved[:, i] += step[:, i]
            matrix[:, :, i] = (self.residual(moved) - residual) / (moved[:, i] - rows[:, i])[:, None]
        return matrix

    def with_rule(self, rows: Array) -> Equations:
        """The same, differentiated as the library can: forward, or backward where there is only that rule."""
        if not self.bk.has_derivatives:
            if self.layout.size > DENSE:
                raise UnsupportedOperation(
                    f"{self.bk.name} has no derivatives of functions, and for {self.layout.size} unknowns differences "
                    f"take too many calls of f (there may be {DENSE}). Write f with JAX, PyTorch or TensorFlow, and "
                    "give x0 as its array."
                )
            return self
        try:
            self.linearised(rows)(rows)
        except (TypeError, UnsupportedOperation) as error:
            if not front_end_for(rows).has_only_reverse_rule(error):
                raise
            return replace(self, reverse=True)
        return self


def unit_rows(bk: Backend, rows: Array) -> Array:
    """The unit vectors of each system, `(n, systems, n)`."""
    systems, n = int(rows.shape[0]), int(rows.shape[1])
    units = bk.asarray(np.eye(n, dtype=bk.dtype(rows)), like=rows)
    return bk.broadcast_to(bk.reshape(units, (n, 1, n)), (n, systems, n))


def dense_of(bk: Backend, product: Linear, rows: Array) -> Array:
    """The matrices `(systems, n, n)` of a linear function of rows, whose systems are independent."""
    return bk.permute_dims(bk.map_columns(product, unit_rows(bk, rows)), (1, 2, 0))


def _described(shapes: list[tuple[int, ...]]) -> str:
    return f"an array of shape {shapes[0]}" if len(shapes) == 1 else f"arrays of shapes {shapes}"
