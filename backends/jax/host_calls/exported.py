"""Fallbacks in exported programs (`jax.export`), which cannot call back into this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ...interface.arrays import Array

primitive = Primitive("krylix_unless_exported")


primitive.multiple_results = True


def unless_exported(
    here: Callable[..., Sequence[Array]], exported: Callable[..., Sequence[Array]], *arrays: Array
) -> list[Array]:
    """`here(*arrays)`, or `exported(*arrays)` in a program made by `jax.export`. No derivatives."""
    return list(primitive.bind(*arrays, here=here, exported=exported))


@primitive.def_impl
def _run(*arrays: Array, here: Callable[..., Any], exported: Callable[..., Any]) -> Sequence[Array]:
    return here(*arrays)


def _abstract(*arrays: Any, here: Callable[..., Any], exported: Callable[..., Any]) -> Any:
    program = jax.make_jaxpr(here)(*arrays)
    return program.out_avals, program.effects


def _batch(arrays: Sequence[Array], axes: Sequence[Any], **functions: Callable[..., Any]) -> tuple[Any, Any]:
    mapped = {name: jax.vmap(function, tuple(axes)) for name, function in functions.items()}
    found = primitive.bind(*arrays, **mapped)
    return found, [0] * len(found)


def _lower(ctx: Any, *operands: Any, here: Callable[..., Any], exported: Callable[..., Any]) -> Any:
    parameters = getattr(ctx.module_context, "lowering_parameters", None)  # not public
    chosen = exported if getattr(parameters, "for_export", False) else here
    return mlir.lower_fun(chosen, multiple_results=True)(ctx, *operands)


primitive.def_effectful_abstract_eval(_abstract)
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, _lower)
