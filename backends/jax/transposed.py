"""Transposes of linear functions in JAX, of those too that have a reverse rule of their own (`jax.custom_vjp`).

JAX transposes a function operation by operation, and a `custom_vjp` is one without a transpose: there is only the
pullback, which for a linear function is the same map at every point. `with_transpose` makes of a function one operation
that is transposed by its pullback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ..interface.arrays import Array

Function = Callable[[Array], Array]

primitive = Primitive("krylix_linear_function")


def transpose_function(function: Function, like: Array) -> Function:
    """The transpose of a linear function of one array shaped as `like`; not conjugated."""
    transposed = jax.linear_transpose(function, like)

    def product(y: Array) -> Array:
        try:
            return transposed(y)[0]
        except NotImplementedError as error:  # an operation without a transpose
            if "custom_vjp" not in str(error):
                raise
        return _pullback(function, like)(y)

    return product


def with_transpose(function: Function, like: Array) -> Function:
    """The same function, which JAX can transpose if it has a pullback. It has derivatives by what it closes over."""
    closed = jax.make_jaxpr(function)(like)

    def of_all(*operands: Array) -> Array:
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(operands[:-1])))(operands[-1])[0]

    program = jax.make_jaxpr(of_all)(*closed.consts, like)
    return lambda x: _bind(*closed.consts, x, program=program, transposed=False)


def _pullback(function: Function, like: Array) -> Function:
    """
    Raises:
        TypeError: it is another one at every point, so the function is not linear.
    """

    def pull(point: Array, y: Array) -> Array:
        return jax.vjp(function, point)[1](y)[0]

    def product(y: Array) -> Array:
        if _uses_first(pull, like, y):
            raise TypeError(
                "The backward rule of a jax.custom_vjp in this function depends on the point where it is taken, so it "
                "cannot be transposed as a linear function. Expected a rule whose cotangent of x uses no value of x."
            )
        return pull(jnp.zeros(like.shape, like.dtype), y)

    return product


def _uses_first(function: Callable[..., Array], *arrays: Array) -> bool:
    """Does the result of a function depend on its first argument, as far as the program tells?"""
    from jax.interpreters.partial_eval import dce_jaxpr

    jaxpr = jax.make_jaxpr(function)(*arrays).jaxpr
    return bool(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1][0])


def _bind(*operands: Array, program: ClosedJaxpr, transposed: bool) -> Array:
    return primitive.bind(*operands, program=program, transposed=transposed)


@primitive.def_impl
def _run(*operands: Array, program: ClosedJaxpr, transposed: bool) -> Array:
    """`program` of all operands, or its transpose by the last one of all but that."""
    *constants, x = operands

    def function(x: Array) -> Array:
        return jaxpr_as_fun(program)(*constants, x)[0]

    return _pullback(function, program.in_avals[-1])(x) if transposed else function(x)


@primitive.def_abstract_eval
def _abstract(*operands: Any, program: ClosedJaxpr, transposed: bool) -> Any:
    return program.in_avals[-1] if transposed else program.out_avals[0]


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], **params: Any) -> tuple[Array, Any]:
    *constants, x = primals
    image = _bind(*primals, **params)
    moving = [i for i, tangent in enumerate(tangents[:-1]) if type(tangent) is not ad.Zero]

    def of_moving(*values: Array) -> Array:
        operands = list(primals)
        for i, value in zip(moving, values, strict=True):
            operands[i] = value
        return _run(*operands, **params)

    parts = []
    if type(tangents[-1]) is not ad.Zero:
        parts.append(_bind(*constants, tangents[-1], **params))
    if moving:
        parts.append(jax.jvp(of_moving, [constants[i] for i in moving], [tangents[i] for i in moving])[1])
    return image, sum(parts[1:], parts[0]) if parts else ad.Zero.from_primal_value(image)


def _transpose(cotangent: Any, *operands: Any, program: ClosedJaxpr, transposed: bool) -> list[Any]:
    *constants, x = operands
    if type(cotangent) is ad.Zero:
        return [*(None for _ in constants), ad.Zero(x.aval)]
    pulled = _bind(*constants, cotangent, program=program, transposed=not transposed)
    return [*(None for _ in constants), pulled]


def _batch(operands: Sequence[Array], axes: Sequence[Any], *, program: ClosedJaxpr, transposed: bool) -> Any:
    """The transpose of the mapped function is the mapped transpose."""
    size = next(o.shape[axis] for o, axis in zip(operands, axes, strict=True) if axis is not None)
    *constants, x = (
        o if axis is None else jnp.moveaxis(o, axis, 0) for o, axis in zip(operands, axes, strict=True)
    )  # fmt: skip
    x = jnp.broadcast_to(x, (size, *x.shape)) if axes[-1] is None else x
    mapped = jax.vmap(jaxpr_as_fun(program), [*(None if axis is None else 0 for axis in axes[:-1]), 0])
    one = program.in_avals[-1]
    wide = jax.make_jaxpr(mapped)(*constants, jax.ShapeDtypeStruct((size, *one.shape), one.dtype))
    return _bind(*constants, x, program=wide, transposed=transposed), 0


ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, mlir.lower_fun(_run, multiple_results=False))
