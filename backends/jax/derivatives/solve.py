"""A solve as one operation of JAX, whose derivative rules are traced when somebody asks for them.

`custom_linear_solve` traces the transposed solve with the solve itself: a third of the time that a first call takes
before XLA compiles it, and most solves are never differentiated. So it stands in the rules of this operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ...interface.arrays import Array
from ..tracing import lenient

Arrays = Sequence[Array]

try:
    from jax._src.core import no_axis_name as _UNNAMED  # of an axis of `vmap`; not public
except ImportError:
    _UNNAMED = None

primitive = Primitive("krylix_linear_solve")
primitive.multiple_results = True


@dataclass(frozen=True, eq=False)
class Rules:
    """What the derivatives of x(operands, b) are made of, where A x = b and the operands decide A.

    Attributes:
        product: `(operands, x) -> A x`, with derivatives.
        tangent: `(operands, b) -> x` for the right-hand side of a derivative; linear in b, with derivatives and with a
            transpose if A has one.
        operands, b: their shapes and dtypes.
    """

    product: Callable[[Arrays, Array], Array]
    tangent: Callable[[Arrays, Array], Array]
    operands: Sequence[jax.ShapeDtypeStruct]
    b: jax.ShapeDtypeStruct

    @cached_property
    def programs(self) -> tuple[ClosedJaxpr, ...]:
        """By which rules of two traces are compared."""
        return tuple(jax.make_jaxpr(rule)(self.operands, self.b) for rule in (self.product, self.tangent))

    def mapped(self, axes: Sequence[int | None], over: dict[str, Any], size: int) -> Rules:
        """Those of `size` solves with a first axis for them in b, and in the operands where `axes` are 0."""
        product, tangent = (jax.vmap(rule, (list(axes), 0), **over) for rule in (self.product, self.tangent))
        wide = [one if axis is None else _with_axis(one, size) for one, axis in zip(self.operands, axes, strict=True)]
        return Rules(product, tangent, wide, _with_axis(self.b, size))


def solve(program: ClosedJaxpr, rules: Rules, operands: Arrays, b: Array) -> list[Array]:
    """x, and arrays without derivatives: what the program computes of the operands and b."""
    results: list[Array] = primitive.bind(*operands, b, program=program, rules=rules)
    return results


@primitive.def_impl
def _run(*values: Array, program: ClosedJaxpr, rules: Rules) -> Arrays:
    results: Arrays = jaxpr_as_fun(program)(*values)
    return results


def _abstract(*_: Any, program: ClosedJaxpr, rules: Rules) -> Any:
    return program.out_avals, program.effects


def _jvp(primals: Arrays, tangents: Sequence[Any], program: ClosedJaxpr, rules: Rules) -> tuple[Arrays, Sequence[Any]]:
    """A dx = db - dA x."""
    *operands, b = primals
    *of_operands, of_b = tangents
    x, *rest = solve(program, rules, operands, b)
    moving = [i for i, tangent in enumerate(of_operands) if _moves(tangent)]
    change = ad.instantiate_zeros(of_b)

    def image(*values: Array) -> Array:
        new = dict(zip(moving, values, strict=True))
        return rules.product([new.get(i, operand) for i, operand in enumerate(operands)], x)

    if moving:
        values = [operands[i] for i in moving]
        changes = [jnp.asarray(of_operands[i], operands[i].dtype) for i in moving]  # some are numbers of Python
        change = change - jax.jvp(image, values, changes)[1]
    return [x, *rest], [rules.tangent(operands, change), *map(_no_tangent, rest)]


def _transpose(cotangents: Sequence[Any], *values: Any, program: ClosedJaxpr, rules: Rules) -> list[Any]:
    """Of a solve with known operands: one for the right-hand side of a derivative, without x0 and atol."""
    *operands, b = values
    if any(map(ad.is_undefined_primal, operands)):
        raise TypeError(
            "This solve is not linear in b, so it has no transpose: its tolerance, start or matrix depends on b. "
            "Expected atol=0, and A, x0 and the preconditioner independent of b."
        )
    nothing = [None] * len(operands)
    if type(cotangents[0]) is ad.Zero:
        return [*nothing, ad.Zero(b.aval)]
    like = jnp.zeros(rules.b.shape, rules.b.dtype)
    return [*nothing, *jax.linear_transpose(lambda b: rules.tangent(operands, b), like)(cotangents[0])]


def _batch(
    axis: Any, values: Arrays, axes: Sequence[Any], *, program: ClosedJaxpr, rules: Rules
) -> tuple[list[Array], list[int | None]]:
    """One operation for all, as the library makes its programs for many systems."""
    if all(i is None for i in axes) and not program.effects:
        return solve(program, rules, values[:-1], values[-1]), [None] * len(program.out_avals)
    over = {"axis_name": axis.name, "axis_size": axis.size, "spmd_axis_name": axis.spmd_name}
    over = {key: value for key, value in over.items() if not (value is None or value is _UNNAMED)}
    moved = [x if i is None else jnp.moveaxis(x, i, 0) for x, i in zip(values, axes, strict=True)]
    if axes[-1] is None:
        moved[-1] = jnp.broadcast_to(moved[-1], (axis.size, *moved[-1].shape))
    mapped = [None if i is None else 0 for i in axes[:-1]]
    wide = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(program), (*mapped, 0), **over))(*moved)
    found = solve(wide, rules.mapped(mapped, over, axis.size), moved[:-1], moved[-1])
    return found, [0 for _ in found]


def _moves(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and getattr(tangent, "dtype", None) != jax.dtypes.float0


def _no_tangent(x: Array) -> Any:
    return ad.Zero(type_of(x).to_tangent_aval())


def type_of(x: Any) -> Any:
    """What JAX knows of an array while it traces."""
    return jax.typeof(x) if hasattr(jax, "typeof") else jax.core.get_aval(x)


def _with_axis(one: jax.ShapeDtypeStruct, size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size, *one.shape), one.dtype)


primitive.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[primitive] = lenient(_jvp)
ad.primitive_transposes[primitive] = lenient(_transpose)
batching.fancy_primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, mlir.lower_fun(_run, multiple_results=True))
