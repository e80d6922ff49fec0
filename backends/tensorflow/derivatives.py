"""Derivatives in TensorFlow by custom gradients: of bilinear maps, of solves, of a loss, by a rule of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

from ..interface.arrays import nan_of
from ..interface.functions import Differentiated, LinearSystem
from ..interface.kernels import PRODUCT, TRANSPOSED, Arrays, Bilinear, evaluate_bilinear, transposed_arguments
from .loops import refuse_when_vectorized


def bilinear(
    bk: Any, form: Bilinear, values: Arrays, indices: Arrays, x: tf.Tensor, transposed: bool = False
) -> tf.Tensor:
    """`form.product` or its transpose, with derivatives."""
    values = tuple(tf.convert_to_tensor(v) for v in values)
    kind = TRANSPOSED if transposed else PRODUCT
    return _apply(bk, form, kind, indices, values, (tf.convert_to_tensor(x),))[0]


def _apply(
    bk: Any, form: Bilinear, kind: str, indices: Arrays, a: Sequence[tf.Tensor], b: Sequence[tf.Tensor]
) -> Sequence[tf.Tensor]:
    # TensorFlow gives custom gradients no forward mode, but has one for the operations that the maps are made of.
    if not recording() or any(map(has_tangent, (*a, *b))):
        return evaluate_bilinear(bk, form, kind, indices, tuple(a), tuple(b))

    @tf.custom_gradient
    def function(*operands: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        own_a, own_b = operands[: len(a)], operands[len(a) :]

        def gradient(*cotangents: tf.Tensor, variables: Sequence[Any] | None = None) -> Any:
            cotangents = tuple(map(tf.convert_to_tensor, cotangents))  # of a gather that follows it is an IndexedSlices
            conj_a, conj_b = (tuple(map(tf.math.conj, argument)) for argument in (own_a, own_b))
            found: list[tf.Tensor] = []
            for by in (0, 1):
                other, first, second = transposed_arguments(kind, by, conj_a, conj_b, cotangents)
                found += _apply(bk, form, other, indices, first, second)
            return found if variables is None else (found, [None] * len(variables))

        return list(evaluate_bilinear(bk, form, kind, indices, own_a, own_b)), gradient

    results: Sequence[tf.Tensor] = function(*a, *b)
    return results


# --- Implicit differentiation of a solve in TensorFlow: a custom gradient that solves again, to every order -----------
# Also identity functions whose derivative is an error, or NaN for systems that failed.


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


# --- The derivatives of a loss in TensorFlow --------------------------------------------------------------------------


def differentiated(function: Callable[..., tuple[tf.Tensor, Any]], arrays: Sequence[tf.Tensor]) -> Differentiated:
    """See `Transformations._differentiated`."""
    arrays = [
        tf.identity(a) for a in arrays
    ]  # a tape knows tensors by identity: two arguments may be one, or closed over
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        for a in arrays:
            tape.watch(a)
        loss, outputs = function(*arrays)

    def pull(cotangent: tf.Tensor) -> list[tf.Tensor]:
        found = tape.gradient(loss, arrays, cotangent, tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(g) for g in found]  # that of a gather is an IndexedSlices

    def pull_each(cotangents: tf.Tensor) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            rows = [pull(c) for c in tf.unstack(cotangents)]
            return [tf.stack(column) for column in zip(*rows, strict=True)]
        # not vectorized, which would drop second derivatives of custom gradients
        signature = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        return list(tf.map_fn(pull, cotangents, fn_output_signature=signature))

    return Differentiated(loss, outputs, pull, pull_each)


# --- Tensors with a derivative rule that is a function of the user, in TensorFlow -------------------------------------

Rule = Callable[..., Sequence[tf.Tensor | None]]


def with_rule(
    rule: Rule, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], linear: bool = False
) -> Sequence[tf.Tensor]:
    """See `Transformations._with_rule`."""
    count = len(inputs)

    @tf.custom_gradient
    def passed_on(*tensors: tf.Tensor) -> Any:
        def gradient(*cotangents: tf.Tensor) -> Any:
            known = [
                tf.convert_to_tensor(c) if _is_inexact(x) else None  # of a gather that follows they are IndexedSlices
                for c, x in zip(cotangents, tensors[count:], strict=True)
            ]
            # the outputs with their rule: second derivatives go through them
            return (*rule(tensors[:count], passed_on(*tensors), known), *known)

        return [tf.identity(x) for x in tensors[count:]], gradient

    if not outputs:
        return outputs
    found: list[tf.Tensor] = passed_on(*map(tf.convert_to_tensor, inputs), *outputs)
    refuse_when_vectorized(found[0])
    return found


def _is_inexact(x: tf.Tensor) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)


def with_no_derivative(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], why: str) -> Sequence[tf.Tensor]:
    """See `Transformations._with_no_derivative`.

    In graphs derivatives are NaN: TensorFlow differentiates all that its sources lead to, and drops what it does not
    need.
    """

    def rule(arrays: Sequence[tf.Tensor], *_: Any) -> list[tf.Tensor]:
        if tf.inside_function():
            return [
                tf.fill(tf.shape(a), tf.constant(nan_of(np.dtype(a.dtype.as_numpy_dtype)), a.dtype)) for a in arrays
            ]
        raise TypeError(why)

    return with_rule(rule, inputs, outputs)
