"""Implicit differentiation of a solve in TensorFlow: a custom gradient that solves again, to every order.

Also identity functions whose derivative is an error, or NaN for systems that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record  # not public; a test pins them

from ..interface.transformations import LinearSystem
from .vectorized import refuse_when_vectorized


def recording() -> bool:
    """May derivatives of the current operations be taken? Always while a `tf.function` is traced."""
    return not tf.executing_eagerly() or record.could_possibly_record()


def has_tangent(x: tf.Tensor) -> bool:
    """Does a ForwardAccumulator know a derivative of `x`?"""
    return bool(forwardprop_util.pack_tangents([x]).tangents)


def implicit_solve(system: LinearSystem, b: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`system.solve(b)` with derivatives with respect to `b` and those `system.arrays` that have some.

    Raises:
        RuntimeError: a ForwardAccumulator watches one of them.
    """
    # Of this graph, and all of them: gradients of branches and loops take no tensors of other graphs.
    b, system = tf.identity(b), system.with_arrays([tf.identity(a) for a in system.arrays])
    entries = system.entries()
    if any(map(has_tangent, [b, *entries])):
        raise RuntimeError(
            "A ForwardAccumulator watches an input of linear_solve, and TensorFlow gives custom gradients no forward "
            "mode. Use tf.GradientTape: the derivative in a direction v is the gradient, with respect to u, of the "
            "scalar product of v with the gradient of the scalar product of u and x."
        )

    @tf.custom_gradient
    def solve(b: tf.Tensor, *entries: tf.Tensor) -> Any:
        this = system.with_entries(entries)
        # Not seen by tapes: a persistent one has TensorFlow differentiate each loop and branch as it is built.
        unseen = system.with_entries([tf.stop_gradient(a) for a in entries])
        x, rest = unseen.solve(tf.stop_gradient(b))

        def gradient(cotangent: tf.Tensor, *_: Any, variables: Sequence[Any] | None = None) -> Any:
            cotangent = tf.convert_to_tensor(cotangent)  # of a gather that follows it is an IndexedSlices
            adjoint = tf.math.conj(implicit_solve(this.transpose(), tf.math.conj(cotangent))[0])
            gradients = _gradients(this, _again(this, b, x), adjoint)
            return (adjoint, *gradients) if variables is None else ((adjoint, *gradients), [None] * len(variables))

        return (x, *rest), gradient

    x, *rest = solve(b, *entries)
    refuse_when_vectorized(x)
    return x, tuple(rest)


def _again(system: LinearSystem, b: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """x as a function of the arrays, for second derivatives; its solve starts at x and takes no iterations."""
    if not recording():
        return x
    return implicit_solve(system.started_at(tf.stop_gradient(x)), b)[0]


def _gradients(system: LinearSystem, x: tf.Tensor, adjoint: tf.Tensor) -> Sequence[tf.Tensor]:
    """Gradient `- adjoint^H dA x` by the entries of A."""
    entries = [tf.identity(a) for a in system.entries()]  # of this graph: a tape does not see captures made before it
    if not entries:
        return ()
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for array in entries:
            tape.watch(array)
        image = system.with_entries(entries).product(x)
    found = tape.gradient(image, entries, -adjoint, tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(g) for g in found]  # of a gather it is an IndexedSlices


def refused(x: tf.Tensor, error: Exception, sources: Sequence[tf.Tensor]) -> tf.Tensor:
    """x; its gradient, and that by its sources, raises the error."""

    @tf.custom_gradient
    def passed_on(x: tf.Tensor, *sources: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(*cotangents: tf.Tensor) -> Any:
            raise error

        return tf.identity(x), gradient

    return passed_on(x, *map(tf.convert_to_tensor, sources))


def without_derivatives(x: tf.Tensor, failed: tf.Tensor) -> tf.Tensor:
    """Rows x; see `Transformations.without_derivatives`."""

    @tf.custom_gradient
    def passed_on(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(rows: tf.Tensor) -> tf.Tensor:
            changes = failed & tf.reduce_any(rows != 0, 1, keepdims=True)
            nan, one = (tf.constant(value, rows.dtype.real_dtype) for value in (np.nan, 1.0))
            factor = tf.where(changes, nan, one)
            return rows * tf.cast(factor, rows.dtype)

        return tf.identity(x), gradient

    return passed_on(x)
