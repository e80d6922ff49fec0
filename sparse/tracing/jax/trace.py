"""Tracing of a JAX function into linear maps, one per array that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ....backends import get_backend
from ..traced import Traced, arguments, check_dtypes, matrix_dtype
from .interpreter import JaxprInterpreter


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
