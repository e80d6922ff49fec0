"""What JAX adds to tracing: its functions as linear maps, their values for a known input, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ....backends import get_backend
from ..front_end import FrontEnd, Linearised, Traced, arguments, check_dtypes, matrix_dtype
from .interpreter import JaxprInterpreter
from .sample import sampled


def trace_function(
    function: Callable[..., Any],
    like: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    keep_zeros: bool,
) -> Traced:
    """See `FrontEnd.trace`. Nothing is compiled: NumPy computes what `function` does to known values."""
    given, like = like, jax.tree.map(_specification, like)
    program, shapes = jax.make_jaxpr(lambda x: function(x, *args, **kwargs), return_shape=True)(like)
    program = _without_unused(program)
    inputs, outputs = program.in_avals, program.out_avals
    if not outputs:
        raise TypeError(f"The traced function returned {shapes!r}; expected an array. Is a `return` missing?")
    check_dtypes(inputs, "the input")
    check_dtypes(outputs, "an output")
    bk = get_backend("jax")
    interpreter = JaxprInterpreter(bk, keep_zeros)
    results = interpreter.run(program, arguments(bk, inputs))
    return Traced(
        bk,
        program,
        tuple(results),
        tuple(inputs),
        tuple(constant for constant in program.consts if isinstance(constant, np.ndarray)),
        partial(jax.tree.unflatten, jax.tree.structure(shapes)),
        _single_shape(like, inputs),
        _single_shape(shapes, outputs),
        matrix_dtype([*inputs, *outputs]),
        interpreter.precision,
        given if bk.is_array(given) else None,
    )


def _without_unused(program: Any) -> Any:
    """Without operations whose results nobody needs, as the value of a quadratic function of which only the gradient
    is returned: these need not be linear.
    """
    try:
        from jax.interpreters.partial_eval import dce_jaxpr  # an internal part; without it more is refused

        jaxpr, _ = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
        return core.ClosedJaxpr(jaxpr, program.consts)
    except (ImportError, TypeError):
        return program


def _specification(leaf: Any) -> Any:
    """Shape and dtype only, so that JAX does not move values to a device."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    x = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _single_shape(tree: Any, avals: Sequence[Any]) -> tuple[int, ...] | None:
    single = jax.tree.structure(tree) == jax.tree.structure(0)
    return tuple(avals[0].shape) if single else None


# --- the front end ----------------------------------------------------------------------------------------------------


class JaxFrontEnd(FrontEnd):
    """Functions of JAX are listed as jaxprs, whose equations are followed one by one."""

    trace = staticmethod(trace_function)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """By NumPy from the list of operations, since XLA would take longer to compile it than all the rest takes.

        The rules of NumPy for these operations are those of JAX, which krylix's tests compare.
        """
        interpreter = JaxprInterpreter(traced.bk, watch=watch)
        return interpreter.run(traced.program, leaves), interpreter.largest

    def sample(
        self, traced: Traced, inputs: Callable[[int, np.ndarray | None], np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        try:
            return sampled(traced.program, JaxprInterpreter(traced.bk), inputs, wanted)
        except LookupError:  # NumPy has no rule for these operands
            return None

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = jax.tree.map(_array, x)

        def derivative(tangent: Any) -> Any:
            return jax.jvp(lambda y: f(y, *args, **kwargs), (x,), (tangent,))[1]

        return derivative, x

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = jax.tree.map(_array, x)

        def derivative(cotangent: Any) -> Any:
            return jax.vjp(lambda y: f(y, *args, **kwargs), x)[1](cotangent)[0]

        return derivative, jax.eval_shape(lambda y: f(y, *args, **kwargs), x)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """Did it fail at a function with a reverse rule of its own (`jax.custom_vjp`)?"""
        return "custom_vjp" in str(error) or "'custom_lin'" in str(error)


def _array(leaf: Any) -> Any:
    array = (
        leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, jax.dtypes.canonicalize_dtype(jnp.result_type(leaf)))
    )
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise TypeError(f"x has the dtype {array.dtype}; expected a floating or complex one. Give x.astype(float).")
    return array


FRONT_END: FrontEnd = JaxFrontEnd()
