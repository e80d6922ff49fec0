"""Derivatives of a solve in TensorFlow: a custom gradient that solves again, so it holds to every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record  # not public; a test pins them

from ..interface.implicit import LinearSystem


def recording() -> bool:
    """Can a derivative of what happens now be asked for? Always, while a `tf.function` is being traced."""
    return not tf.executing_eagerly() or record.could_possibly_record()


def has_tangent(x: tf.Tensor) -> bool:
    """Does a ForwardAccumulator know a derivative of `x`?"""
    return bool(forwardprop_util.pack_tangents([x]).tangents)


def implicit_solve(system: LinearSystem, b: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`system.solve(b)` with derivatives with respect to `b` and those `system.arrays` that have some.

    Raises:
        RuntimeError: a ForwardAccumulator watches one of them.
    """
    entries = system.entries()
    values = [tf.convert_to_tensor(a) for a in entries]
    if any(map(has_tangent, [b, *values])):
        raise RuntimeError(
            "A ForwardAccumulator watches an input of linear_solve, and TensorFlow gives custom gradients no forward "
            "mode. Use tf.GradientTape: the derivative in a direction v is the gradient, with respect to u, of the "
            "scalar product of v with the gradient of the scalar product of u and x."
        )

    @tf.custom_gradient
    def solve(b: tf.Tensor, *values: tf.Tensor) -> Any:
        x, rest = system.solve(b)

        def gradient(cotangent: tf.Tensor, *_: Any, variables: Sequence[Any] | None = None) -> Any:
            adjoint = tf.math.conj(implicit_solve(system.transpose(), tf.math.conj(cotangent))[0])
            gradients = _gradients(system, entries, _again(system, b, x), adjoint)
            return (adjoint, *gradients) if variables is None else ((adjoint, *gradients), [None] * len(variables))

        return (x, *rest), gradient

    x, *rest = solve(b, *values)
    return x, tuple(rest)


def _again(system: LinearSystem, b: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """x as a function of the arrays, for derivatives of the gradient; solved from x itself, so in no iterations."""
    if not recording():
        return x
    return implicit_solve(system.started_at(tf.stop_gradient(x)), b)[0]


def _gradients(system: LinearSystem, entries: Sequence[Any], x: tf.Tensor, adjoint: tf.Tensor) -> Sequence[tf.Tensor]:
    """- adjoint^H dA x for the entries of A."""
    if not entries:
        return ()
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for array in entries:
            tape.watch(array)
        image = system.product(x)
    found = tape.gradient(image, entries, -adjoint, tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(g) for g in found]  # of a gather it is an IndexedSlices


class ClosedFunction:
    """`function(x, *args)`, called with the arrays that it depends on, which it knows already.

    TensorFlow differentiates with respect to objects, so nothing has to be replaced.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        self.function, self.args = function, args

    def __call__(self, x: Any, *arrays: Any) -> Any:
        return self.function(x, *self.args)


def closed_arrays(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> list[Any]:
    """The tensors and variables that `function(x, *args)` depends on besides x.

    Raises:
        RuntimeError: they cannot be found, and the result depends on something recorded.
    """
    found = [a for a in tf.nest.flatten(args) if isinstance(a, (tf.Tensor, tf.Variable))]
    try:
        traced = tf.function(lambda x: function(x, *args), autograph=False).get_concrete_function(
            tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), x)
        )
    except Exception as error:  # whatever the function does with symbolic tensors that it would not with values
        if tf.executing_eagerly() and not record.should_record_backprop(tf.nest.flatten(function(x, *args))):
            return found
        raise RuntimeError(
            "The derivatives of this solve are with respect to what the function A depends on, and TensorFlow could "
            f"not trace it to find out: {error} Pass tensors and variables on, linear_solve(A, b, args=(w,)) with "
            "A(x, w), and use TensorFlow operations only; or take no derivatives (tf.stop_gradient)."
        ) from error
    variables = list(traced.graph.variables)
    captured = [outer for outer, _ in traced.graph.captures if outer.dtype.is_floating or outer.dtype.is_complex]
    known = {id(a) for a in found}
    return [*found, *(a for a in (*captured, *variables) if id(a) not in known)]
