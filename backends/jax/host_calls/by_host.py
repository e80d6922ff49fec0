"""Host callbacks on the arrays' own memory, without the copies of `jax.pure_callback`.

`jax.pure_callback` makes arrays of JAX of what the host is given. NumPy then waits for a copy by a thread that may be
the one that waits for the host: with one core, or with several calls at a time, for ever.

JAX keeps no program on disk that holds a callback, which is a pointer. On the CPU a function that has a name is called
by that, which stands for it in every process that has traced it (`call_frame`). Elsewhere, and with another version of
XLA, it is a callback.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ...interface.arrays import Array, Spec
from ...interface.control import Kept, as_declared
from ...profile.spans import name_of, span
from ..sharding.placement import first_placed, placed_like
from .call_frame import DTYPES, register

TARGET = "krylix_by_host"
_known: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()  # programs keep them alive
# So does this, as JAX lets go of a program that nobody can call any more while it runs: the last ones. Those without
# which a program has no result hold settings alone; what looks into a failure may hold a matrix.
_lately: dict[bool, deque[Callable[..., Any]]] = {True: deque(maxlen=1024), False: deque(maxlen=16)}

primitive = Primitive(TARGET)
primitive.multiple_results = True


def by_host(
    function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array, kept: Kept | None = None
) -> list[Array]:
    """`function(*arrays as NumPy)`, read-only ones, in the declared shapes and dtypes. No derivatives."""
    found: list[Array] = primitive.bind(*arrays, function=function, returns=tuple(returns), kept=kept)
    return found


@cache
def can_be_kept() -> bool:
    """Can XLA call Python functions by name here?"""
    return register(TARGET, _by_name)


def _called(function: Callable[..., Any], returns: Sequence[Spec], values: Sequence[Any]) -> tuple[np.ndarray, ...]:
    with span("host call", name_of(function)):
        return as_declared(function(*map(np.asarray, values)), returns)


def _by_name(texts: dict[str, str], count: int, *values: np.ndarray) -> Sequence[Any]:
    kept = Kept(**texts)
    function = _known.get(kept.name)
    if function is not None:
        with span("host call", name_of(function)):
            return tuple(function(*values))
    # of a program that has outlived what it was made of
    if kept.policy == "keep":
        return values[1 : 1 + count]
    if kept.policy in ("raise", "warn") and not np.any(values[0]):
        return (False,)
    if kept.policy != "warn":
        raise RuntimeError(kept.otherwise)
    warnings.warn(kept.otherwise, RuntimeWarning, stacklevel=2)
    return (False,)


@primitive.def_impl
def _run(*arrays: Array, function: Callable[..., Any], returns: Sequence[Spec], kept: Kept | None) -> list[Array]:
    like = first_placed(arrays)
    return [placed_like(jnp.asarray(x), like) for x in _called(function, returns, arrays)]


@primitive.def_abstract_eval
def _abstract(*arrays: Any, function: Callable[..., Any], returns: Sequence[Spec], kept: Kept | None) -> list[Any]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in returns]


def _batch(arrays: Sequence[Array], axes: Sequence[Any], **params: Any) -> tuple[list[Array], list[int]]:
    """Batching rule: one call per element."""
    lanes = [jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes, strict=True) if axis is not None]

    def one(own: Sequence[Array]) -> list[Array]:
        left = iter(own)
        return list(primitive.bind(*(x if a is None else next(left) for x, a in zip(arrays, axes)), **params))

    found = lax.map(one, lanes)
    return found, [0] * len(found)


def _lower(
    ctx: Any, *operands: Any, function: Callable[..., Any], returns: Sequence[Spec], kept: Kept | None
) -> Any:  # fmt: skip
    found, _, _ = mlir.emit_python_callback(
        ctx, lambda *values: _called(function, returns, values), None, list(operands), ctx.avals_in, ctx.avals_out,
        has_side_effect=False, returns_token=False,
    )  # fmt: skip
    return found


def _lower_by_name(
    ctx: Any, *operands: Any, function: Callable[..., Any], returns: Sequence[Spec], kept: Kept | None
) -> Any:  # fmt: skip
    keep_alive = getattr(ctx.module_context, "add_keepalive", None)  # not public
    readable = all(np.dtype(a.dtype) in DTYPES for a in (*ctx.avals_in, *ctx.avals_out))
    if kept is None or keep_alive is None or not readable or not can_be_kept():
        return _lower(ctx, *operands, function=function, returns=returns, kept=kept)
    function = _known.setdefault(kept.name, function)
    keep_alive(function)
    _lately[kept.policy == "need"].append(function)
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in returns]

    def call(*arrays: Array) -> Any:
        return jax.ffi.ffi_call(TARGET, results)(*arrays, **kept._asdict())

    return mlir.lower_fun(call, multiple_results=True)(ctx, *operands)


batching.primitive_batchers[primitive] = _batch
mlir.register_lowering(primitive, _lower)
mlir.register_lowering(primitive, _lower_by_name, platform="cpu")


# --- Fallbacks in exported programs (`jax.export`), which cannot call back into this process --------------------------

exported_or_not = Primitive("krylix_unless_exported")


exported_or_not.multiple_results = True


def unless_exported(
    here: Callable[..., Sequence[Array]], exported: Callable[..., Sequence[Array]], *arrays: Array
) -> list[Array]:
    """`here(*arrays)`, or `exported(*arrays)` in a program made by `jax.export`. No derivatives."""
    return list(exported_or_not.bind(*arrays, here=here, exported=exported))


@exported_or_not.def_impl
def _run_here(*arrays: Array, here: Callable[..., Any], exported: Callable[..., Any]) -> Sequence[Array]:
    return here(*arrays)


def _abstract_either(*arrays: Any, here: Callable[..., Any], exported: Callable[..., Any]) -> Any:
    program = jax.make_jaxpr(here)(*arrays)
    return program.out_avals, program.effects


def _batch_both(arrays: Sequence[Array], axes: Sequence[Any], **functions: Callable[..., Any]) -> tuple[Any, Any]:
    mapped = {name: jax.vmap(function, tuple(axes)) for name, function in functions.items()}
    found = exported_or_not.bind(*arrays, **mapped)
    return found, [0] * len(found)


def _lower_one(ctx: Any, *operands: Any, here: Callable[..., Any], exported: Callable[..., Any]) -> Any:
    parameters = getattr(ctx.module_context, "lowering_parameters", None)  # not public
    chosen = exported if getattr(parameters, "for_export", False) else here
    return mlir.lower_fun(chosen, multiple_results=True)(ctx, *operands)


exported_or_not.def_effectful_abstract_eval(_abstract_either)
batching.primitive_batchers[exported_or_not] = _batch_both
mlir.register_lowering(exported_or_not, _lower_one)
