"""Calls of the host with arrays as they lie in memory, in JAX.

`jax.pure_callback` makes arrays of JAX of what the host is given. NumPy then waits for a copy by a thread that may be
the one that waits for the host: with one core, or with several calls at a time, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..interface.arrays import Array, Spec
from ..interface.control import as_declared
from .devices import first_placed, placed

primitive = Primitive("krylix_by_host")
primitive.multiple_results = True


def by_host(function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array) -> list[Array]:
    """`function(*arrays as NumPy)`, read-only ones, in the declared shapes and dtypes. No derivatives."""
    found: list[Array] = primitive.bind(*arrays, function=function, returns=tuple(returns))
    return found


def _called(function: Callable[..., Any], returns: Sequence[Spec], values: Sequence[Any]) -> tuple[np.ndarray, ...]:
    return as_declared(function(*map(np.asarray, values)), returns)


@primitive.def_impl
def _run(*arrays: Array, function: Callable[..., Any], returns: Sequence[Spec]) -> list[Array]:
    like = first_placed(arrays)
    return [placed(jnp.asarray(x), like) for x in _called(function, returns, arrays)]


@primitive.def_abstract_eval
def _abstract(*arrays: Any, function: Callable[..., Any], returns: Sequence[Spec]) -> list[Any]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in returns]


def lanes_in_turn(primitive: Primitive) -> Callable[..., tuple[list[Array], list[int]]]:
    """A rule for `jax.vmap`: one lane after the other."""

    def batch(arrays: Sequence[Array], axes: Sequence[Any], **params: Any) -> tuple[list[Array], list[int]]:
        lanes = [jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes, strict=True) if axis is not None]

        def one(own: Sequence[Array]) -> list[Array]:
            left = iter(own)
            return list(primitive.bind(*(x if a is None else next(left) for x, a in zip(arrays, axes)), **params))

        found = lax.map(one, lanes)
        return found, [0] * len(found)

    return batch


def _lower(ctx: Any, *operands: Any, function: Callable[..., Any], returns: Sequence[Spec]) -> Any:
    found, _, _ = mlir.emit_python_callback(
        ctx, lambda *values: _called(function, returns, values), None, list(operands), ctx.avals_in, ctx.avals_out,
        has_side_effect=False, returns_token=False,
    )  # fmt: skip
    return found


batching.primitive_batchers[primitive] = lanes_in_turn(primitive)
mlir.register_lowering(primitive, _lower)
