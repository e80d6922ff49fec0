"""What JAX adds to tracing: its functions as linear maps, their values for a known input, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..front_end import FrontEnd, Linearised
from ..traced import Traced
from .interpreter import JaxprInterpreter
from .sample.program import sampled
from .trace import trace_function


class JaxFrontEnd:
    """Functions of JAX are listed as jaxprs, whose equations are followed one by one."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        return trace_function(function, like, args, kwargs, keep_zeros)

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
