"""Python functions on JAX arrays as values that compare equal when they compute the same.

An eager solve is compiled once for each function. The function object cannot be the key: it may close over a variable
that has another value by now, or be a new lambda in every time step. So the function is traced at each call, which
takes a millisecond, and its program is the key; the arrays that it closes over become arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core


class TracedFunction:
    """`f(x, *constants)`; equal to another one when both programs are the same, equation by equation."""

    one_dtype = True  # the program was made for arguments of one dtype

    def __init__(self, closed: Any, structure: Any) -> None:
        self.jaxpr, self.structure = closed.jaxpr, structure
        self.kept: list[Any] = []  # objects that stand in the key by identity, so they must live as long
        self.key = _program_key(closed.jaxpr, self.kept)
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TracedFunction) and self.key == other.key and self.structure == other.structure

    def __call__(self, x: Any, *constants: Any) -> Any:
        run = core.jaxpr_as_fun(core.ClosedJaxpr(self.jaxpr, list(constants)))
        return jax.tree.unflatten(self.structure, run(*jax.tree.leaves(x)))


def trace(function: Callable[[Any], Any], x: Any) -> tuple[TracedFunction, Sequence[Any]] | None:
    """The program of `function` for arrays like `x` (shapes and dtypes suffice), and the arrays that it closes over.

    None where a part of the program cannot be compared.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(x)
    try:
        return TracedFunction(closed, jax.tree.structure(shapes)), closed.consts
    except TypeError:  # something in it has no hash
        return None


def _program_key(jaxpr: Any, kept: list[Any]) -> tuple[Any, ...]:
    number: dict[Any, int] = {}

    def name(v: Any) -> Any:
        if hasattr(v, "val"):  # a literal
            return ("literal", v.aval, np.asarray(v.val).tobytes())
        known = number.get(v)
        if known is not None:
            return known
        number[v] = len(number)
        return number[v], v.aval

    inputs = tuple(name(v) for v in (*jaxpr.constvars, *jaxpr.invars))
    equations = tuple(
        (e.primitive, tuple(name(v) for v in e.invars), _key(e.params, kept), tuple(name(v) for v in e.outvars))
        for e in jaxpr.eqns
    )
    return inputs, len(jaxpr.constvars), equations, tuple(name(v) for v in jaxpr.outvars)


def _key(value: Any, kept: list[Any]) -> Any:
    """A hashable stand-in for a parameter of an equation."""
    if isinstance(value, core.ClosedJaxpr):
        return "program", _program_key(value.jaxpr, kept), _key(list(value.consts), kept)
    if isinstance(value, core.Jaxpr):
        return "program", _program_key(value, kept)
    if isinstance(value, dict):
        return "dict", tuple((k, _key(value[k], kept)) for k in sorted(value, key=str))
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_key(v, kept) for v in value)
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, jax.Array):
        kept.append(value)
        return "identity", id(value)
    hash(value)  # TypeError: not comparable
    return type(value), value


def called(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
    """`function(x, *args)` of a user.

    Raises:
        TypeError: it hands its argument to NumPy, which wants numbers.
    """
    try:
        return function(x, *args)
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(
            "The function hands its argument, or what follows from it, to NumPy or SciPy (by __array__, as np.asarray "
            "does), and JAX compiles it before there are numbers. Write it with jax.numpy; or give b as an array of "
            "NumPy, and the function gets such arrays."
        ) from error
