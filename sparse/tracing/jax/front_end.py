"""What JAX adds to `matrix_from_function` and `jacobian_matrix`: tracing, the test of the result, derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..verify.check import verify
from .trace import trace_function

__all__ = ["forward_derivative", "has_only_reverse_rule", "reverse_derivative", "trace_function", "verify"]

Linearised = tuple[Callable[[Any], Any], Any]  # a linear function, and something like its argument


def forward_derivative(f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Linearised:
    """Tangents of x to tangents of `f(x)`."""
    x = jax.tree.map(_array, x)

    def derivative(tangent: Any) -> Any:
        return jax.jvp(lambda y: f(y, *args, **kwargs), (x,), (tangent,))[1]

    return derivative, x


def reverse_derivative(f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Linearised:
    """Cotangents of `f(x)` to cotangents of x: the transpose, without conjugation."""
    x = jax.tree.map(_array, x)

    def derivative(cotangent: Any) -> Any:
        return jax.vjp(lambda y: f(y, *args, **kwargs), x)[1](cotangent)[0]

    return derivative, jax.eval_shape(lambda y: f(y, *args, **kwargs), x)


def has_only_reverse_rule(error: Exception) -> bool:
    """Did the forward derivative fail at a function with a reverse rule of its own (`jax.custom_vjp`)?"""
    return "custom_vjp" in str(error) or "'custom_lin'" in str(error)


def _array(leaf: Any) -> Any:
    array = (
        leaf if isinstance(leaf, jax.Array) else np.asarray(leaf, jax.dtypes.canonicalize_dtype(jnp.result_type(leaf)))
    )
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        raise TypeError(f"x has the dtype {array.dtype}; expected a floating or complex one. Give x.astype(float).")
    return array
