"""Functions recorded as graphs whose captures are arguments.

What the function reads is read when it is recorded: names, numbers and variables that change later change nothing, and
the derivatives depend on the arguments of the program alone, never on tensors of another graph, so they pass through
loops and branches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, record  # not public, as the next; tests pin them
from tensorflow.python.framework.func_graph import FuncGraph, func_graph_from_py_func
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

_READING = threading.RLock()  # how a variable is read is one thing for all threads


class Recorded:
    """`f(x, *arrays)`, as `function(x, *args)` was when it was recorded.

    Attributes:
        arrays: the tensors of `args`, and those that the function closes over, with the values of its variables.

    Raises:
        RuntimeError: the function cannot be traced and depends on something whose derivatives are being recorded, or
            it uses a variable in another way than by its value.
    """

    def __init__(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> None:
        leaves = tf.nest.flatten(list(args))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (tf.Tensor, tf.Variable))]
        given = [tf.convert_to_tensor(leaves[i]) for i in places]

        def with_arguments(x: Any, *new: tf.Tensor) -> Any:
            others = list(leaves)
            for i, tensor in zip(places, new, strict=True):
                others[i] = tensor
            return function(x, *tf.nest.pack_sequence_as(list(args), others))

        specs = tf.nest.map_structure(lambda a: tf.TensorSpec(a.shape, a.dtype), (x, *given))
        try:
            with _variables_by_value():
                self._traced = tf.function(with_arguments, autograph=False).get_concrete_function(*specs)
        except Exception as error:  # whatever the function does with symbolic tensors that it would not with values
            raise RuntimeError(
                "The derivatives of this solve are with respect to what the function A depends on, and TensorFlow "
                f"could not trace it to find out: {error} Pass tensors and variables on, linear_solve(A, b, args=(w,)) "
                "with A(x, w), and use TensorFlow operations only; or take no derivatives (tf.stop_gradient)."
            ) from error
        captured = list(self._traced.captured_inputs)
        if any(tensor.dtype == tf.resource for tensor in captured):
            raise RuntimeError(
                "The function A uses a tf.Variable by its handle (tf.gather of the variable itself, or it writes to "
                "it), so its derivatives cannot follow. Pass its value on: linear_solve(A, b, args=(tf.identity(v),))."
            )
        self._function, self._args, self._dtypes = function, tuple(args), [a.dtype for a in tf.nest.flatten(x)]
        self._count = len(given)
        self.arrays = [*given, *captured]

    def __call__(self, x: Any, *arrays: tf.Tensor) -> Any:
        if [a.dtype for a in tf.nest.flatten(x)] != self._dtypes:
            return self._function(x, *self._args)  # steps in another precision, whose end is seen with the program
        given = [tf.convert_to_tensor(a) for a in arrays]  # a tape takes no arrays of NumPy here
        leaves = [*tf.nest.flatten(x), *given[: self._count]]
        image = self._traced._call_flat(leaves, given[self._count :])  # not public; takes the captures, too
        return image


def graph_of(function: Callable[..., Sequence[tf.Tensor]], arguments: Sequence[tf.TensorSpec]) -> FuncGraph:
    """Trace the function to a graph; closed-over tensors and the values of its variables are captured."""
    with _variables_by_value():
        return func_graph_from_py_func("traced", function, tuple(arguments), {}, add_control_dependencies=False)


def recorded(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> tuple[Callable[..., Any], list[tf.Tensor]]:
    """`f(x, *arrays)` that is `function(x, *args)`, and the arrays. Eagerly 1 evaluation compares them.

    Raises:
        RuntimeError: see `Recorded`; or the function computes something else when it is traced.
    """
    try:
        program = Recorded(function, x, args)
    except RuntimeError:
        if not tf.executing_eagerly() or record.should_record_backprop(tf.nest.flatten(function(x, *args))):
            raise
        return lambda x, *_: function(x, *args), []  # it does not depend on anything that has derivatives
    if tf.executing_eagerly():
        _compare(program, function, x, args)
    return program, program.arrays


def _compare(program: Recorded, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> None:
    """Outside of a `tf.function` the caller's function is the one that runs eagerly."""
    z = tf.nest.map_structure(_point, x)
    pairs = zip(tf.nest.flatten(function(z, *args)), tf.nest.flatten(program(z, *program.arrays)), strict=True)
    if not all(_is_close(tf.convert_to_tensor(a), tf.convert_to_tensor(b)) for a, b in pairs):
        raise RuntimeError(
            "The function A computes something else when TensorFlow traces it, as the derivatives of this solve need, "
            "than when it is called: it is random, counts its calls, or asks whether it runs eagerly. Write it with "
            "TensorFlow operations of its arguments only; or take no derivatives (tf.stop_gradient)."
        )


def _point(x: tf.Tensor) -> tf.Tensor:
    """Sample point of the shape and dtype of x; not zero, where functions may branch."""
    return tf.reshape(tf.cast(tf.cos(tf.range(tf.size(x), dtype=tf.float64)), x.dtype), x.shape)


def _is_close(a: tf.Tensor, b: tf.Tensor) -> bool:
    """Equal up to rounding, as the graph may order operations differently?"""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.numpy(), b.numpy()
    bound = np.sqrt(np.finfo(a.dtype).eps) * np.max(np.abs(np.nan_to_num(a, posinf=0, neginf=0)), initial=0)
    return bool(np.allclose(a, b, rtol=0, atol=bound, equal_nan=True))


@contextmanager
def _recording() -> Iterator[None]:
    """Context in which tapes record, also inside `tf.stop_gradient`."""
    stopped = pywrap_tfe.TFE_Py_TapeSetIsStopped()
    if stopped:
        pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        if stopped:
            pywrap_tfe.TFE_Py_TapeSetStopOnThread()


@contextmanager
def _variables_by_value() -> Iterator[None]:
    """Context of a trace in which variables are read once, outside of the graph, under the caller's tapes."""
    outside = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    values: dict[int, tuple[Any, tf.Tensor]] = {}  # with the variable, so that its id stays its own

    with _READING:
        native = BaseResourceVariable._read_variable_op

        def read(self: Any, *args: Any, **kwargs: Any) -> tf.Tensor:
            if id(self) not in values:
                with context.eager_mode() if outside is None else outside.as_default(), _recording():
                    values[id(self)] = self, native(self)
            return tf.identity(values[id(self)][1])

        BaseResourceVariable._read_variable_op = read
        try:
            yield
        finally:
            BaseResourceVariable._read_variable_op = native
