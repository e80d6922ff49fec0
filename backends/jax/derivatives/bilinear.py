"""Bilinear maps in JAX: one primitive, whose derivatives are the same primitive with other arguments.

Operands: the index arrays, then the arrays of the first and of the second argument. Parameters: the backend `bk`, the
`form`, `kind` (one of the three maps of `bilinear.py`), `sizes` (how many operands of the three sorts) and `mapped`,
which has an element for each enclosing `vmap` that could not be made part of the batch: for each index array, whether
it has an axis for it. All other arrays have these axes in front, that of the outermost map first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...interface.arrays import Array
from ...interface.kernels import PRODUCT, SAMPLE, TRANSPOSED, Arrays, Bilinear, evaluate_bilinear, transposed_arguments
from ..sharding.varying import is_mapped
from ..tracing import lenient

primitive = Primitive("krylix_bilinear")
primitive.multiple_results = True


def bilinear(bk: Any, form: Bilinear, values: Arrays, indices: Arrays, x: Array, transposed: bool = False) -> Array:
    """`form.product` or its transpose, with derivatives."""
    indices = tuple(jnp.asarray(i) for i in indices)
    values = tuple(jnp.asarray(v) for v in values)
    return _bind(bk, form, TRANSPOSED if transposed else PRODUCT, (), indices, values, (jnp.asarray(x),))[0]


def implementation(
    bk: Any, form: Bilinear, kind: str, sizes: tuple[int, int, int], mapped: Any
) -> Callable[..., list[Array]]:
    """The primitive with these parameters as a function of its operands, in ordinary operations of JAX."""

    @lenient
    def function(*operands: Array) -> list[Array]:
        return list(evaluate_bilinear(bk, form, kind, *_split(operands, sizes)))

    for level in mapped:
        function = jax.vmap(function, tuple(0 if own else None for own in level) + (0,) * (sizes[1] + sizes[2]))
    return function


def _bind(
    bk: Any, form: Bilinear, kind: str, mapped: Any, indices: Arrays, a: Sequence[Array], b: Sequence[Array]
) -> list[Array]:
    sizes = (len(indices), len(a), len(b))
    if is_mapped():  # the primitive knows nothing of meshes
        return implementation(bk, form, kind, sizes, mapped)(*indices, *a, *b)
    results: list[Array] = primitive.bind(*indices, *a, *b, bk=bk, form=form, kind=kind, sizes=sizes, mapped=mapped)
    return results


def _split(operands: Sequence[Any], sizes: tuple[int, int, int]) -> tuple[tuple[Any, ...], ...]:
    i, a = sizes[0], sizes[0] + sizes[1]
    return tuple(operands[:i]), tuple(operands[i:a]), tuple(operands[a:])


@lru_cache(maxsize=1024)
def _compiled(**params: Any) -> Callable[..., list[Array]]:
    compiled: Callable[..., list[Array]] = jax.jit(implementation(**params))
    return compiled


@primitive.def_impl
def _impl(*operands: Array, **params: Any) -> list[Array]:
    return _compiled(**params)(*operands)


@primitive.def_abstract_eval
def _abstract(*operands: Any, **params: Any) -> list[Any]:
    shapes = jax.eval_shape(_compiled(**params), *(jax.ShapeDtypeStruct(o.shape, o.dtype) for o in operands))
    return [jax.core.ShapedArray(s.shape, s.dtype) for s in shapes]


def _lower(ctx: Any, *operands: Any, **params: Any) -> Any:
    return mlir.lower_fun(implementation(**params), multiple_results=True)(ctx, *operands)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Array], list[Any]]:
    indices, a, b = _split(primals, params["sizes"])
    _, da, db = _split(tangents, params["sizes"])
    found = primitive.bind(*primals, **params)
    pushed = [
        primitive.bind(*indices, *args, **params)
        for args in ((*_full(da, a), *b) if _any(da) else (), (*a, *_full(db, b)) if _any(db) else ())
        if args
    ]
    if not pushed:
        return found, [ad.Zero.from_primal_value(y) for y in found]
    return found, pushed[0] if len(pushed) == 1 else [p + q for p, q in zip(*pushed, strict=True)]


def _any(tangents: Sequence[Any]) -> bool:
    return any(type(t) is not ad.Zero for t in tangents)


def _full(tangents: Sequence[Any], primals: Sequence[Any]) -> list[Array]:
    return [jnp.zeros_like(p) if type(t) is ad.Zero else t for t, p in zip(tangents, primals, strict=True)]


def _transpose(
    cotangents: Sequence[Any], *operands: Any, bk: Any, form: Any, kind: str, sizes: Any, mapped: Any
) -> list[Any]:
    """Linear in one of the two arguments; of its arrays some may be known, as zeros that a JVP put there."""
    indices, a, b = _split(operands, sizes)
    by = 0 if any(ad.is_undefined_primal(o) for o in a) else 1
    linear = (a, b)[by]
    if all(type(c) is ad.Zero for c in cotangents):
        return [ad.Zero(o.aval) if ad.is_undefined_primal(o) else None for o in operands]
    c = [ad.instantiate_zeros(c) for c in cotangents]
    other, first, second = transposed_arguments(kind, by, a, b, c)
    pulled = [
        p if ad.is_undefined_primal(o) else None
        for p, o in zip(_bind(bk, form, other, mapped, indices, first, second), linear, strict=True)
    ]
    nothing = [None] * len(b if by == 0 else a)
    return [None] * len(indices) + (pulled + nothing if by == 0 else nothing + pulled)


def _batch(
    operands: Sequence[Any], axes: Sequence[Any], *, bk: Any, form: Any, kind: str, sizes: Any, mapped: Any
) -> Any:
    """More rows in the batch where only the vector is mapped; else one more level of `mapped`."""
    indices, a, b = _split(operands, sizes)
    index_axes, a_axes, b_axes = _split(axes, sizes)
    if kind != SAMPLE and not form.each and all(axis is None for axis in (*index_axes, *a_axes)):
        depth = len(mapped)
        x = jnp.moveaxis(b[0], b_axes[0], depth)
        count, batch = x.shape[depth : depth + 2]
        rows = jnp.reshape(x, (*x.shape[:depth], count * batch, x.shape[-1]))
        (image,) = _bind(bk, form, kind, mapped, indices, a, (rows,))
        return [jnp.reshape(image, (*image.shape[:depth], count, batch, image.shape[-1]))], [depth]
    size = next(o.shape[axis] for o, axis in zip(operands, axes, strict=True) if axis is not None)
    level = tuple(axis is not None for axis in index_axes)
    indices = tuple(
        i if axis is None else jnp.moveaxis(i, axis, 0) for i, axis in zip(indices, index_axes, strict=True)
    )
    first = [_in_front(v, axis, size) for v, axis in zip(a, a_axes, strict=True)]
    second = [_in_front(v, axis, size) for v, axis in zip(b, b_axes, strict=True)]
    found = _bind(bk, form, kind, (*mapped, level), indices, first, second)
    return found, [0] * len(found)


def _in_front(x: Array, axis: int | None, size: int) -> Array:
    return jnp.broadcast_to(x, (size, *jnp.shape(x))) if axis is None else jnp.moveaxis(x, axis, 0)


ad.primitive_jvps[primitive] = _jvp
ad.primitive_transposes[primitive] = _transpose
batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, _lower)
