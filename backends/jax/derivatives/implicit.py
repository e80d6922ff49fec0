"""Solves with derivatives in JAX: by `custom_linear_solve`, which transposes and differentiates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...interface.arrays import Array
from ...interface.implicit import LinearSystem
from ..program.constants import hiding_constants
from ..sharding.varying import axes_after, casts, is_mapped, vary, varying_function
from .transposed import with_transpose


def implicit_solve(
    system: LinearSystem, rows: Array, grid: Sequence[int] | None = None
) -> tuple[Array, tuple[Array, ...]]:
    """`system.solve(rows)` with derivatives with respect to the rows and whatever the products of the system depend on.

    `grid`: the shape that one row has in what is done here to all of them, see `grid_rows`; None leaves it flat.
    """
    b = jnp.reshape(rows, (rows.shape[0], *(rows.shape[1:] if grid is None else grid)))
    # A second unknown, equal to its right-hand side, which is 1: its derivatives are 0, by which a solve for one
    # knows itself. JAX fails where they are zeros that it left out, so the two are tied by where(False, ...).
    given = jnp.where(False, _sums(b), jnp.ones((), b.dtype))

    def solve(product: Callable[..., Sequence[Array]], *transposed: Any) -> tuple[Array, tuple[Array, ...]]:
        (x, one), rest = custom_linear_solve(lambda u: tuple(product(*u)), (b, given), forward, *transposed)
        return jnp.reshape(jnp.where(False, one, x), rows.shape), rest

    def product(x: Array, one: Array) -> tuple[Array, Array]:
        image = system.product(jnp.reshape(jnp.where(False, one, x), rows.shape))  # tied both ways, as this is ...
        y = jnp.reshape(image, b.shape)
        return y, jnp.where(False, _sums(y), one)  # ... transposed, too

    def forward(_: Any, rhs: Any) -> Any:
        x, rest = hiding_constants(system.solve)(jnp.reshape(rhs[0], rows.shape), jnp.reshape(rhs[1] != 0, (-1, 1)))
        return (jnp.reshape(x, b.shape), rhs[1]), rest

    def backward(_: Any, rhs: Any) -> Any:
        x, rest = hiding_constants(system.transpose().solve)(jnp.reshape(rhs[0], rows.shape))
        return (jnp.reshape(x, b.shape), rhs[1]), rest

    # JAX traces the transposed solve at once. Where there is none (a LinearOperator without rmatvec, a function
    # with a host call), this is no error before somebody asks for a reverse derivative, which JAX then refuses.
    try:
        return solve(product, backward)
    except (TypeError, ValueError, NotImplementedError):
        if not _traces(system.transpose().factors, rows):
            return solve(product)
        if _traces(jax.linear_transpose(system.product, rows), rows):
            raise
        return solve(with_transpose(product, b, given), backward)


def _sums(x: Array) -> Array:
    """Those of each row, which combine with it."""
    return jnp.sum(x, tuple(range(1, x.ndim)), keepdims=True)


def custom_linear_solve(product: Callable[[Any], Any], b: Any, solve: Callable[..., Any], *transposed: Any) -> Any:
    """JAX's, with what `solve` returns beside x as arrays without derivatives; inside of `shard_map` too."""
    if not is_mapped():
        return lax.custom_linear_solve(product, b, solve, *transposed, has_aux=True)
    axes = axes_after(lambda b: solve(product, b), b)
    b = vary(b, axes)
    whole = with_transpose(lambda *u: vary(product(u), axes), *b)  # made here, where JAX casts by itself
    solves = (varying_function(function, axes) for function in (solve, *transposed))
    with casts(automatic=False):
        return lax.custom_linear_solve(lambda u: tuple(whole(*u)), b, *solves, has_aux=True)


def _traces(function: Callable[[Array], Any], x: Array) -> bool:
    """Does JAX have a rule for each operation of a function, which may be the transpose of another one?"""
    try:
        jax.eval_shape(function, x)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True
