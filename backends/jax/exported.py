"""Programs that leave this process (`jax.export`) cannot call back into it, and so do something else instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..interface.arrays import Array

primitive = Primitive("krylix_unless_exported")


def unless_exported(here: Callable[..., Array], exported: Callable[..., Array], *arrays: Array) -> Array:
    """`here(*arrays)`, or `exported(*arrays)` in a program made by `jax.export`. No derivatives."""
    return primitive.bind(*arrays, here=here, exported=exported)


@primitive.def_impl
def _run(*arrays: Array, here: Callable[..., Array], exported: Callable[..., Array]) -> Array:
    return here(*arrays)


def _abstract(*arrays: Any, here: Callable[..., Array], exported: Callable[..., Array]) -> Any:
    program = jax.make_jaxpr(here)(*arrays)
    return program.out_avals[0], program.effects


def _batch(arrays: Sequence[Array], axes: Sequence[Any], **functions: Callable[..., Array]) -> tuple[Array, int]:
    mapped = {name: jax.vmap(function, tuple(axes)) for name, function in functions.items()}
    return primitive.bind(*arrays, **mapped), 0


def _lower(ctx: Any, *operands: Any, here: Callable[..., Array], exported: Callable[..., Array]) -> Any:
    parameters = getattr(ctx.module_context, "lowering_parameters", None)  # not public
    chosen = exported if getattr(parameters, "for_export", False) else here
    return mlir.lower_fun(chosen, multiple_results=False)(ctx, *operands)


primitive.def_effectful_abstract_eval(_abstract)
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, _lower)
