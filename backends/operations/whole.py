"""Whole functions: compiled, run on the host, or kept from derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np

from ..interface.arrays import Array, Spec
from .custom_gradient import is_integer

_NO_DERIVATIVE = (
    "The derivative of numpy_call was asked for, whose function NumPy computes. Give it one by custom_gradient, or "
    "take the call out of derivatives by stop_gradient."
)


def stop_gradient(bk: Any, tree: Any) -> Any:
    """An array, or a container with all arrays in it, as constants to derivatives."""
    leaves, structure = bk.leaves(tree)
    return bk.unleaves(structure, [bk.constant(leaf) if bk.is_array(leaf) else leaf for leaf in leaves])


def block_until_ready(bk: Any, tree: Any) -> Any:
    """The container, once all its arrays are computed: libraries may return before that."""
    return tree


def compile(bk: Any, f: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
    """f, compiled by the library: `jax.jit`, `tf.function` without AutoGraph, `torch.compile`; in NumPy f itself.

    Args:
        f: of arrays and containers of them.
        static: names of arguments that are no arrays: f is compiled for each value.
    """
    return f


def numpy_call(bk: Any, f: Callable[..., Any], returns: Spec | Sequence[Spec], *arrays: Array, **constants: Any) -> Any:
    """What f returns, called with NumPy arrays; inside compiled functions each time that these run.

    It has no derivative: asking for one raises; in graphs of TensorFlow it is NaN. `custom_gradient` gives it one.

    Args:
        f: of arrays, which it cannot write to; returns an array, or several as a tuple.
        returns: `(shape, dtype)` of the array that f returns, or several of these.
        arrays: of the library.
        constants: more arguments of f, by name, as they are.
    """
    specs, one = _specs(returns)
    inputs = [bk.asarray(x) for x in arrays]
    found = list(bk.host_call(_with_own_memory(partial(f, **constants), one), specs, *map(bk.constant, inputs)))
    real = [i for i, x in enumerate(found) if not is_integer(bk, x)]
    sources = [x for x in inputs if not is_integer(bk, x)]
    if bk.has_derivatives and real and sources:
        marked = bk._with_no_derivative(sources, [found[i] for i in real], _NO_DERIVATIVE)
        for i, x in zip(real, marked, strict=True):
            found[i] = x
    return found[0] if one else tuple(found)


def _with_own_memory(f: Callable[..., Any], one: bool) -> Callable[..., Any]:
    """f of arrays that it cannot write to; its results are new ones, as a tuple.

    The arrays may lie in the memory of the caller's, and f may return the same buffer each time.
    """

    def function(*arrays: Any) -> Any:
        views = [np.asarray(x).view() for x in arrays]
        for x in views:
            x.flags.writeable = False
        found = f(*views)
        return tuple(np.array(x) for x in ((found,) if one else found))

    return function


def _specs(returns: Any) -> tuple[list[Spec], bool]:
    """The shapes and dtypes that a function declares, and whether there is only one array."""
    try:
        one = len(returns) == 2 and not isinstance(returns[1], (tuple, list))
        return [(tuple(map(index, shape)), np.dtype(dtype)) for shape, dtype in ([returns] if one else returns)], one
    except (TypeError, ValueError, IndexError) as error:
        raise TypeError(
            f"numpy_call got the argument returns={returns!r:.80}; expected (shape, dtype) of the array that the "
            "function returns, or a list of these."
        ) from error
