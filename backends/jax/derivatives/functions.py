"""Transposes of linear functions in JAX, of those too that have a reverse rule of their own (`jax.custom_vjp`).

JAX transposes a function operation by operation, and a `custom_vjp` is one without a transpose: there is only the
pullback, which for a linear function is the same map at every point. `with_transpose` makes of a function one operation
that is transposed whole, and by its pullback where that is all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ...interface.arrays import Array
from ...interface.functions import Differentiated
from ..sharding.varying import axes_after, axes_of, casts, is_mapped, vary

Arrays = Sequence[Array]

primitive = Primitive("krylix_linear_function")
primitive.multiple_results = True


def transpose_function(function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
    """The transpose of a linear function of one array shaped as `like`; not conjugated."""
    return lambda y: _transposed(lambda x: [function(x)], [like], [y])[0]


def with_transpose(function: Callable[..., Arrays], *like: Array) -> Callable[..., list[Array]]:
    """The same linear function of some arrays, to be transposed whole. It has derivatives by what it closes over.

    It takes and returns the same number of arrays, shaped as `like`.
    """
    closed = jax.make_jaxpr(function)(*like)
    count = len(closed.consts)

    def of_all(*operands: Array) -> Arrays:
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(operands[:count])))(*operands[count:])

    program = jax.make_jaxpr(of_all)(*closed.consts, *like)
    return lambda *arrays: _bind(*closed.consts, *arrays, program=program, transposed=False)


def _transposed(function: Callable[..., Arrays], like: Arrays, y: Arrays) -> Arrays:
    """The transpose of a function times y, which inside of `shard_map` is each device's own."""
    axes = axes_of(y) | axes_after(function, *like) if is_mapped() else axes_of(y)
    start = [vary(jnp.zeros(x.shape, x.dtype), axes) for x in like]
    y = vary(list(y), axes)

    def own(*arrays: Array) -> Arrays:
        return vary(list(function(*arrays)), axes)

    try:
        return jax.linear_transpose(own, *start)(y)
    except NotImplementedError as error:  # an operation without a transpose
        if "custom_vjp" not in str(error):
            raise
    return _pulled_back(own, start, y)


def _pulled_back(function: Callable[..., Arrays], point: Arrays, y: Arrays) -> Arrays:
    """
    Raises:
        TypeError: it is another one at every point, so the function is not linear.
    """

    def pull(point: Arrays, y: Arrays) -> Arrays:
        return jax.vjp(function, *point)[1](y)

    if _uses_first(pull, point, y):
        raise TypeError(
            "The backward rule of a jax.custom_vjp in this function depends on the point where it is taken, so it "
            "cannot be transposed as a linear function. Expected a rule whose cotangent of x uses no value of x."
        )
    return pull(point, y)


def _uses_first(function: Callable[[Arrays, Arrays], Arrays], first: Arrays, second: Arrays) -> bool:
    """Do the results of a function depend on its first argument, as far as the program tells?"""
    from jax.interpreters.partial_eval import dce_jaxpr

    jaxpr = jax.make_jaxpr(function)(first, second).jaxpr
    return any(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1][: len(first)])


def _bind(*operands: Array, program: ClosedJaxpr, transposed: bool) -> list[Array]:
    results: list[Array] = primitive.bind(*operands, program=program, transposed=transposed)
    return results


def _split(operands: Sequence[Any], program: ClosedJaxpr) -> tuple[list[Any], list[Any]]:
    """What the program is made of, and what it is linear in."""
    count = len(operands) - len(program.out_avals)
    return list(operands[:count]), list(operands[count:])


@primitive.def_impl
def _run(*operands: Array, program: ClosedJaxpr, transposed: bool) -> Arrays:
    constants, arrays = _split(operands, program)

    def function(*arrays: Array) -> Arrays:
        return jaxpr_as_fun(program)(*constants, *arrays)

    with casts(automatic=True):
        return list(
            _transposed(function, _split(program.in_avals, program)[1], arrays) if transposed else function(*arrays)
        )


@primitive.def_abstract_eval
def _abstract(*operands: Any, program: ClosedJaxpr, transposed: bool) -> Any:
    return _split(program.in_avals, program)[1] if transposed else program.out_avals


def _jvp(primals: Arrays, tangents: Sequence[Any], **params: Any) -> tuple[Arrays, Sequence[Any]]:
    constants = _split(primals, params["program"])[0]
    of_constants, of_arrays = _split(tangents, params["program"])
    images = _bind(*primals, **params)
    moving = [i for i, tangent in enumerate(of_constants) if type(tangent) is not ad.Zero]

    def of_moving(*values: Array) -> Arrays:
        operands = list(primals)
        for i, value in zip(moving, values, strict=True):
            operands[i] = value
        return _run(*operands, **params)

    parts = []
    if any(type(tangent) is not ad.Zero for tangent in of_arrays):
        parts.append(_bind(*constants, *map(ad.instantiate_zeros, of_arrays), **params))
    if moving:
        parts.append(jax.jvp(of_moving, [constants[i] for i in moving], [of_constants[i] for i in moving])[1])
    if not parts:
        return images, [ad.Zero.from_primal_value(image) for image in images]
    return images, parts[0] if len(parts) == 1 else [p + q for p, q in zip(*parts, strict=True)]


def _transpose(cotangents: Sequence[Any], *operands: Any, program: ClosedJaxpr, transposed: bool) -> list[Any]:
    constants, arrays = _split(operands, program)
    nothing = [None] * len(constants)
    if all(type(c) is ad.Zero for c in cotangents):
        return [*nothing, *(ad.Zero(x.aval) for x in arrays)]
    c = map(ad.instantiate_zeros, cotangents)
    return [*nothing, *_bind(*constants, *c, program=program, transposed=not transposed)]


def _batch(operands: Arrays, axes: Sequence[Any], *, program: ClosedJaxpr, transposed: bool) -> Any:
    """The transpose of the mapped function is the mapped transpose."""
    size = next(o.shape[axis] for o, axis in zip(operands, axes, strict=True) if axis is not None)
    moved = [o if axis is None else jnp.moveaxis(o, axis, 0) for o, axis in zip(operands, axes, strict=True)]
    constants, arrays = _split(moved, program)
    mapped, of_arrays = _split(axes, program)
    arrays = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else x for x, axis in zip(arrays, of_arrays, strict=True)
    ]
    like = [vary(jnp.zeros((size, *x.shape), x.dtype), axes_of([x])) for x in _split(program.in_avals, program)[1]]
    in_axes = [*(None if axis is None else 0 for axis in mapped), *(0 for _ in arrays)]
    wide = jax.make_jaxpr(jax.vmap(jaxpr_as_fun(program), in_axes))(*constants, *like)
    return _bind(*constants, *arrays, program=wide, transposed=transposed), [0] * len(arrays)


ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, mlir.lower_fun(_run, multiple_results=True))


# --- Arrays with a derivative rule that is a function of the user, in JAX ---------------------------------------------

Rule = Callable[..., Sequence[jax.Array | None]]
Both = tuple[Arrays, Arrays]

_NO_FORWARD = (
    "The derivative that was asked for in forward mode (jvp, jacfwd, linearize) goes through a rule for reverse mode. "
    "Use jax.grad or jax.jacrev there."
)


def with_rule(
    rule: Rule,
    inputs: Sequence[jax.Array],
    outputs: Sequence[jax.Array],
    linear: bool = False,
    why: str = _NO_FORWARD,
) -> Sequence[jax.Array]:
    """See `Transformations._with_rule`; `why` there is no forward mode."""
    if linear:
        return _with_linear_rule(rule, tuple(inputs), tuple(outputs))

    @jax.custom_vjp
    def passed_on(inputs: Arrays, outputs: Arrays) -> Arrays:
        return outputs

    def forward(*both: Arrays) -> Any:
        outputs = passed_on(*both)  # with their rule: second derivatives go through them
        return outputs, (both[0], outputs)

    def backward(both: Both, cotangents: tuple[Any, ...]) -> Any:
        return _pulled(rule, *both, cotangents), cotangents

    passed_on.defvjp(forward, backward)
    with _told_of_forward_mode(why):
        return passed_on(tuple(inputs), tuple(outputs))


def with_no_derivative(inputs: Sequence[jax.Array], outputs: Sequence[jax.Array], why: str) -> Sequence[jax.Array]:
    """See `Transformations._with_no_derivative`."""

    def rule(*_: Any) -> Any:
        raise TypeError(why)

    return with_rule(rule, inputs, outputs, why=why)


@contextmanager
def _told_of_forward_mode(why: str) -> Iterator[None]:
    """Say why there is no forward mode in place of JAX, which names an internal function."""
    try:
        yield
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise TypeError(why) from error


def _with_linear_rule(rule: Rule, inputs: Arrays, outputs: Arrays) -> Sequence[jax.Array]:
    @jax.custom_jvp
    def passed_on(inputs: Arrays, outputs: Arrays) -> Arrays:
        return outputs

    @passed_on.defjvp
    def forward(both: Both, tangents: Both) -> tuple[Arrays, Arrays]:
        (inputs, _), (of_inputs, of_outputs) = both, tangents
        outputs = passed_on(*both)  # with their rule: second derivatives go through them

        def pull(cotangents: Arrays) -> Arrays:
            found = _pulled(rule, inputs, outputs, cotangents)
            return tuple(jnp.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))

        (pushed,) = jax.linear_transpose(pull, outputs)(of_inputs)
        return outputs, tuple(a + b for a, b in zip(pushed, of_outputs, strict=True))

    return passed_on(inputs, outputs)


def _pulled(rule: Rule, inputs: Arrays, outputs: Arrays, cotangents: Sequence[Any]) -> tuple[jax.Array | None, ...]:
    """The rule in the convention of JAX."""
    known = [None if c.dtype == jax.dtypes.float0 else jnp.conj(c) for c in cotangents]
    return tuple(None if g is None else jnp.conj(g) for g in rule(inputs, outputs, known))


# --- The derivatives of a loss in JAX ---------------------------------------------------------------------------------


def differentiated(function: Callable[..., tuple[jax.Array, Any]], arrays: Sequence[jax.Array]) -> Differentiated:
    """See `Transformations._differentiated`."""
    loss, pullback, outputs = jax.vjp(function, *arrays, has_aux=True)

    def pull(cotangent: jax.Array) -> list[jax.Array]:
        return [jnp.conj(g) for g in pullback(cotangent)]  # JAX's own are d/dRe - i d/dIm

    return Differentiated(loss, outputs, pull, jax.vmap(pull))
