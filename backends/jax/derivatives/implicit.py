"""Solves with derivatives in JAX, by the implicit function theorem.

Also x as it is, with other derivatives: refused ones, and NaN for the systems that have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr

from ...interface.arrays import Array
from ...interface.functions import LinearSystem
from ..program.function import evaluated, hiding_constants
from ..sharding.grid_rows import GridRows, cells_of, on_cells
from ..sharding.varying import axes_after, casts, is_mapped, vary, varying_function
from .functions import with_transpose
from .solve import Rules, solve

Arrays = Sequence[Array]
Solve = Callable[[Any, Any], tuple[Any, Arrays]]  # (product, b) -> x, arrays without derivatives


def implicit_solve(
    system: LinearSystem, rows: Array, grid: Sequence[int] | None = None
) -> tuple[Array, tuple[Array, ...]]:
    """`system.solve(rows)` with derivatives with respect to the rows and whatever the products of the system depend on.

    `grid`: the shape that one row has in what is done here to all of them, see `grid_rows`; None leaves it flat.
    """
    b = jnp.reshape(cells_of(rows), (rows.shape[0], *(rows.shape[1:] if grid is None else grid)))
    how = _solve_by_rule if system.is_explicit and not is_mapped() else _solve_at_once
    x, *rest = how(system, b, rows.shape)
    if isinstance(rows, GridRows):  # not in a program, in which opposite reshapes are nothing
        return GridRows(jnp.reshape(x, rows.cells.shape), rows.cut), tuple(rest)
    return jnp.reshape(x, rows.shape), tuple(rest)


def _solve_by_rule(system: LinearSystem, b: Array, shape: Sequence[int]) -> Arrays:
    """x shaped as b, and the arrays without derivatives. The solves for derivatives are traced in the rules.

    Args:
        shape: that of rows.
    """
    recorded = jax.make_jaxpr(lambda b, given: _solved(system, b, shape, given))(b, _given(b, True))
    traced = {id(x): x for x in system.arrays if isinstance(x, jax.core.Tracer)}
    if any(isinstance(x, jax.core.Tracer) and id(x) not in traced for x in recorded.consts):
        return _solve_at_once(system, b, shape)  # it depends on arrays that the rules would not see
    # The rules outlive this trace, and hold nothing of it: places among the operands stand for what is traced.
    places = {key: _Place(i) for i, key in enumerate(traced)}
    jaxpr, consts, arrays = recorded.jaxpr, _with_places(recorded.consts, places), _with_places(system.arrays, places)
    general = system.without_arrays()

    def at(operands: Arrays) -> LinearSystem:
        return general.with_arrays(_with_values(arrays, operands))

    def run(operands: Arrays, b: Array, is_given: bool) -> Arrays:
        return evaluated(ClosedJaxpr(jaxpr, _with_values(consts, operands)), b, _given(b, is_given))

    def product(operands: Arrays, x: Array) -> Array:
        return _product(at(operands), x, shape)

    def tangent(operands: Arrays, b: Array) -> Array:
        return _tangent(at, operands, b, shape, lambda b: run(operands, b, False))

    operands = list(traced.values())
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*operands, b)]
    program = jax.make_jaxpr(lambda *values: run(values[:-1], values[-1], True))(*operands, b)
    once = partial(jax.jit, inline=True)  # each rule is traced once, and is no call in programs
    return solve(program, Rules(once(product), once(tangent), shapes[:-1], shapes[-1]), operands, b)


def _tangent(
    at: Callable[[Arrays], LinearSystem],
    operands: Arrays,
    b: Array,
    shape: Sequence[int],
    solve: Callable[[Array], Arrays],
) -> Array:
    """x for the right-hand side of a derivative: by `solve`, which JAX transposes to a solve of the transposed system.

    Raises:
        RuntimeError: that uses arrays of a transformation which are not among the operands, so may be those of another.
    """

    def forward(_: Any, rhs: Any) -> tuple[Any, Arrays]:
        x, *rest = solve(rhs[0])
        return (x,), rest

    def backward(_: Any, rhs: Any) -> tuple[Any, Arrays]:
        transposed = jax.make_jaxpr(lambda operands, b: _solved(at(operands).transpose(), b, shape))(operands, rhs[0])
        if any(isinstance(x, jax.core.Tracer) for x in transposed.consts):
            raise RuntimeError(
                "The derivative of this solve uses arrays of a transformation that are no part of A, b, M or x0. "
                "Hand them to linear_solve as args, or let A and M be functions that close over them."
            )
        x, *rest = evaluated(transposed, *operands, rhs[0])
        return (x,), rest

    def product(x: Array) -> Arrays:
        return (_product(at(operands), x, shape),)

    (x,), _ = _with_transpose_if_any(at(operands), product, (b,), shape, forward, backward)
    return x


def _solve_at_once(system: LinearSystem, b: Array, shape: Sequence[int]) -> Arrays:
    """The same, whose solves for derivatives are traced now: where the arrays of the system do not tell what it is."""
    # A second unknown, equal to its right-hand side, which is 1: its derivatives are 0, by which a solve for one
    # knows itself. JAX fails where they are zeros that it left out, so the two are tied by where(False, ...).
    given = jnp.where(False, _sums(b), jnp.ones((), b.dtype))

    def product(x: Array, one: Array) -> Arrays:
        y = _product(system, jnp.where(False, one, x), shape)  # tied both ways, as this is ...
        return y, jnp.where(False, _sums(y), one)  # ... transposed, too

    def forward(_: Any, rhs: Any) -> tuple[Any, Arrays]:
        solve = hiding_constants(lambda b, given: _solved(system, b, shape, given))
        x, *rest = solve(rhs[0], jnp.reshape(rhs[1] != 0, (-1, 1)))
        return (x, rhs[1]), rest

    def backward(_: Any, rhs: Any) -> tuple[Any, Arrays]:
        x, *rest = hiding_constants(lambda b: _solved(system.transpose(), b, shape))(rhs[0])
        return (x, rhs[1]), rest

    (x, one), rest = _with_transpose_if_any(system, product, (b, given), shape, forward, backward)
    return [jnp.where(False, one, x), *rest]


def _with_transpose_if_any(
    system: LinearSystem,
    product: Callable[..., Arrays],
    b: tuple[Array, ...],
    shape: Sequence[int],
    forward: Solve,
    backward: Solve,
) -> tuple[Arrays, Arrays]:
    """`custom_linear_solve`, which traces the transposed solve at once.

    Where there is none (a LinearOperator without rmatvec, a function with a host call), this is no error before
    somebody asks for a reverse derivative, which JAX then refuses.
    """
    try:
        return custom_linear_solve(product, b, forward, backward)
    except AssertionError as error:  # JAX's own, for a product of two factors that depend on x
        raise RuntimeError(
            "JAX cannot transpose this function, which multiplies by what depends on its argument: it is not linear. "
            "Expected a linear or affine function."
        ) from error
    except (TypeError, ValueError, NotImplementedError):
        rows = jnp.zeros(shape, b[0].dtype)
        if not _traces(system.transpose().factors, rows):
            return custom_linear_solve(product, b, forward)
        if _traces(jax.linear_transpose(system.product, rows), rows):
            raise
        return custom_linear_solve(with_transpose(product, *b), b, forward, backward)


def custom_linear_solve(
    product: Callable[..., Arrays], b: tuple[Array, ...], solve: Solve, *transposed: Solve
) -> tuple[Arrays, Arrays]:
    """JAX's, of some arrays, with what `solve` returns beside x as arrays without derivatives; in `shard_map`, too."""
    if not is_mapped():
        return lax.custom_linear_solve(lambda u: tuple(product(*u)), b, solve, *transposed, has_aux=True)
    axes = axes_after(lambda b: solve(product, b), b)
    b = vary(b, axes)
    whole = with_transpose(lambda *u: vary(tuple(product(*u)), axes), *b)  # made here, where JAX casts by itself
    solves = [varying_function(function, axes) for function in (solve, *transposed)]

    def solved(b: tuple[Array, ...]) -> tuple[Arrays, Arrays]:
        with casts(automatic=False):
            return lax.custom_linear_solve(lambda u: tuple(whole(*u)), b, *solves, has_aux=True)

    # traced by itself, so that it is vectorised and lowered where JAX casts again
    return jax.jit(solved, inline=True)(b)


def _solved(system: LinearSystem, b: Array, shape: Sequence[int], given: Array | None = None) -> Arrays:
    x, rest = system.solve(jnp.reshape(b, shape), given)
    return [jnp.reshape(x, b.shape), *rest]


def _product(system: LinearSystem, x: Array, shape: Sequence[int]) -> Array:
    return jnp.reshape(system.product(jnp.reshape(x, shape)), x.shape)


def _given(b: Array, value: bool) -> Array:
    """See `LinearSystem.solve`."""
    return jnp.full((b.shape[0], 1), value)


class _Place(NamedTuple):
    """The number of an operand."""

    number: int


def _with_places(arrays: Arrays, places: dict[int, _Place]) -> list[Any]:
    return [places.get(id(x), x) for x in arrays]


def _with_values(arrays: Sequence[Any], operands: Arrays) -> list[Array]:
    return [operands[x.number] if isinstance(x, _Place) else x for x in arrays]


def _sums(x: Array) -> Array:
    """Those of each row, which combine with it."""
    return jnp.sum(x, tuple(range(1, x.ndim)), keepdims=True)


def _traces(function: Callable[[Array], Any], x: Array) -> bool:
    """Does JAX have a rule for each operation of a function, which may be the transpose of another one?"""
    try:
        jax.eval_shape(function, x)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def refused(x: Array, why: str, error: type[Exception]) -> Array:
    """x; its derivative raises `error(why)`."""
    return x


@refused.defjvp
def _raise(why: str, error: type[Exception], primals: Any, tangents: Any) -> Any:
    raise error(why)


@jax.custom_jvp
def without_derivatives(x: Array, failed: Array) -> Array:
    """x; see `Transformations.without_derivatives`."""
    return x


@without_derivatives.defjvp
def _spoiled(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """As a solve with the identity, as this is what JAX believes to be linear, forward and backward, whatever it does.

    A factor NaN would not do: it makes one of a derivative 0, as where the caller has left the system out.
    """
    (x, failed), (tangent, _) = primals, tangents

    def spoil(_: Any, rows: Any) -> Any:
        cells = cells_of(rows[0])
        changes = failed & jnp.any(cells != 0, tuple(range(1, cells.ndim)))[:, None]
        return (on_cells(lambda spoilt, x: jnp.where(spoilt, jnp.full((), jnp.nan, x.dtype), x), changes, rows[0]),), ()

    (found,), _ = custom_linear_solve(lambda u: (u,), (tangent,), spoil, spoil)
    return x, found
