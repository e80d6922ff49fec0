"""Calls of a function of Python that tells of a failure, from programs that can be stored and read by other processes.

JAX keeps no program on disk that holds a callback, which is a pointer. On the CPU such a call goes by a name that XLA
knows in every process that has traced it (`call_frame`): the program holds words for the function that it stands for,
which are the same in every process. Elsewhere, and with another version of XLA, it is a callback.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ..interface.arrays import Array
from ..interface.control import Kept
from .by_host import by_host, lanes_in_turn
from .call_frame import DTYPES, register

TARGET = "krylix_told"
_known: WeakValueDictionary[str, Teller] = WeakValueDictionary()

primitive = Primitive(TARGET)
primitive.multiple_results = True


class Teller:
    """A function that may raise, and what stands for it in a program; alive as long as a program may call it."""

    def __init__(self, function: Callable[..., None], kept: Kept | None) -> None:
        self.function, self.kept = function, kept

    def __call__(self, bad: Any, *values: Any) -> tuple[np.ndarray]:
        """The function sees `bad` again: under vmap both branches of a condition run."""
        if np.any(bad):
            self.function(*(np.asarray(value) for value in values))
        return (np.zeros((), np.bool_),)


def told(teller: Teller, bad: Array, *values: Array) -> Array:
    """False, after `teller(bad, *values)`. No derivatives."""
    (found,) = primitive.bind(bad, *values, teller=teller)
    return found


@cache
def can_be_kept() -> bool:
    """Does XLA call functions of Python by name here?"""
    return register(TARGET, _by_name)


def _by_name(texts: dict[str, str], bad: np.ndarray, *values: np.ndarray) -> None:
    teller = _known.get(texts["name"])
    if teller is not None:
        teller(bad, *values)
    elif not np.any(bad):
        return
    elif texts["policy"] == "warn":
        warnings.warn(texts["otherwise"], RuntimeWarning, stacklevel=2)
    else:
        raise RuntimeError(texts["otherwise"])


def _call_by_host(*arrays: Array, teller: Teller) -> list[Array]:
    return by_host(teller, [((), np.dtype(bool))], *arrays)


@primitive.def_abstract_eval
def _abstract(*arrays: Any, teller: Teller) -> list[Any]:
    return [jax.core.ShapedArray((), np.dtype(bool))]


def _lower(ctx: Any, *operands: Any, teller: Teller) -> Any:
    keep_alive = getattr(ctx.module_context, "add_keepalive", None)  # not public
    readable = all(np.dtype(a.dtype) in DTYPES for a in ctx.avals_in)
    if teller.kept is None or keep_alive is None or not readable or not can_be_kept():
        return mlir.lower_fun(_call_by_host, multiple_results=True)(ctx, *operands, teller=teller)
    keep_alive(_known.setdefault(teller.kept.name, teller))
    texts = teller.kept._asdict()

    def call(*arrays: Array) -> Sequence[Array]:
        return [jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct((), jnp.bool_))(*arrays, **texts)]

    return mlir.lower_fun(call, multiple_results=True)(ctx, *operands)


primitive.def_impl(_call_by_host)
batching.primitive_batchers[primitive] = lanes_in_turn(primitive)
mlir.register_lowering(primitive, mlir.lower_fun(_call_by_host, multiple_results=True))
mlir.register_lowering(primitive, _lower, platform="cpu")
