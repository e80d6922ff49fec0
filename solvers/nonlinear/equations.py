"""The equations F(x, w) = 0 on rows `(systems, n)`: their linearisation, linear solves, and derivatives of a root.

By the implicit function theorem `dx = -J^-1 (dF/dw) dw`. Libraries with a rule for roots use it, for derivatives of any
order. In others, two steps of Newton's method from the constant root are differentiated. Each step squares the error as
a function of w, so that one gives first derivatives, and two give those up to the third order. Both steps have a zero
right-hand side, which takes no iterations, and leave the root unchanged to the last digit.

Functions that cut the derivative with respect to x are refused. Newton's method may find the root, but its derivatives
would be silently wrong. For the check, the derivative is compared with a few finite differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend, without_compilers
from ...sparse import Layout, NonlinearError, UnsupportedOperation, matrix_from_function
from ...sparse.tracing.front_end import front_end_for
from ..linear_solve import linear_solve
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from .arguments import NUMBERS, UserFunction, check_real_array

Linear = Callable[[Array], Array]  # of rows
DENSE = 200  # unknowns of one system, up to which the Jacobian is computed column by column and factorised
_SETTINGS = ("method", "preconditioner", "rtol", "atol", "max_iter", "nullspace", "matrix_offset")
CUTS = (
    "Something in f cuts or replaces the derivative with respect to x: detach(), no_grad(), stop_gradient, float(x), "
    "or a custom gradient. Take it out."
)


@dataclass(frozen=True, eq=False)
class NonlinearEquations:
    """F(x) = 0 on rows `(systems, n)` of independent systems.

    Attributes:
        residual: F, differentiable, rows to rows.
        layout: of x and F(x).
        reverse: whether products with the Jacobian need a reverse derivative.
    """

    bk: Backend
    residual: Callable[[Array], Array]
    layout: Layout
    reverse: bool = False

    @property
    def is_dense(self) -> bool:
        return self.layout.size <= DENSE

    def linearised(self, rows: Array) -> Linear:
        """Product with the Jacobian at x, for rows."""
        if not self.reverse:
            return front_end_for(rows).forward_derivative(self.residual, rows, (), {})[0]
        bk = self.bk

        def backward(cotangent: Array) -> Array:
            product: Array = bk.jacobian(lambda x: bk.sum(self.residual(x) * cotangent, (0, 1)), get_output=False)(rows)
            return product

        return bk.transpose_function(backward, rows)

    def jacobian(self, rows: Array, residual: Array) -> Array:
        """Jacobian of each system, `(systems, n, n)`, at rows with this residual."""
        bk = self.bk
        if not bk.has_derivatives:
            return by_differences(self.residual, rows, residual)
        # The derivative of a sum over systems is that of each system with respect to its own unknowns.
        by_rows = bk.jacobian(lambda x: bk.sum(self.residual(x), 0), get_output=False)(rows)
        return bk.permute_dims(by_rows, (1, 0, 2))

    def with_rule(self, rows: Array) -> NonlinearEquations:
        """Copy with forward products, or with those of the reverse derivative if f has no forward one."""
        if self.is_dense:
            return self
        if not self.bk.has_derivatives:
            raise too_many_differences(self.bk, self.layout.size)
        try:
            self.linearised(rows)(rows)
        except (TypeError, UnsupportedOperation) as error:
            if not front_end_for(rows).has_only_reverse_rule(error):
                raise
            return replace(self, reverse=True)
        return self


def too_many_differences(bk: Backend, n: int) -> UnsupportedOperation:
    """Error of a library without derivatives, for more than `DENSE` unknowns."""
    return UnsupportedOperation(
        f"{bk.name} has no derivatives of functions, and for {n} unknowns differences take too many calls of f (there "
        f"may be {DENSE}). Write f with JAX, PyTorch or TensorFlow, and give x0 as its array."
    )


def by_differences(function: Callable[[Array], Array], rows: Array, image: Array) -> Array:
    """Jacobian of each system by forward differences of NumPy arrays; `image` is `function(rows)`."""
    systems, n = rows.shape
    matrix = np.empty((systems, image.shape[1], n), rows.dtype)
    step = np.sqrt(np.finfo(rows.dtype).eps) * np.maximum(np.abs(rows), 1)
    for i in range(n):
        moved = rows.copy()
        moved[:, i] += step[:, i]
        matrix[:, :, i] = (function(moved) - image) / (moved[:, i] - rows[:, i])[:, None]
    return matrix


def residual_of(user: UserFunction) -> Callable[[Array], Array]:
    """F on rows for a user's `f(x, *args)`, which raises an error unless f returns real arrays in the shape of x0."""
    bk, layout = user.bk, user.layout

    def residual(rows: Array) -> Array:
        image = user(rows)
        _check(bk, layout, image)
        # f may return the same array in each call.
        return bk.copy(layout.flatten(bk, image, user.dtype, "f(x)"))

    return residual


def _check(bk: Backend, layout: Layout, image: Any) -> None:
    leaves, structure = ([image], None) if bk.is_array(image) else bk.leaves(image)
    for leaf in leaves:
        check_real_array(bk, leaf)
    shapes = [tuple(np.shape(leaf) if isinstance(leaf, NUMBERS) else leaf.shape) for leaf in leaves]
    expected = [(*layout.batch, *shape) for shape in layout.shapes]
    if shapes != expected or structure != layout.structure:
        raise ValueError(
            f"f returned {_described(shapes)}; expected {_described(expected)}, like x0: one equation for each "
            "unknown. For more equations than unknowns, minimise the sum of squares with krylix.minimize."
        )


def dense_of(bk: Backend, product: Linear, rows: Array) -> Array:
    """Matrices `(systems, n, n)` of a linear function of rows of independent systems."""
    systems, n = int(rows.shape[0]), int(rows.shape[1])
    units = bk.reshape(bk.asarray(np.eye(n, dtype=bk.dtype(rows)), like=rows), (n, 1, n))
    return bk.permute_dims(bk.map_columns(product, bk.broadcast_to(units, (n, systems, n))), (1, 2, 0))


def _described(shapes: list[tuple[int, ...]]) -> str:
    return f"an array of shape {shapes[0]}" if len(shapes) == 1 else f"arrays of shapes {shapes}"


# --- linear solves, and derivatives of a root


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

    def solve_arrays(self, bk: Backend, A: Any, b: Any, policy: str, **settings: Any) -> tuple[Any, Array]:
        """Solve A x = b by `linear_solve`; also which systems were solved, `(systems, 1)`."""
        result = without_compilers(linear_solve)(A, b, on_failure=policy, **settings, **dict(self.settings))
        return result.x, bk.reshape(result._record.array("converged"), (-1, 1))

    def solve(self, bk: Backend, layout: Layout, product: Linear, rhs: Array, policy: str) -> tuple[Array, Array]:
        """Solve J x = rhs for rows, with products of J and rows; `policy` is the `on_failure` of the solve."""
        if layout.size <= DENSE:
            return self.solve_arrays(bk, dense_of(bk, product, rhs), rhs, policy)

        def on_arrays(x: Any) -> Any:
            return layout.unflatten(bk, product(layout.flatten(bk, x, bk.dtype(rhs), "x")))

        if rhs.shape[0] == 1 and layout.structure is None:
            try:
                traced = matrix_from_function(on_arrays, layout.unflatten(bk, rhs))[0]
            except (NonlinearError, UnsupportedOperation, TypeError, NotImplementedError):
                pass  # PyTorch raises the last one for products that are made of a reverse derivative.
            else:
                x, solved = self.solve_arrays(bk, traced, bk.reshape(rhs, (layout.size,)), policy)
                return bk.reshape(x, (1, layout.size)), solved
        b = layout.unflatten(bk, rhs)
        x, solved = self.solve_arrays(bk, on_arrays, b, policy, batch_ndim=len(layout.batch))
        return layout.flatten(bk, x, bk.dtype(rhs), "x"), solved


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
            return x - solver.solve_arrays(bk, equations.jacobian(x, f), rhs, policy)[0]
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
