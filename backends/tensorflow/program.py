"""Functions recorded as graphs whose captures are arguments.

What the function reads is read when it is recorded: names, numbers and variables that change later change nothing, and
the derivatives depend on the arguments of the program alone, never on tensors of another graph, so they pass through
loops and branches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, execute, record
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


# --- Evaluate graph operations on tensors that do not depend on the input, with TensorFlow's derivatives --------------

CUSTOM = "_gradient_op_type"  # of an operation with a gradient of its own


def is_eager(x: Any) -> bool:
    """Does a tensor have a value now?"""
    return not tf.is_symbolic_tensor(x)


def eagerly() -> AbstractContextManager[Any]:
    """Context of eager execution, also while a graph is traced."""
    return nullcontext() if tf.executing_eagerly() else context.eager_mode()


def tensor_of(value: Any, dtype: Any = None) -> tf.Tensor:
    """Convert a coefficient to a tensor."""
    if isinstance(value, tf.Tensor):
        return value
    with eagerly():
        return tf.constant(value, dtype)


def evaluate(op: tf.Operation, values: Sequence[Any], dtypes: dict[Any, Any] | None = None) -> list[tf.Tensor]:
    """Evaluate an operation for other operands.

    Args:
        op: of some graph.
        values: known ones, or tensors of the graph that is being made.
        dtypes: in place of those that the operation has.
    """
    tensors = [tensor_of(value, None if i.dtype == tf.variant else i.dtype) if not dtypes else tensor_of(value)
               for value, i in zip(values, op.inputs)]  # fmt: skip
    if all(is_eager(x) for x in tensors):
        with eagerly():
            return _at_once(op, tensors, dtypes or {})
    return _in_graph(op, tensors)


def _at_once(op: tf.Operation, tensors: list[tf.Tensor], dtypes: dict[Any, Any]) -> list[tf.Tensor]:
    attributes = _attributes(op, dtypes)
    found = execute.execute(
        op.type.encode(), len(op.outputs), inputs=tensors, attrs=attributes, ctx=context.context()
    )  # fmt: skip
    if execute.must_record_gradient():
        execute.record_gradient(op.type, tensors, attributes, found)
    return list(found)


def _attributes(op: tf.Operation, dtypes: dict[Any, Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for attribute in op.op_def.attr:
        value = op.get_attr(attribute.name)
        if attribute.type == "func":
            value = value.name
        elif attribute.type == "shape":
            value = _shape(value)
        elif attribute.type == "list(shape)":
            value = [_shape(shape) for shape in value]
        elif attribute.type == "type":
            value = dtypes.get(value, value)
        found += [attribute.name, value]
    return tuple(found)


def _shape(proto: Any) -> list[int] | None:
    return tf.TensorShape(proto).as_list() if not proto.unknown_rank else None


def _in_graph(op: tf.Operation, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Add the operation to the current graph, under its open tapes."""
    graph = tf.compat.v1.get_default_graph()
    own = {a.name for a in op.op_def.attr}
    attributes = {name: value for name, value in op.node_def.attr.items() if name in own}
    made = graph._create_op_internal(  # not public; the public one is deprecated, and warns
        op.type, [tf.convert_to_tensor(x) for x in tensors], [x.dtype for x in op.outputs], attrs=attributes
    )
    found = list(made.outputs)
    if execute.must_record_gradient():
        flat = tuple(part for a in op.op_def.attr for part in (a.name, made.get_attr(a.name)))
        execute.record_gradient(op.type, list(made.inputs), flat, found)
    return found


def _gathered(op: tf.Operation, variable: tf.Variable, indices: Any) -> tf.Tensor:
    return tf.gather(tf.identity(variable), indices, batch_dims=op.get_attr("batch_dims"))


BY_HANDLE: dict[str, Callable[..., tf.Tensor]] = {  # what reads a variable, for the tapes that are open now
    "ReadVariableOp": lambda op, variable: tf.identity(variable),
    "ResourceGather": _gathered,
    "ResourceGatherNd": lambda op, variable, indices: tf.gather_nd(tf.identity(variable), indices),
}


def value_of(op: tf.Operation) -> np.ndarray:
    """Value of a constant operation."""
    return tf.make_ndarray(op.get_attr("value"))


# --- Constant folding of symbolic tensors -----------------------------------------------------------------------------
# Inside of `tf.function` even `tf.range(8)` is symbolic. Where a coefficient is such a value the matrix can be known
# while the graph is made, and where a mask or an index is, its structure. What the graph captures counts as constant
# for integers and booleans only, unless it is asked for: a derivative of the program by it may be wanted later.

MAX_OPERATIONS = 2000


class GraphConstantFolder:
    """Constant folder for one trace, with a cache of values."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, bool], tuple[Any, Any]] = {}  # with the tensor, so that its id stays its own

    def value(self, x: tf.Tensor, captured: bool = False) -> Any:
        """The value of a tensor; None where it is not known.

        With `captured` also of floating numbers that were computed from what the graph captures, which is the same
        whenever it runs: for what has no derivatives.
        """
        captured = captured or not (x.dtype.is_floating or x.dtype.is_complex)
        pending, count = [x], 0
        while pending:
            tensor = pending[-1]
            if (id(tensor), captured) in self._found:
                pending.pop()
                continue
            sources = self._sources(tensor, captured)
            missing = [s for s in sources or () if (id(s), captured) not in self._found and not is_eager(s)]
            count += 1
            if count > MAX_OPERATIONS:
                return None
            if missing:
                pending += missing
                continue
            self._compute(tensor, sources, captured)
        return self._found[id(x), captured][1]

    def _sources(self, x: tf.Tensor, captured: bool) -> list[tf.Tensor] | None:
        """Tensors from which it is computed; None if unknown."""
        outside = _captured(x)
        if outside is not None:
            return [outside] if captured else None
        op = x.op
        if op.type == "Placeholder" or op.op_def.is_stateful or op.type.endswith(("While", "If", "Case", "Call")):
            return None
        return list(op.inputs)

    def _compute(self, x: tf.Tensor, sources: list[tf.Tensor] | None, captured: bool) -> None:
        values = [s if is_eager(s) else self._found[id(s), captured][1] for s in sources or ()]
        if sources is None or any(value is None for value in values):
            self._found[id(x), captured] = x, None
        elif _captured(x) is not None:
            self._found[id(x), captured] = x, values[0]
        elif x.op.type == "Const":
            self._found[id(x), captured] = x, value_of(x.op)
        else:
            for output, value in zip(x.op.outputs, evaluate(x.op, values)):
                self._found[id(output), captured] = output, value


def _captured(x: tf.Tensor) -> Any:
    """The outer tensor that a graph captures; small ones look like constants."""
    for outside, inside in getattr(x.graph, "captures", ()):
        if inside is x:
            return outside
    return None
